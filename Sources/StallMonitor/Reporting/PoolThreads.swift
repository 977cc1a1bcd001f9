import RunLoopKit
import StackCapture
import StallDiagnosis
import StallReports

/// The workers of a stalled pool, for the search for the culprit in all their stacks. Empty for a loop, which has one thread.
struct PoolThreads {
    private let threads: [Int32: StallReport.Thread]
    /// Workers that wait for another worker: their work is not what stalls the pool.
    private let waiting: Set<Int32>
    /// How many of their stacks were taken at detection.
    let size: Int

    init() { (threads, waiting, size) = ([:], [], 0) }

    init(_ pool: PoolObservation) {
        let known = pool.workers.map { StallReport.Thread($0.job.threadID, $0.evidence?.after) }
        threads = Dictionary(known.map { ($0.id, $0) }) { first, _ in first }
        waiting = pool.waitingForOthers
        size = pool.stacks.count
    }

    /// Nil for the thread of a loop.
    func thread(of sample: StackSample) -> StallReport.Thread? {
        sample.threadID.map { threads[$0] ?? StallReport.Thread(id: $0) }
    }

    /// The order in which the samples are searched for the culprit. Samples of a loop are ordered by time. Samples of a pool were
    /// taken at the same times, so they are ordered by their stacks, with equal ones side by side; workers that wait for other
    /// workers are left out, unless all do.
    func order(_ samples: [StackSample], _ stacks: [StallReport.Stack]) -> [Int] {
        let byTime = samples.indices.sorted { samples[$0].time < samples[$1].time }
        guard size > 0 else { return byTime }
        let going = byTime.filter { samples[$0].threadID.map(waiting.contains) != true }
        return Self.alikeSideBySide(going.isEmpty ? byTime : going, stacks)
    }

    /// The same order for the stacks of a report.
    static func order(_ byTime: [Int], _ stacks: [StallReport.Stack], _ pool: StallReport.Pool) -> [Int] {
        let stalled = Set(pool.workers.map(\.thread.id))
        let waiting = pool.workers.filter { worker in
            worker.verdict != .deadlock && worker.lock?.owner.map { stalled.contains($0.id) } == true
        }
        let ids = Set(waiting.map(\.thread.id))
        let going = byTime.filter { index in
            !([stacks[index].thread.id] + (stacks[index].threads ?? []).map(\.id)).allSatisfy(ids.contains)
        }
        return alikeSideBySide(going.isEmpty ? byTime : going, stacks)
    }

    /// Ordered by the stacks, from their outermost functions on. Stacks with the same outer functions stay together.
    private static func alikeSideBySide(_ indices: [Int], _ stacks: [StallReport.Stack]) -> [Int] {
        let keys = indices.map { stacks[$0].identity.reversed() }
        let order = indices.indices.sorted { a, b in
            if keys[a].elementsEqual(keys[b]) { return a < b }
            return keys[a].lexicographicallyPrecedes(keys[b])
        }
        return order.map { indices[$0] }
    }
}

// MARK: - In the report

extension CaseStacks {
    /// What one worker was doing during the stall.
    func worker(_ worker: PoolObservation.Worker, _ findings: CaseFindings, processID: Int32) -> StallReport.Worker {
        let id = worker.job.threadID
        let own = samples.indices.filter { samples[$0].threadID == id }
        let state = worker.evidence?.after
        let diagnosis = Diagnosis(window: worker.evidence, state: state?.state, waits: waits(of: id))
        let place = own.first.flatMap { named.places[$0] }
        var row = StallReport.Worker(
            thread: .init(id, state),
            standingNs: 0,
            task: own.first.flatMap { samples[$0].stack.asyncCallers?.taskNumber }.map(UInt64.init),
            verdict: diagnosis.verdict,
            stack: place,
            // A stack that could not be taken at detection may have been taken before.
            error: place == nil ? worker.problem : nil
        )
        if let lock = findings.locks.first(where: { $0.waits.first?.threadID == id }) {
            let summary = LockSummary(lock, named.stacks, processID: processID)
            row.lock = summary.waits.first?.lock
            if !summary.cycle.isEmpty { row.verdict = .deadlock }
        }
        return row
    }
}

extension PoolObservation {
    /// The kernel's account of a worker.
    func evidence(of threadID: Int32) -> EvidenceWindow? { workers.first { $0.job.threadID == threadID }?.evidence }
}

extension StallReport.Pool {
    /// All workers were stalled until `end`: the stall ends when the first worker continues.
    init(_ pool: PoolObservation, _ workers: [StallReport.Worker], until end: MonotonicInstant) {
        self.init(width: pool.width, running: pool.running, waiting: pool.waiting, workers: workers)
        for (index, worker) in pool.workers.enumerated() where workers.indices.contains(index) {
            self.workers[index].standingNs = max(.zero, end - worker.job.since).nanoseconds
        }
    }

    /// `No worker was free: 4 were in one job each, 3 of them in this function, while at least 12 jobs waited.`
    /// For one long job: `One job was in this function, while 1 of 2 workers was free.`
    fileprivate func sentence(_ kind: StallKind) -> String {
        guard kind == .longJob else { return sentence }
        let free = max(0, width.subtractingReportingOverflow(running).partialValue)
        let rest =
            free == 0
            ? "none of the \(width) workers was free" : "\(free) of \(width) workers \(free == 1 ? "was" : "were") free"
        return "One job was in this function, while \(rest)."
    }

    private var sentence: String {
        var text = "No worker was free: \(running) were in one job each"
        if let atCulprit, running > 1, atCulprit > 0 {
            text += atCulprit >= running ? ", all of them in this function" : ", \(atCulprit) of them in this function"
        }
        switch waiting {
        case nil: break
        case 0: text += ", and no other job waited"
        case 1: text += ", while at least 1 job waited"
        case let count?: text += ", while at least \(count) jobs waited"
        }
        return text + "."
    }
}

extension StallReport {
    /// One sentence about all workers of the pool. Nil without a pool.
    var poolSentence: String? { pool?.sentence(kind) }
}
