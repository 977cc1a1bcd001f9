import RunLoopKit
import StallDetection
import StallDiagnosis
import StallReports
import Symbolication

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
        report.labels = stall.details.labels.isEmpty ? nil : stall.details.labels
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
    /// Leaves out what is unknown of a loop that is watched from outside.
    fileprivate var watched: StallReport.Watched {
        let seen = observation
        var watched = StallReport.Watched(type: seen.watch.name.type, label: seen.watch.name.label)
        guard seen.otherProcess == nil else { return watched }
        watched.mode = seen.loop.modeName(at: seen.pulse.modeIndex)
        watched.activity = seen.watch.name.type == .runLoop ? seen.pulse.phase.reportName : nil
        watched.turn = seen.pool == nil ? seen.pulse.turn : nil
        watched.turnDurations = turnDurations
        return watched
    }

    /// The lock that the thread waited for, and its owners.
    fileprivate func locks(processID: Int32) -> LockSummary? {
        findings.lock(of: stacks.thread.id).map { lock in
            LockSummary(lock, stacks.named.stacks, processID: processID) { findings.descriptors(of: $0) }
        }
    }

    /// The cause with the locks that the thread waited for. Without locks, the names on its stack show what it waited for.
    fileprivate func cause(with locks: LockSummary?) -> StallReport.Cause {
        if let locks { return locks.cause(from: cause) }
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
