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

/// Names for the addresses of a stall: of this process, or of another one that is watched from outside. Confined to the reporter's thread.
struct StallSymbols {
    private let run: RunIdentity
    private let symbolicator = Symbolicator()
    private let ownCode: OwnCode

    init(run: RunIdentity, ownCode: OwnCode) { (self.run, self.ownCode) = (run, ownCode) }

    /// The process in which the loop stalled.
    func process(of stall: StallObservation) -> ProcessIdentity { stall.otherProcess?.identity ?? run.process }

    /// Finds names. Includes those that are known without symbols: the functions in which the loop itself calls out.
    func resolve(_ addresses: [ResolvableAddress], in process: OutsideProcess?) -> Resolution {
        if let process { return process.symbolicator.resolve(addresses, budget: .tool) }
        var resolution = symbolicator.resolve(addresses)
        for (index, frame) in resolution.frames.enumerated() where frame.symbol == nil {
            guard let offset = frame.functionOffset,
                let name = CalloutFrames.name(ofFunctionAt: frame.address &- offset)
            else { continue }
            resolution.frames[index].symbol = name
            (resolution.frames[index].function, resolution.frames[index].language) = (name, .c)
        }
        return resolution
    }

    func isOwn(_ frame: SymbolicatedFrame, _ module: LoadedModule?, of stall: StallObservation) -> Bool {
        let executable = process(of: stall).executable ?? ""
        if stall.otherProcess != nil {
            return ownCode.isOwnOfAnyMake(frame, module: module, executable: executable)
        }
        return ownCode.isOwn(frame, module: module, executable: executable)
    }

    /// A sample in which a system call that a signal interrupted has the name that stands on the stack.
    func settled(_ sample: StackSample, in process: OutsideProcess?) -> StackSample {
        guard let site = sample.site, !site.continued.isEmpty else { return sample }
        var sample = sample
        let innermost = sample.stack.frames.prefix(3).map {
            ResolvableAddress(address: $0.address, isReturnAddress: $0.found != .register)
        }
        let names = (process?.symbolicator ?? symbolicator).resolve(innermost)
        sample.site = site.settled(by: names.frames.compactMap(\.symbol))
        return sample
    }

    /// The name of a job: the first own function among those in which it began and those that awaited it; else the first that is not the
    /// runtime's. Nil without one. A new task begins in a function of the runtime, which calls the server's.
    func nameOfJob(at addresses: [UInt]) -> String? {
        let found = resolve(addresses.map { ResolvableAddress(address: $0, kind: .resumption) }, in: nil)
        let named = found.frames.filter { $0.function ?? $0.symbol != nil }
        let module = { (frame: SymbolicatedFrame) in
            frame.moduleIndex.flatMap { found.modules.indices.contains($0) ? found.modules[$0] : nil }
        }
        let own = named.first { ownCode.isOwn($0, module: module($0), executable: run.process.executable ?? "") }
        let other = named.first { module($0)?.path.contains("/libswift_Concurrency") != true }
        return (own ?? other).flatMap { $0.symbol.map(Demangler.shortName) ?? $0.function }
    }
}
