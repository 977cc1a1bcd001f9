import RunLoopKit
import StackCapture
import StallReports
import Symbolication

/// Makes reports out of observations: names for addresses, the culprit, the cause. Confined to the reporter's thread.
struct ReportComposer {
    let run: RunIdentity
    private let symbolicator = Symbolicator()
    private let ownCode: OwnCode

    init(run: RunIdentity, ownCode: OwnCode) {
        self.run = run
        self.ownCode = ownCode
    }

    /// The report of a stall that has just been proven.
    func report(of stall: StallObservation) -> StallReport {
        let clock = WallClockAnchor()
        var report = StallReport(
            id: stall.reportID,
            kind: .blocked,
            startedAt: clock.time(of: stall.span.earliestStart),
            detectedAt: clock.time(of: stall.detectedAt),
            durationNs: 0,
            rule: .init(name: .blocked, tickNs: stall.rule.tick.nanoseconds, ticks: stall.rule.ticks),
            host: run.host,
            service: run.service,
            process: run.process,
            run: run.id,
            watched: .init(
                type: stall.watch.name.type,
                label: stall.watch.name.label,
                mode: stall.loop.modeName(at: stall.pulse.modeIndex),
                activity: stall.pulse.phase.reportName,
                turn: stall.pulse.turn
            ),
            thread: .init(
                id: stall.threadID ?? 0,
                name: stall.evidence?.after.name,
                state: stall.evidence.map { String($0.after.state) }
            ),
            cause: cause(of: stall, over: stall.evidence),
            fingerprint: .make(kind: .blocked, frames: [], modules: [])
        )
        extend(&report, by: stall.span)
        addStacks(stall.allSamples, of: stall, to: &report)
        return report
    }

    /// Brings the length of a stall that goes on up to date.
    func extend(_ report: inout StallReport, by span: StallSpan) {
        report.durationNs = span.length.nanoseconds
        report.severity = Severity(duration: span.length)
        (report.durationMinNs, report.durationMaxNs) = span.isExact ? (nil, nil) : span.bounds
    }

    /// Closes the report of a stall that is over.
    func close(_ report: inout StallReport, of stall: StallObservation, by span: StallSpan, _ evidence: EvidenceWindow?)
    {
        extend(&report, by: span)
        report.state = .recovered
        report.endedAt = report.startedAt.advanced(byNanoseconds: span.longest.nanoseconds)
        if let evidence { report.cause = cause(of: stall, over: evidence) }
    }

    /// Names what was captured so far, and says who is the culprit.
    ///
    /// - Parameter samples: the detection's first; a stall that nobody could look at has none.
    func addStacks(_ samples: [StackSample], of stall: StallObservation, to report: inout StallReport) {
        let (book, time) = ContinuousClock().timed {
            Casebook(
                samples,
                thread: report.thread,
                clock: WallClockAnchor(),
                name: { symbolicator.resolve($0) },
                isOwn: { ownCode.isOwn($0, module: $1, executable: run.process.executable ?? "") }
            )
        }
        report.stacks = book.stacks.isEmpty ? [missingStack(stall, report)] : book.stacks
        report.modules = book.modules
        report.culprit = book.culprit
        report.fingerprint = .make(kind: report.kind, frames: book.culpritFrames, modules: book.modules)
        report.monitor = cost(of: samples, naming: time)
        report.monitor.symbolicationNote = book.problems.first(where: \.isOfBudget)?.description
    }

    private func missingStack(_ stall: StallObservation, _ report: StallReport) -> StallReport.Stack {
        let reason =
            switch stall.stack {
            case .captured: "The stack was empty."
            case .failed(let error): error.description
            case .raced: "The loop moved on before its stack was taken."
            case .unavailable(let reason): reason
            }
        return .init(thread: report.thread, capturedAt: report.detectedAt, complete: false, error: reason)
    }

    private func cause(of stall: StallObservation, over window: EvidenceWindow?) -> StallReport.Cause {
        let call = stall.allSamples.lazy.compactMap(\.stack.systemCall).first
        let diagnosis = Diagnosis(
            window: window,
            state: stall.evidence?.after.state,
            call: call,
            target: stall.descriptorTarget
        )
        return .init(
            verdict: diagnosis.verdict,
            summary: diagnosis.summary,
            systemCall: call.map(StallReport.SystemCall.init(_:)),
            evidence: window.map(StallReport.Evidence.init(_:))
        )
    }

    private func cost(of samples: [StackSample], naming: Duration) -> StallReport.MonitorCost {
        let costs = samples.map(\.stack.cost)
        return .init(
            heldNs: Int64(clamping: costs.reduce(0) { $0 + $1.heldNanoseconds }),
            unwindNs: Int64(clamping: costs.reduce(0) { $0 + $1.unwindNanoseconds }),
            symbolicationNs: naming.nanoseconds,
            copiedBytes: Int64(clamping: costs.reduce(0) { $0 + $1.bytesCopied })
        )
    }
}

extension StallObservation {
    /// The detection's stack, then the samples before it.
    var allSamples: [StackSample] {
        [stack.captured.map { StackSample(time: detectedAt, stack: $0) }].compactMap { $0 } + samples
    }
}
