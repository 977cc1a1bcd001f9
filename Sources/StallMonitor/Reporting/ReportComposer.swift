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
        let thread = StallReport.Thread(
            id: stall.threadID ?? 0,
            name: stall.evidence?.after.name,
            state: stall.evidence.map { String($0.after.state) }
        )
        let (named, symbolication) = ContinuousClock().timed { frames(of: stall.stack) }
        let culprit = culprit(in: named)
        var report = StallReport(
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
                type: WatchedType(rawValue: stall.watch.type),
                label: stall.watch.label,
                mode: stall.modeName,
                activity: stall.pulse.phase.reportName,
                turn: stall.pulse.turn
            ),
            thread: thread,
            cause: cause(of: stall, over: stall.evidence),
            stacks: [stack(stall.stack, named, thread, clock.time(of: stall.detectedAt))],
            culprit: culprit,
            modules: named.modules,
            fingerprint: .make(kind: .blocked, frames: named.frames, modules: named.modules),
            monitor: cost(of: stall.stack, symbolication)
        )
        extend(&report, by: stall.span)
        return report
    }

    /// Brings the length of a stall that goes on up to date.
    func extend(_ report: inout StallReport, by span: StallSpan) {
        report.durationNs = span.longest.nanoseconds
        report.severity = Severity(duration: span.longest)
        (report.durationMinNs, report.durationMaxNs) = span.isExact ? (nil, nil) : span.bounds
    }

    /// Closes the report of a stall that is over.
    func close(_ report: inout StallReport, of stall: StallObservation, by span: StallSpan, _ evidence: EvidenceWindow?)
    {
        extend(&report, by: span)
        report.state = .recovered
        report.startedAt = WallClockAnchor().time(of: span.earliestStart)
        report.endedAt = report.startedAt.advanced(byNanoseconds: span.longest.nanoseconds)
        if let evidence { report.cause = cause(of: stall, over: evidence) }
    }

    private func cause(of stall: StallObservation, over window: EvidenceWindow?) -> StallReport.Cause {
        let call = stall.stack.captured?.systemCall
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

    private func stack(
        _ outcome: StackOutcome,
        _ named: NamedFrames,
        _ thread: StallReport.Thread,
        _ time: Timestamp
    ) -> StallReport.Stack {
        var stack = StallReport.Stack(thread: thread, capturedAt: time, complete: false, frames: named.frames)
        switch outcome {
        case .captured(let captured):
            stack.method = captured.method == .quiet ? .quiet : .signal
            stack.complete = captured.isComplete
            stack.error = captured.truncation?.sentence
        case .failed(let error): stack.error = error.description
        case .raced: stack.error = "The loop moved on before its stack was taken."
        case .unavailable(let reason): stack.error = reason
        }
        return stack
    }

    private func cost(of stack: StackOutcome, _ symbolication: Duration) -> StallReport.MonitorCost {
        guard let cost = stack.captured?.cost else { return .init() }
        return .init(
            heldNs: Int64(clamping: cost.heldNanoseconds),
            unwindNs: Int64(clamping: cost.unwindNanoseconds),
            symbolicationNs: symbolication.nanoseconds,
            copiedBytes: Int64(clamping: cost.bytesCopied)
        )
    }

    // MARK: Names

    private struct NamedFrames {
        var frames: [StallReport.Frame] = []
        var modules: [StallReport.Module] = []
        var swiftModules: [String?] = []
    }

    private func frames(of outcome: StackOutcome) -> NamedFrames {
        guard let stack = outcome.captured else { return NamedFrames() }
        let (resolved, modules) = symbolicator.resolve(
            stack.frames.map { ResolvableAddress(address: $0.address, isReturnAddress: $0.found != .register) }
        )
        let frames = zip(stack.frames, resolved).map { raw, frame in
            StallReport.Frame(
                address: Address(UInt64(frame.address)),
                module: frame.moduleIndex,
                offset: frame.moduleIndex.map { _ in Address(UInt64(frame.moduleOffset)) },
                function: frame.function,
                symbol: frame.symbol,
                functionOffset: frame.functionOffset.map { Address(UInt64($0)) },
                own: ownCode.isOwn(
                    frame,
                    module: frame.moduleIndex.map { modules[$0] },
                    executable: run.process.executable ?? ""
                ),
                foundBy: raw.found.origin
            )
        }
        return NamedFrames(
            frames: frames,
            modules: modules.map { .init(path: $0.path, buildID: $0.buildID, loadBase: Address(UInt64($0.loadBase))) },
            swiftModules: resolved.map(\.swiftModule)
        )
    }

    /// The innermost own frame; where nothing is own, the innermost that has a name.
    private func culprit(in named: NamedFrames) -> StallReport.Culprit? {
        let frames = named.frames
        guard let index = frames.firstIndex(where: \.own) ?? frames.firstIndex(where: { $0.function != nil }) else {
            return nil
        }
        return .init(
            function: frames[index].function,
            symbol: frames[index].symbol,
            module: named.swiftModules[index],
            stack: 0,
            frame: index
        )
    }
}
