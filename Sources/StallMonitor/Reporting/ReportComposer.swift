import RunLoopKit
import StallDetection
import StallDiagnosis
import StallReports
import Symbolication

/// Makes the report of a case: each version of it as a whole, by ``report(of:_:)``. What takes long, names and the cause, is found out before
/// and kept in the case. Confined to the reporter's thread.
struct ReportComposer {
    let run: RunIdentity
    let symbolicator = Symbolicator()
    let ownCode: OwnCode

    init(run: RunIdentity, ownCode: OwnCode) {
        (self.run, self.ownCode) = (run, ownCode)
    }

    /// The report as of now.
    ///
    /// - Parameter cost: what the stall has cost the monitor; that of its stacks alone unless given.
    func report(of stall: StallCase, _ cost: StallReport.MonitorCost? = nil) -> StallReport {
        let (seen, span, stacks) = (stall.observation, stall.span, stall.stacks)
        let locks = locks(of: stall)
        let bounds: (min: Int64?, max: Int64?) = span.isExact ? (nil, nil) : span.bounds
        var report = StallReport(
            id: seen.reportID,
            kind: seen.kind,
            state: stall.state,
            severity: Severity(duration: span.length),
            startedAt: seen.clock.time(of: seen.span.earliestStart),
            detectedAt: seen.clock.time(of: seen.detectedAt),
            endedAt: stall.endedAt,
            durationNs: span.length.nanoseconds,
            durationMinNs: bounds.min,
            durationMaxNs: bounds.max,
            rule: seen.reportRule,
            host: run.host,
            service: seen.subject?.service ?? run.service,
            process: process(of: seen),
            run: run.id,
            watched: watched(stall),
            busy: stall.busy,
            pool: seen.pool.map { StallReport.Pool($0, stacks.workers, until: span.latestEnd) },
            thread: stacks.thread,
            cause: cause(of: stall, locks),
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
        report.excludedNs = span.unproven > .zero ? span.unproven.nanoseconds : nil
        report.victims = stall.findings.victims
        report.watcher = seen.subject.map { _ in run.process }
        let atCulprit = report.workersAtCulprit
        report.pool?.atCulprit = atCulprit
        report.cause.summary = summary(stall, report)
        report.monitor.symbolicationNote =
            report.missingNames ?? stacks.named.problems.first(where: \.isOfBudget)?.description
        return report
    }

    /// Who stalled: this process, or another one that is watched from outside.
    func process(of stall: StallObservation) -> ProcessIdentity { stall.subject?.identity ?? run.process }

    /// What is not known of a loop that is watched from outside is left out.
    private func watched(_ stall: StallCase) -> StallReport.Watched {
        let seen = stall.observation
        var watched = StallReport.Watched(type: seen.watch.name.type, label: seen.watch.name.label)
        guard seen.subject == nil else { return watched }
        watched.mode = seen.loop.modeName(at: seen.pulse.modeIndex)
        watched.activity = seen.watch.name.type == .runLoop ? seen.pulse.phase.reportName : nil
        watched.turn = seen.pool == nil ? seen.pulse.turn : nil
        watched.turnDurations = stall.turnDurations
        return watched
    }

    // The cause

    /// Why the thread stood, as far as it shows by itself.
    ///
    /// - Parameter window: what the kernel has counted. Of a pool, that of the worker at the culprit is taken instead.
    func cause(of stall: StallCase, over window: EvidenceWindow?) -> StallReport.Cause {
        let (seen, findings, thread) = (stall.observation, stall.findings, stall.stacks.thread.id)
        let waits = stall.stacks.waits(of: thread)
        let window = seen.pool.map { $0.evidence(of: thread) } ?? window
        let diagnosis = Diagnosis(
            window: window,
            state: (seen.pool == nil ? seen.evidence : window)?.after.state,
            waits: waits,
            descriptors: waits.longestCall.map(findings.descriptors) ?? [],
            hottest: stall.stacks.named.stacks.hottestFunction,
            wasSeen: !seen.isOverUnseen
        )
        let site = diagnosis.site ?? waits.longestCall
        return .init(
            verdict: diagnosis.verdict,
            summary: diagnosis.summary,
            systemCall: site.map { .init($0, findings.descriptors(of: $0)) },
            evidence: window.map { .init($0, waits) }
        )
    }

    /// Whom the thread waited for.
    private func locks(of stall: StallCase) -> LockSummary? {
        stall.findings.lock(of: stall.stacks.thread.id).map { lock in
            LockSummary(lock, stall.stacks.named.stacks, processID: process(of: stall.observation).pid) {
                stall.findings.descriptors(of: $0)
            }
        }
    }

    /// The thread's own, with the locks it waited for, or else with what the names on its stack say that it waited for.
    private func cause(of stall: StallCase, _ locks: LockSummary?) -> StallReport.Cause {
        if let locks { return locks.cause(from: stall.cause) }
        var cause = stall.cause
        guard let found = stall.findings.named, cause.verdict == .blocked else { return cause }
        cause.summary = found.sentence(stall.stacks.waits(of: stall.stacks.thread.id).longestCall)
        if found.databases.count == 1 { cause.systemCall?.descriptors = found.databases.map(\.told) }
        return cause
    }

    /// What is said of a pool's workers, then of the thread, then of what came after.
    private func summary(_ stall: StallCase, _ report: StallReport) -> String {
        let crash = "Then the process crashed; the time that its crash handler took is not counted."
        let parts = [
            report.poolSentence, report.cause.summary, stall.lastWords?.sentence, stall.hasCrashed ? crash : nil,
        ]
        return parts.compactMap { $0 }.filter { !$0.isEmpty }.joined(separator: " ")
    }
}
