import StallDetection
import StallDiagnosis
import StallReports

/// Everything known about one stall that has a report: what the watchdog saw, what was found out since, and the stall's state.
/// Each version of the report is made from this alone. Confined to the reporter's thread.
struct StallCase {
    private(set) var observation: StallObservation
    private(set) var findings: CaseFindings
    /// The captured stacks, with names. They lack the latest samples while `hasNewSamples` is set.
    private(set) var stacks: CaseStacks
    private var hasNewSamples = false
    /// Why the thread was stalled, without locks and without the other workers of a pool. Determined at detection, and again at the end.
    private(set) var cause = StallReport.Cause()
    /// The fingerprint at detection. Later samples may show another fault.
    let firstFingerprint: Fingerprint
    private(set) var state = StallState.ongoing
    var span: StallSpan
    var busy: StallReport.BusyTime?
    private(set) var endedAt: Timestamp?
    private(set) var turnDurations: TurnDurations?
    /// Whether the process has crashed since, so that its crash handler runs.
    var hasCrashed = false
    /// Set if the monitor is about to end the process.
    private(set) var abort: AbortNotice?
    /// Stalls of the same fault that were only counted.
    var repeats: StallReport.Repeats?
    var details = StallDetails()

    /// Finds out what can only be found out while the stall lasts, then names the stacks.
    ///
    /// - Parameters:
    ///   - later: Samples from after the detection.
    ///   - isOver: Whether the loop has already moved on. Clients that wait for it now then have another reason.
    init(
        _ observation: StallObservation,
        later: [StackSample] = [],
        isOver: Bool,
        _ lookup: TimedLookup,
        _ symbols: StallSymbols
    ) {
        var findings = CaseFindings(observation, lookup, isOver: isOver)
        for sample in later { findings.add(sample, lookup) }
        let stacks = CaseStacks(of: observation, findings, symbols)
        (self.observation, self.findings, self.stacks) = (observation, findings, stacks)
        (span, busy) = (observation.span, observation.busy)
        firstFingerprint = stacks.fingerprint
        turnDurations = TurnDurations(observation)
    }

    /// Finds the cause for the first version of the report.
    ///
    /// - Parameter lookup: Nil if the stall is over.
    mutating func explain(_ lookup: TimedLookup?) {
        findings.look(at: stacks.named, lookup)
        cause = cause(over: observation.evidence)
    }

    mutating func add(_ sample: StackSample, _ lookup: TimedLookup) {
        findings.add(sample, lookup)
        hasNewSamples = true
    }

    /// Names the samples that have arrived since the last time. They may show another culprit.
    mutating func nameNewSamples(_ symbols: StallSymbols) {
        guard hasNewSamples else { return }
        renewStacks(symbols)
    }

    /// Notes that the process will be ended because of this stall.
    mutating func add(_ notice: AbortNotice, _ symbols: StallSymbols) {
        abort = notice
        if let threads = notice.threads { (observation.others, observation.othersTakenAt) = (threads, notice.takenAt) }
        renewStacks(symbols)
    }

    /// Ends the case: the stall is over, or is no longer watched.
    ///
    /// - Parameter evidence: The kernel's account of the whole stall. Nil leaves the cause unchanged.
    mutating func end(
        _ span: StallSpan,
        _ evidence: EvidenceWindow?,
        as state: StallState,
        _ symbols: StallSymbols
    ) {
        renewStacks(symbols)
        (self.span, self.state) = (span, state)
        abort = nil
        turnDurations = TurnDurations(observation) ?? turnDurations
        endedAt = state == .abandoned ? nil : observation.clock.time(of: span.latestEnd, sleptUntilNow: true)
        // What the workers of a pool did after the detection is not what stalled the pool.
        guard let evidence, observation.pool == nil else { return }
        cause = cause(over: evidence)
        hasCrashed = false
    }

    private mutating func renewStacks(_ symbols: StallSymbols) {
        stacks = CaseStacks(of: observation, findings, symbols)
        hasNewSamples = false
    }
}

extension StallCase {
    /// Why the thread was stalled, by its own evidence.
    ///
    /// - Parameter window: The kernel's counts. For a pool, those of the worker that shows the culprit are used instead.
    private func cause(over window: EvidenceWindow?) -> StallReport.Cause {
        let thread = stacks.thread.id
        let waits = stacks.waits(of: thread)
        let window = observation.pool.map { $0.evidence(of: thread) } ?? window
        let diagnosis = Diagnosis(
            window: window,
            state: (observation.pool == nil ? observation.evidence : window)?.after.state,
            waits: waits,
            descriptors: waits.longestCall.map(findings.descriptors) ?? [],
            hottest: stacks.named.stacks.hottestFunction,
            wasSeen: !observation.isOverUnseen
        )
        let site = diagnosis.site ?? waits.longestCall
        return .init(
            verdict: diagnosis.verdict,
            summary: diagnosis.summary,
            systemCall: site.map { .init($0, findings.descriptors(of: $0)) },
            evidence: window.map { .init($0, waits) }
        )
    }
}

extension TurnDurations {
    /// The turns of the loop so far. Nil for a loop that is watched from outside.
    fileprivate init?(_ stall: StallObservation) {
        guard stall.otherProcess == nil else { return nil }
        self.init(stall.loop.heartbeat.turnHistogram)
    }
}

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
