import StallDetection
import StallDiagnosis
import StallReports

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
        victims = clients.flatMap { clients in lookup.ask { clients.count() } } ?? nil
        tally = SampleTally(samples, detected: stall.pool?.stacks.count ?? 1)
        locks = stall.pool?.locks ?? []
        lock = stall.lock ?? samples.lazy.compactMap(\.lock).first
        for sample in samples { look(sample.site, lookup) }
        for owner in (lock?.owners ?? []) + locks.flatMap(\.owners) { look(owner.site, lookup) }
    }

    /// The lock that a thread waited for: the loop's thread, or a worker of a pool.
    func lock(of threadID: Int32) -> LockFinding? { lock ?? locks.first { $0.waits.first?.threadID == threadID } }

    mutating func add(_ sample: StackSample, _ lookup: TimedLookup) {
        tally.add(sample)
        look(sample.site, lookup)
        guard lock == nil, let found = sample.lock else { return }
        lock = found
        for owner in found.owners { look(owner.site, lookup) }
    }

    /// Determines what the thread waits for by the names on its stack.
    ///
    /// - Parameter lookup: Nil if the thread no longer waits: lock owners and child processes may be others now.
    mutating func look(at names: SymbolicatedStacks, _ lookup: TimedLookup?) {
        guard named == nil, let wait = NamedWait(names.stacks, names.modules) else { return }
        named = lookup?.ask { [process] in wait.look(in: process) } ?? NamedWait.Finding(wait: wait)
    }

    /// What the descriptors of a wait refer to, as far as that was found out while the wait lasted.
    func descriptors(of site: WaitSite) -> [StallReport.Descriptor] {
        places.first { $0.site.isSame(as: site) }?.descriptors ?? DescriptorLookup(site).unasked
    }

    private mutating func look(_ site: WaitSite?, _ lookup: TimedLookup) {
        guard let site, places.count < Self.placeLimit, !places.contains(where: { $0.site.isSame(as: site) }) else {
            return
        }
        let search = DescriptorLookup(site)
        places.append((site, search.question.flatMap { lookup.ask($0) } ?? search.unasked))
    }
}
