import RunLoopKit
import StackCapture
import StallDiagnosis
import StallReports
import Symbolication

/// The stacks captured of a stall so far, with names, and what they show: the culprit and the fault. Made again as a whole when there are more
/// samples.
struct CaseStacks {
    /// The thread that the report is about. For a pool: a worker that shows the culprit.
    let thread: StallReport.Thread
    /// Has at least one stack. Where none could be taken, it has one that says why.
    private(set) var named: SymbolicatedStacks
    let fingerprint: Fingerprint
    /// The workers of a pool.
    private(set) var workers: [StallReport.Worker] = []
    /// The samples. System calls that a signal interrupted have the names that stand on the stack.
    let samples: [StackSample]
    /// The cost of taking and naming them.
    let cost: StallReport.MonitorCost

    /// Finds names for everything that was captured, the culprit and the fault.
    init(of stall: StallObservation, _ findings: CaseFindings, _ symbols: StallSymbols) {
        let captured = findings.tally.samples
        let pool = stall.pool.map(PoolThreads.init) ?? PoolThreads()
        let stalled = StallReport.Thread(stall.threadID ?? 0, stall.evidence?.after)
        let clock = ContinuousClock()
        let start = clock.now
        named = SymbolicatedStacks(
            captured,
            pool: pool,
            companions: findings.companions(stall.pool),
            thread: stalled,
            clock: stall.clock,
            name: { symbols.resolve($0, in: stall.otherProcess) },
            isOwn: { symbols.isOwn($0, $1, of: stall) }
        )
        let time = clock.now - start
        thread = (named.culpritSample ?? captured.indices.first).flatMap { pool.thread(of: captured[$0]) } ?? stalled
        fingerprint = .make(
            kind: stall.kind,
            fault: named.culpritFrames,
            modules: named.modules,
            executable: symbols.process(of: stall).executable
        )
        if named.stacks.isEmpty { named.stacks = [.missing(stall, stalled)] }
        samples = captured.map { symbols.settled($0, in: stall.otherProcess) }
        let locks = [findings.lock].compactMap { $0 } + findings.locks
        cost = .init(captured.map(\.stack.cost) + locks.flatMap(\.costs), naming: time)
        workers = stall.pool?.workers.map { worker($0, findings, processID: symbols.process(of: stall).pid) } ?? []
        if let others = stall.others {
            named.add(
                others,
                at: stall.clock.time(of: stall.othersTakenAt ?? stall.detectedAt),
                name: { symbols.resolve($0, in: stall.otherProcess) },
                isOwn: { symbols.isOwn($0, $1, of: stall) }
            )
        }
    }

    /// The waits of a thread. Samples without a thread belong to the loop's only thread.
    func waits(of threadID: Int32) -> WaitProfile {
        WaitProfile(samples.filter { $0.threadID.map { $0 == threadID } ?? true }.weighted)
    }
}

extension CaseFindings {
    /// The stacks of lock owners, each once. The workers of a pool are left out: their stacks are in the report anyway.
    fileprivate func companions(_ pool: PoolObservation?) -> [CompanionStack] {
        guard let pool else { return lock?.companions ?? [] }
        var known = Set(pool.workers.map(\.job.threadID))
        return locks.flatMap(\.companions).filter { known.insert($0.thread.id).inserted }
    }
}

extension StallReport.Stack {
    /// Stands in for a stack that could not be taken.
    fileprivate static func missing(_ stall: StallObservation, _ thread: StallReport.Thread) -> Self {
        let reason =
            switch stall.stack {
            case .captured: "The stack was empty."
            case .failed(let error): error.description
            case .raced: "The stall was over before it was looked at: the loop had moved on."
            case .unavailable(let reason): reason
            }
        let time = stall.clock.time(of: stall.detectedAt)
        return .init(thread: thread, capturedAt: time, complete: false, error: reason)
    }
}

extension StallReport.MonitorCost {
    fileprivate init(_ costs: [CapturedStack.Cost], naming: Duration) {
        self.init(
            heldNs: Int64(clamping: costs.reduce(0) { $0 + $1.heldNanoseconds }),
            unwindNs: Int64(clamping: costs.reduce(0) { $0 + $1.unwindNanoseconds }),
            symbolicationNs: naming.nanoseconds,
            copiedBytes: Int64(clamping: costs.reduce(0) { $0 + $1.bytesCopied })
        )
    }
}
