import RunLoopKit
import StackCapture
import StallDetection
import StallDiagnosis
import StallReports

// A stall of another process, as the reporter expects a stall of this process.

extension StallObservation {
    /// If the stall's threads wait for locks, this also finds the locks' owners.
    init(
        _ stall: OutsideStall,
        _ number: Int,
        _ identity: WatchIdentity,
        _ rule: StallRule,
        of process: OutsideProcess,
        _ meter: CostMeter
    ) {
        let sample = stall.pool == nil ? stall.stack.sample : nil
        let lock = meter.measure {
            sample.flatMap { process.lock(holding: stall.threadID, $0.stack) }
        } costs: {
            $0?.costs ?? []
        }
        self.init(
            number: number,
            reportID: .make(),
            watch: identity,
            loop: nil,
            category: stall.category,
            rule: rule,
            pulse: nil,
            span: stall.span,
            detectedAt: stall.detectedAt,
            threadID: stall.threadID,
            evidence: stall.account.flatMap { process.window(since: $0, threadID: stall.threadID, at: stall) },
            stack: StackOutcome(stall.stack),
            samples: stall.samples,
            pool: stall.pool.map { PoolObservation($0, of: process, stall, meter) },
            busy: stall.busy,
            site: sample?.site,
            others: nil,
            lock: lock,
            watchdogCPU: nil,
            otherProcess: process,
            awaited: stall.awaited,
            loopFrame: sample?.loopFrame
        )
    }
}

extension OutsideProcess {
    /// The change until the detection of a stall, without excluded time.
    fileprivate func window(since before: Account, threadID: Int32, at stall: OutsideStall) -> EvidenceWindow? {
        window(since: before, threadID: threadID, at: stall.detectedAt, leavingOut: stall.span.excluded)
    }
}

extension PoolObservation {
    fileprivate init(_ pool: OutsidePool, of process: OutsideProcess, _ stall: OutsideStall, _ meter: CostMeter) {
        self.init(width: pool.width, running: pool.workers.count, waiting: nil, workers: [], stacks: [], locks: [])
        for worker in pool.workers {
            let window = worker.account.flatMap { process.window(since: $0, threadID: worker.threadID, at: stall) }
            var row = Worker(job: .init(threadID: worker.threadID, since: worker.since), evidence: window)
            if let sample = worker.stack.sample {
                stacks.append(sample)
            } else {
                row.problem = worker.stack.problem
            }
            workers.append(row)
        }
        // Only for the first workers, because each search takes time.
        let first = stacks.prefix(Self.sampleLimit)
        locks = meter.measure {
            first.compactMap { sample in sample.threadID.flatMap { process.lock(holding: $0, sample.stack) } }
        } costs: {
            $0.flatMap(\.costs)
        }
    }
}

extension OutsideStack {
    /// Why there is no stack.
    fileprivate var problem: String? {
        switch self {
        case .taken: nil
        case .failed(let error): error.description
        case .refused(let reason): reason
        case .raced: "The job was over before it was looked at."
        }
    }
}

extension StackOutcome {
    fileprivate init(_ stack: OutsideStack) {
        switch stack {
        case .taken(let sample): self = .captured(sample.stack)
        case .failed(let error): self = .failed(error)
        case .refused(let reason): self = .unavailable(reason)
        case .raced: self = .raced
        }
    }
}
