package import RunLoopKit
package import StallDetection
package import StallDiagnosis
package import StallReports

/// A stall of another process, at the moment it was proven.
package struct OutsideStall: Sendable {
    /// The number of the loop or pool: see ``OutsideReporter``.
    package var loop: Int
    package var threadID: Int32
    /// What the loop waits for while it rests. Nil for a pool.
    package var awaited: AwaitedDescriptors?
    /// `congested`: the turn has many callouts. `repeated`: there are many long turns in a row.
    package var category: StallCategory
    package var span: StallSpan
    package var detectedAt: MonotonicInstant
    /// The kernel's counts when the standstill was first seen, or one look later.
    package var account: OutsideProcess.Account?
    /// The stack at detection, or why there is none.
    package var stack: OutsideStack
    /// Samples from before the detection.
    package var samples: [StackSample]
    /// The workers, if it is a task pool. Their stacks take the place of `stack`.
    package var pool: OutsidePool?
    /// The turns of a stall that is a row of them.
    package var busy: StallReport.BusyTime?

    package init(
        loop: Int,
        threadID: Int32,
        awaited: AwaitedDescriptors?,
        category: StallCategory,
        span: StallSpan,
        detectedAt: MonotonicInstant,
        account: OutsideProcess.Account?,
        stack: OutsideStack,
        samples: [StackSample],
        pool: OutsidePool? = nil,
        busy: StallReport.BusyTime? = nil
    ) {
        (self.loop, self.threadID, self.awaited, self.category) = (loop, threadID, awaited, category)
        (self.span, self.detectedAt) = (span, detectedAt)
        (self.account, self.stack, self.samples, self.pool) = (account, stack, samples, pool)
        self.busy = busy
    }
}

/// The workers of another process's task pool when no worker was free any more.
package struct OutsidePool: Sendable {
    /// The number of jobs that the pool runs at once.
    package var width: Int
    /// The worker that has been at its job for longest first.
    package var workers: [Worker]

    package init(width: Int, workers: [Worker]) { (self.width, self.workers) = (width, workers) }

    /// A worker that stays at one job.
    package struct Worker: Sendable {
        package var threadID: Int32
        /// Since when at the latest.
        package var since: MonotonicInstant
        /// The kernel's counts from when it had been at that job for a short time.
        package var account: OutsideProcess.Account?
        package var stack: OutsideStack

        package init(
            threadID: Int32,
            since: MonotonicInstant,
            account: OutsideProcess.Account?,
            stack: OutsideStack
        ) {
            (self.threadID, self.since, self.account, self.stack) = (threadID, since, account, stack)
        }
    }

    /// How many workers have their stacks taken at detection, and how many before and after it.
    package static let (workerLimit, sampleLimit) = (PoolObservation.workerLimit, PoolObservation.sampleLimit)
}

/// The stack of a thread of another process, or why there is none.
package typealias OutsideStack = CaptureOutcome<StackSample>

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
        let sample = stall.pool == nil ? stall.stack.captured : nil
        let lock = meter.measure {
            sample.flatMap { process.lock(awaitedBy: stall.threadID, $0.stack) }
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
            lock: lock,
            otherProcess: process,
            awaited: stall.awaited,
            loopFrame: sample?.loopFrame
        )
    }
}

extension OutsideProcess {
    /// The change until the detection of a stall.
    fileprivate func window(since before: Account, threadID: Int32, at stall: OutsideStall) -> EvidenceWindow? {
        window(since: before, threadID: threadID, at: stall.detectedAt, of: stall.span)
    }
}

extension PoolObservation {
    fileprivate init(_ pool: OutsidePool, of process: OutsideProcess, _ stall: OutsideStall, _ meter: CostMeter) {
        self.init(width: pool.width, running: pool.workers.count)
        for worker in pool.workers {
            let window = worker.account.flatMap { process.window(since: $0, threadID: worker.threadID, at: stall) }
            let job = TaskPoolHeartbeat.RunningJob(threadID: worker.threadID, since: worker.since)
            workers.append(Worker(job: job, evidence: window, problem: worker.stack.problem(raced: Worker.gone)))
            if let sample = worker.stack.captured { stacks.append(sample) }
        }
        // Only for the first workers, because each search takes time.
        let first = stacks.prefix(Self.sampleLimit)
        locks = meter.measure {
            first.compactMap { sample in sample.threadID.flatMap { process.lock(awaitedBy: $0, sample.stack) } }
        } costs: {
            $0.flatMap(\.costs)
        }
    }
}

extension StackOutcome {
    fileprivate init(_ stack: OutsideStack) {
        switch stack {
        case .captured(let sample): self = .captured(sample.stack)
        case .failed(let error): self = .failed(error)
        case .raced: self = .raced
        case .unavailable(let reason): self = .unavailable(reason)
        }
    }
}
