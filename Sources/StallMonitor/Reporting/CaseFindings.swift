import RunLoopKit
import StackCapture
import StallDiagnosis
import StallReports
import Symbolication

/// What was found out about a stall after the watchdog's observation: its later samples, and what it waited for. Confined to the
/// reporter's thread.
struct CaseFindings {
    private(set) var tally: SampleTally
    /// The lock that the thread waited for and its owners, at detection or in the first sample that shows it.
    private(set) var lock: LockFinding?
    /// The same for each worker of a pool.
    let locks: [LockFinding]
    /// The clients that waited for the loop when the case was opened.
    let victims: StallReport.Victims?
    /// What the thread waits for, by the names on its stack. Looked up once.
    private(set) var named: NamedWait.Finding?
    private let process: ObservedProcess
    private var places: [(site: WaitSite, descriptors: [StallReport.Descriptor])] = []

    /// For how many waits descriptors are looked up.
    private static let placeLimit = 8

    /// - Parameter isOver: Whether the loop has moved on. The clients that wait now are then others.
    init(_ stall: StallObservation, _ lookup: TimedLookup, isOver: Bool = false) {
        let samples = stall.allSamples
        let process = stall.otherProcess?.observed ?? .own
        self.process = process
        // This comes first, because the loop may continue at any moment.
        let clients = isOver ? nil : stall.awaited.map { WaitingClients(process: process, awaited: $0) }
        let counted = clients.flatMap { clients in lookup.ask { clients.count() } } ?? nil
        // A loop that has moved on by now has served some of them, and others wait for another reason.
        victims = stall.hasMovedOn ? nil : counted
        tally = SampleTally(samples, detected: stall.pool?.stacks.count ?? 1)
        locks = stall.pool?.locks ?? []
        lock = stall.lock ?? samples.lazy.compactMap(\.lock).first
        for sample in samples { lookUp(sample.site, lookup) }
        for owner in (lock?.owners ?? []) + locks.flatMap(\.owners) { lookUp(owner.site, lookup) }
    }

    /// The lock that a thread waited for: the loop's thread, or a worker of a pool.
    func lock(of threadID: Int32) -> LockFinding? { lock ?? locks.first { $0.waits.first?.threadID == threadID } }

    /// The lock owners, each once. Workers of a pool are left out, because the report has their stacks anyway.
    fileprivate func owners(_ pool: PoolObservation?) -> [LockFinding.Owner] {
        guard let pool else { return lock?.owners ?? [] }
        var known = Set(pool.workers.map(\.job.threadID))
        return locks.flatMap(\.owners).filter { known.insert($0.threadID).inserted }
    }

    mutating func add(_ sample: StackSample, _ lookup: TimedLookup) {
        tally.add(sample)
        lookUp(sample.site, lookup)
        guard lock == nil, let found = sample.lock else { return }
        lock = found
        for owner in found.owners { lookUp(owner.site, lookup) }
    }

    /// Determines what the thread waits for by the names on its stack.
    ///
    /// - Parameter lookup: Nil if the thread no longer waits: lock owners and child processes may be others now.
    mutating func findNamedWait(in names: SymbolicatedStacks, _ lookup: TimedLookup?) {
        guard named == nil, let wait = NamedWait(names.stacks, names.modules) else { return }
        named = lookup?.ask { [process] in wait.find(in: process) } ?? NamedWait.Finding(wait: wait)
    }

    /// What the descriptors of a wait refer to, as far as that was found out while the wait lasted.
    func descriptors(of site: WaitSite) -> [StallReport.Descriptor] {
        places.first { $0.site.isSame(as: site) }?.descriptors ?? DescriptorLookup(site).unasked
    }

    private mutating func lookUp(_ site: WaitSite?, _ lookup: TimedLookup) {
        guard let site, places.count < Self.placeLimit, !places.contains(where: { $0.site.isSame(as: site) }) else {
            return
        }
        let search = DescriptorLookup(site)
        places.append((site, search.question.flatMap { lookup.ask($0) } ?? search.unasked))
    }
}

/// All stacks captured of a stall so far, with names, and what they show: the culprit and the fault. When there are more samples,
/// the whole value is made again.
struct CaseStacks {
    /// The thread that the report is about. For a pool, a worker that shows the culprit.
    let thread: StallReport.Thread
    /// Contains at least one stack. If none could be taken, that one says why.
    private(set) var named: SymbolicatedStacks
    let fingerprint: Fingerprint
    /// The workers of a pool.
    private(set) var workers: [StallReport.Worker] = []
    /// The samples. A system call that a signal interrupted gets its name from the stack.
    let samples: [StackSample]
    /// The cost of taking and naming them.
    let cost: StallReport.MonitorCost

    /// Finds names for everything that was captured, the culprit and the fault.
    init(of stall: StallObservation, _ findings: CaseFindings, _ symbols: StallSymbols) {
        let captured = findings.tally.samples
        let pool = stall.pool.map(PoolThreads.init) ?? PoolThreads()
        let stalled = StallReport.Thread(stall.threadID ?? 0, stall.evidence?.after)
        let name = { (addresses: [ResolvableAddress]) in symbols.resolve(addresses, in: stall.otherProcess) }
        let isOwn = { (frame: SymbolicatedFrame, module: LoadedModule?) in symbols.isOwn(frame, module, of: stall) }
        let clock = SuspendingClock()
        let start = clock.now
        named = SymbolicatedStacks(
            captured,
            pool: pool,
            owners: findings.owners(stall.pool),
            thread: stalled,
            clock: stall.clock,
            name: name,
            isOwn: isOwn
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
            let takenAt = stall.othersTakenAt ?? stall.detectedAt
            named.add(others, at: takenAt, clock: stall.clock, name: name, isOwn: isOwn)
        }
    }

    /// The waits of a thread. Samples without a thread belong to the loop's only thread.
    func waits(of threadID: Int32) -> WaitProfile {
        WaitProfile(samples.filter { $0.threadID.map { $0 == threadID } ?? true }.weighted)
    }
}

extension StallReport.Stack {
    /// In place of the stalled thread's stack, if it could not be taken.
    fileprivate static func missing(_ stall: StallObservation, _ thread: StallReport.Thread) -> Self {
        let reason = stall.stack.problem(raced: "The stall was over before it was looked at: the loop had moved on.")
        let time = stall.clock.time(of: stall.detectedAt)
        return .missing(.stalled, thread, time, because: reason ?? "The stack was empty.")
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
