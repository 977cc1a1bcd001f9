import StallDetection
import StallDiagnosis
import StallReports

/// All that is known of one stall that has a report: what the watchdog saw, what was found out since, and how far it has come. Each version of
/// the report is made of it as a whole, and of nothing else. Confined to the reporter's thread.
struct StallCase {
    private(set) var observation: StallObservation
    var findings: CaseFindings
    /// What was captured so far, with names. Older than the findings while there are new samples.
    var stacks: CaseStacks {
        didSet { hasNewSamples = false }
    }
    private(set) var hasNewSamples = false
    /// Why the thread stood by itself, without locks and without a pool's other workers. Decided at detection, and at the end.
    var cause = StallReport.Cause()
    /// Under which the stall was found: later samples may show that it is another one.
    let firstFingerprint: Fingerprint
    var state = StallState.ongoing
    var span: StallSpan
    var busy: StallReport.BusyTime?
    var endedAt: Timestamp?
    var turnDurations: TurnDurations?
    /// The process has crashed since, and lives on for its crash handler only.
    var hasCrashed = false
    /// The monitor is about to end the process.
    private(set) var lastWords: LastWords?
    /// Stalls of the same fault that were counted only.
    var repeats: StallReport.Repeats?
    var details = StallDetails()

    init(_ observation: StallObservation, _ findings: CaseFindings, _ stacks: CaseStacks) {
        (self.observation, self.findings, self.stacks) = (observation, findings, stacks)
        (span, busy) = (observation.span, observation.busy)
        firstFingerprint = stacks.fingerprint
        turnDurations = TurnDurations(observation)
    }

    mutating func add(_ sample: StackSample, _ lookup: PatientLookup) {
        findings.add(sample, lookup)
        hasNewSamples = true
    }

    /// The process is to end by this stall.
    mutating func add(_ words: LastWords) {
        lastWords = words
        if let threads = words.threads { (observation.others, observation.othersTakenAt) = (threads, words.takenAt) }
    }

    /// The stall is over, or nobody looks any more.
    mutating func end(_ span: StallSpan, as state: StallState) {
        (self.span, self.state) = (span, state)
        lastWords = nil
        turnDurations = TurnDurations(observation) ?? turnDurations
        endedAt = state == .abandoned ? nil : observation.clock.time(of: span.latestEnd, sleptUntilNow: true)
    }
}

extension TurnDurations {
    /// Those of the loop by now. Of one that is watched from outside nothing is known.
    fileprivate init?(_ stall: StallObservation) {
        guard stall.subject == nil else { return nil }
        self.init(stall.loop.heartbeat.turnHistogram)
    }
}

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
