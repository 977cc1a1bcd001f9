import StallDiagnosis
import StallReports

/// What has been found out of one stall besides what the watchdog saw at first: its later samples, and what its waits were on. Confined to
/// the reporter's thread.
struct CaseFindings {
    private(set) var tally: SampleTally
    /// Whom the thread waited for at detection, or else when it was first found to.
    private(set) var lock: LockFinding?
    /// Whom each of a pool's workers waited for.
    let locks: [LockFinding]
    /// Who waited for the loop when the case was opened.
    let victims: StallReport.Victims?
    /// What the names on the stacks said that the thread waits for. Asked for once.
    private(set) var named: NamedWait.Finding?
    private let process: ObservedProcess
    private var places: [(site: WaitSite, descriptors: [StallReport.Descriptor])] = []

    /// Most waits whose descriptors are looked up.
    private static let placeLimit = 8

    /// - Parameter isOver: the loop turns again: who waits now is somebody else.
    init(_ stall: StallObservation, _ lookup: PatientLookup, isOver: Bool = false) {
        let samples = stall.allSamples
        let process = stall.subject?.observed ?? .own
        self.process = process
        // First of all: the loop may go on at any moment.
        let clients = isOver ? nil : stall.waitSet.map { WaitingClients(process: process, set: $0) }
        victims = clients.flatMap { clients in lookup.ask { clients.count() } } ?? nil
        tally = SampleTally(samples, detected: stall.pool?.stacks.count ?? 1)
        locks = stall.pool?.locks ?? []
        lock = stall.lock ?? samples.lazy.compactMap(\.lock).first
        for sample in samples { look(sample.site, lookup) }
        for owner in (lock?.owners ?? []) + locks.flatMap(\.owners) { look(owner.site, lookup) }
    }

    /// Whom a thread waited for: the loop's, or a pool's worker.
    func lock(of threadID: Int32) -> LockFinding? { lock ?? locks.first { $0.waits.first?.threadID == threadID } }

    mutating func add(_ sample: StackSample, _ lookup: PatientLookup) {
        tally.add(sample)
        look(sample.site, lookup)
        guard lock == nil, let found = sample.lock else { return }
        lock = found
        for owner in found.owners { look(owner.site, lookup) }
    }

    /// Looks for what the names on the stacks speak of.
    ///
    /// - Parameter lookup: nil if the thread waits no more: who holds a lock now, or which children live now, would be others.
    mutating func look(at names: SymbolicatedStacks, _ lookup: PatientLookup?) {
        guard named == nil, let wait = NamedWait(names.stacks, names.modules) else { return }
        named = lookup?.ask { [process] in wait.look(in: process) } ?? NamedWait.Finding(wait: wait)
    }

    /// What the descriptors of a wait stand for, as far as it could be found out while it lasted.
    func descriptors(of site: WaitSite) -> [StallReport.Descriptor] {
        places.first { $0.site.isSame(as: site) }?.descriptors ?? DescriptorLookup(site).unasked
    }

    private mutating func look(_ site: WaitSite?, _ lookup: PatientLookup) {
        guard let site, places.count < Self.placeLimit, !places.contains(where: { $0.site.isSame(as: site) }) else {
            return
        }
        let search = DescriptorLookup(site)
        places.append((site, search.question.flatMap { lookup.ask($0) } ?? search.unasked))
    }
}
