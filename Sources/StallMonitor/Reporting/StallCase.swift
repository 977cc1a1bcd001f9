import RunLoopKit
import StallDetection
import StallDiagnosis
import StallReports
import Symbolication

/// Everything known about one stall that has a report: what the watchdog saw, what was found out since, and the stall's state.
/// Each version of the report is made from this alone. Confined to the reporter's thread.
final class StallCase {
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
    /// The names of the stalled work.
    var labels: [String]?
    /// Processor time that the reporter's thread has spent on its reports, in nanoseconds.
    var reporterCPU: UInt64 = 0

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
    func explain(_ lookup: TimedLookup?) {
        findings.findNamedWait(in: stacks.named, lookup)
        cause = cause(over: observation.evidence)
    }

    func add(_ sample: StackSample, _ lookup: TimedLookup) {
        findings.add(sample, lookup)
        hasNewSamples = true
    }

    /// Names the samples that have arrived since the last time. They may show another culprit.
    func nameNewSamples(_ symbols: StallSymbols) {
        guard hasNewSamples else { return }
        renewStacks(symbols)
    }

    /// Notes that the process will be ended because of this stall.
    func add(_ notice: AbortNotice, _ symbols: StallSymbols) {
        abort = notice
        if let threads = notice.threads { (observation.others, observation.othersTakenAt) = (threads, notice.takenAt) }
        renewStacks(symbols)
    }

    /// Ends the case: the stall is over, or is no longer watched.
    ///
    /// - Parameter evidence: The kernel's account of the whole stall. Nil leaves the cause unchanged.
    func end(
        _ span: StallSpan,
        _ evidence: EvidenceWindow?,
        as state: StallState,
        _ symbols: StallSymbols
    ) {
        renewStacks(symbols)
        (self.span, self.state) = (span, state)
        // The process lives, whatever was to be expected.
        (abort, hasCrashed) = (nil, false)
        turnDurations = TurnDurations(observation) ?? turnDurations
        endedAt = state == .abandoned ? nil : observation.clock.time(of: span.latestEnd, sleptUntilNow: true)
        // What the workers of a pool did after the detection is not what stalled the pool.
        guard let evidence, observation.pool == nil else { return }
        cause = cause(over: evidence)
    }

    private func renewStacks(_ symbols: StallSymbols) {
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
    /// The turns of the loop, or the jobs of the pool, since its watch began. Nil for a loop that is watched from outside.
    fileprivate init?(_ stall: StallObservation) {
        guard let loop = stall.loop else { return nil }
        self.init(loop.heartbeat.turnHistogram.since(stall.lengthsBefore))
    }
}

/// Makes reports. Every version of a report is made completely from its case. Confined to the reporter's thread.
struct ReportComposer {
    let symbols: StallSymbols
    private let run: RunIdentity

    init(run: RunIdentity, ownCode: OwnCode) {
        (self.run, symbols) = (run, StallSymbols(run: run, ownCode: ownCode))
    }

    /// The report as of now.
    ///
    /// - Parameter cost: The stall's cost to the monitor. Nil: the cost of its stacks alone.
    func report(of stall: StallCase, _ cost: StallReport.MonitorCost? = nil) -> StallReport {
        let (seen, span, stacks) = (stall.observation, stall.span, stall.stacks)
        let process = symbols.process(of: seen)
        let locks = stall.locks(processID: process.pid)
        var report = StallReport(
            id: seen.reportID,
            kind: seen.kind,
            state: stall.state,
            severity: Severity(duration: span.length),
            startedAt: seen.clock.time(of: seen.span.earliestStart),
            detectedAt: seen.clock.time(of: seen.detectedAt),
            endedAt: stall.endedAt,
            durationNs: span.length.nanoseconds,
            durationMinNs: span.isExact ? nil : span.shortest.nanoseconds,
            durationMaxNs: span.isExact ? nil : span.longest.nanoseconds,
            excludedNs: span.excluded > .zero ? span.excluded.nanoseconds : nil,
            rule: seen.reportRule,
            host: run.host,
            service: seen.otherProcess?.service ?? run.service,
            process: process,
            watcher: seen.otherProcess.map { _ in run.process },
            run: run.id,
            watched: stall.watched,
            busy: stall.busy,
            pool: seen.pool.map { StallReport.Pool($0, stacks.workers, until: span.latestEnd) },
            victims: stall.findings.victims,
            thread: stacks.thread,
            cause: stall.cause(with: locks),
            stacks: locks?.kept(stacks.named.stacks) ?? stacks.named.stacks,
            culprit: stacks.named.culprit,
            modules: stacks.named.modules,
            fingerprint: stacks.fingerprint,
            isProvisional: stacks.named.culpritFrames.contains(where: \.isNamelessOwn) ? true : nil,
            suppressed: stall.repeats?.count ?? 0,
            repeats: stall.repeats,
            trace: stall.details.trace,
            metadata: stall.details.metadata,
            monitor: cost ?? stacks.cost
        )
        report.labels = stall.labels
        // Facts that follow from the report itself.
        let atCulprit = report.workersAtCulprit
        report.pool?.atCulprit = atCulprit
        report.cause.summary = stall.summary(of: report)
        report.monitor.symbolicationNote =
            report.missingNames ?? stacks.named.problems.first(where: \.isOfBudget)?.description
        return report
    }
}

extension StallCase {
    fileprivate var watched: StallReport.Watched {
        var watched = observation.watched
        watched.mode = observation.pulse.flatMap { observation.loop?.modeName(at: $0.modeIndex) }
        watched.turnDurations = turnDurations
        return watched
    }

    /// The lock that the thread waited for, and its owners.
    fileprivate func locks(processID: Int32) -> LockSummary? {
        let findings = findings
        return findings.lock(of: stacks.thread.id).map { lock in
            LockSummary(lock, stacks.named.stacks, processID: processID) { findings.descriptors(of: $0) }
                .relevant(to: cause, stacks.waits(of: stacks.thread.id).longestCall)
        }
    }

    /// The cause with the locks that the thread waited for. Without locks, the names on its stack show what it waited for.
    fileprivate func cause(with locks: LockSummary?) -> StallReport.Cause {
        if let locks, !locks.waits.isEmpty { return locks.cause(from: cause) }
        var cause = cause
        guard let found = findings.named, cause.verdict == .blocked else { return cause }
        cause.summary = found.sentence(stacks.waits(of: stacks.thread.id).longestCall)
        if found.databases.count == 1 { cause.systemCall?.descriptors = found.databases.map(\.reportedDescriptor) }
        return cause
    }

    /// One sentence about the workers of a pool, one about the thread, and one about what followed.
    fileprivate func summary(of report: StallReport) -> String {
        let crash = "Then the process crashed; the time that its crash handler took is not counted."
        let parts = [report.poolSentence, report.cause.summary, abort?.sentence, hasCrashed ? crash : nil]
        return parts.compactMap { $0 }.filter { !$0.isEmpty }.joined(separator: " ")
    }
}
