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
    func report(of stall: StallObservation, _ findings: CaseFindings) -> StallReport {
        let clock = stall.clock
        var report = StallReport(
            id: stall.reportID,
            kind: stall.category.kind,
            startedAt: clock.time(of: stall.span.earliestStart),
            detectedAt: clock.time(of: stall.detectedAt),
            durationNs: 0,
            rule: stall.rule.reportRule(for: stall.category),
            host: run.host,
            service: run.service,
            process: run.process,
            run: run.id,
            watched: .init(
                type: stall.watch.name.type,
                label: stall.watch.name.label,
                mode: stall.loop.modeName(at: stall.pulse.modeIndex),
                activity: stall.pulse.phase.reportName,
                turn: stall.pulse.turn,
                turnDurations: .init(stall.loop.heartbeat.turnHistogram)
            ),
            busy: stall.busy,
            thread: .init(
                id: stall.threadID ?? 0,
                name: stall.evidence?.after.name,
                state: stall.evidence.map { String($0.after.state) }
            ),
            fingerprint: .make(kind: stall.category.kind, frames: [], modules: [])
        )
        extend(&report, by: stall.span)
        addStacks(findings, of: stall, to: &report)
        report.cause = cause(of: stall, findings, in: report, over: stall.evidence)
        tellLocks(of: findings, in: &report)
        return report
    }

    /// Brings the length of a stall that goes on up to date.
    func extend(_ report: inout StallReport, by span: StallSpan) {
        report.durationNs = span.length.nanoseconds
        report.excludedNs = span.unproven > .zero ? span.unproven.nanoseconds : nil
        report.severity = Severity(duration: span.length)
        (report.durationMinNs, report.durationMaxNs) = span.isExact ? (nil, nil) : span.bounds
    }

    /// Brings stacks and culprit of a stall that goes on up to date.
    func retell(_ report: inout StallReport, of stall: StallObservation, _ findings: CaseFindings) {
        addStacks(findings, of: stall, to: &report)
        tellLocks(of: findings, in: &report)
    }

    /// Closes the report of a stall that is over.
    func close(
        _ report: inout StallReport,
        of stall: StallObservation,
        _ findings: CaseFindings,
        by span: StallSpan,
        _ evidence: EvidenceWindow?
    ) {
        extend(&report, by: span)
        report.state = .recovered
        report.watched.turnDurations = .init(stall.loop.heartbeat.turnHistogram) ?? report.watched.turnDurations
        report.endedAt = stall.clock.time(of: span.latestEnd, sleptUntilNow: true)
        if let evidence { report.cause = cause(of: stall, findings, in: report, over: evidence) }
        tellLocks(of: findings, in: &report)
        tellNamedWait(findings, in: &report)
    }

    /// Names what was captured so far, and says who is the culprit.
    func addStacks(_ findings: CaseFindings, of stall: StallObservation, to report: inout StallReport) {
        let samples = findings.tally.samples
        let (book, time) = ContinuousClock().timed {
            Casebook(
                samples,
                companions: findings.lock?.companions ?? [],
                thread: report.thread,
                clock: stall.clock,
                name: resolve,
                isOwn: isOwn
            )
        }
        report.stacks = book.stacks.isEmpty ? [missingStack(stall, report)] : book.stacks
        report.modules = book.modules
        report.culprit = book.culprit
        report.fingerprint = .make(
            kind: report.kind,
            fault: book.culpritFrames,
            modules: book.modules,
            executable: run.process.executable
        )
        report.monitor = cost(of: samples.map(\.stack.cost) + (findings.lock?.costs ?? []), naming: time)
        if let others = stall.others {
            report.add(others, at: report.detectedAt, name: resolve, isOwn: isOwn)
        }
        report.isProvisional = book.culpritFrames.contains(where: \.isNamelessOwn) ? true : nil
        report.monitor.symbolicationNote =
            report.missingNames ?? book.problems.first(where: \.isOfBudget)?.description
    }

    /// With the names that are known without any symbols: the loop's own.
    private func resolve(_ addresses: [ResolvableAddress]) -> Resolution {
        var resolution = symbolicator.resolve(addresses)
        for (index, frame) in resolution.frames.enumerated() where frame.symbol == nil {
            guard let offset = frame.functionOffset,
                let name = CalloutFrames.name(ofFunctionAt: frame.address &- offset)
            else { continue }
            resolution.frames[index].symbol = name
            (resolution.frames[index].function, resolution.frames[index].language) = (name, .c)
        }
        return resolution
    }

    private func isOwn(_ frame: SymbolicatedFrame, _ module: LoadedModule?) -> Bool {
        ownCode.isOwn(frame, module: module, executable: run.process.executable ?? "")
    }

    private func missingStack(_ stall: StallObservation, _ report: StallReport) -> StallReport.Stack {
        let reason =
            switch stall.stack {
            case .captured: "The stack was empty."
            case .failed(let error): error.description
            case .raced: "The stall was over before it was looked at: the loop had moved on."
            case .unavailable(let reason): reason
            }
        return .init(thread: report.thread, capturedAt: report.detectedAt, complete: false, error: reason)
    }

    private func cause(
        of stall: StallObservation,
        _ findings: CaseFindings,
        in report: StallReport,
        over window: EvidenceWindow?
    ) -> StallReport.Cause {
        let waits = waits(of: findings)
        let descriptors = waits.longestCall.map(findings.descriptors) ?? []
        let diagnosis = Diagnosis(
            window: window,
            state: stall.evidence?.after.state,
            waits: waits,
            descriptors: descriptors,
            hottest: report.hottestFunction,
            wasSeen: !stall.isOverUnseen
        )
        let site = diagnosis.site ?? waits.longestCall
        return .init(
            verdict: diagnosis.verdict,
            summary: diagnosis.summary,
            systemCall: site.map { .init($0, findings.descriptors(of: $0)) },
            evidence: window.map { .init($0, waits) }
        )
    }

    /// Says whom the thread waited for. Last of all: it needs the names on the stacks, and decides for a deadlock.
    private func tellLocks(of findings: CaseFindings, in report: inout StallReport) {
        guard let lock = findings.lock else { return }
        let account = LockAccount(lock, report.stacks, processID: report.process.pid) { findings.descriptors(of: $0) }
        account.tell(in: &report)
    }

    /// Says what the names on the stack made known of a wait.
    func tellNamedWait(_ findings: CaseFindings, in report: inout StallReport) {
        guard let found = findings.named, report.cause.verdict == .blocked, report.cause.lock == nil else { return }
        report.cause.summary = found.sentence(waits(of: findings).longestCall)
        if found.databases.count == 1 { report.cause.systemCall?.descriptors = found.databases.map(\.told) }
    }

    /// What the thread was found at, with calls that a signal interrupted under the names they have on the stack.
    private func waits(of findings: CaseFindings) -> WaitProfile {
        var samples = findings.tally.samples.weighted
        for index in samples.indices {
            guard let site = samples[index].sample.site, !site.continued.isEmpty else { continue }
            let innermost = samples[index].sample.stack.frames.prefix(3).map {
                ResolvableAddress(address: $0.address, isReturnAddress: $0.found != .register)
            }
            samples[index].sample.site = site.settled(by: symbolicator.resolve(innermost).frames.compactMap(\.symbol))
        }
        return WaitProfile(samples)
    }

    private func cost(of costs: [CapturedStack.Cost], naming: Duration) -> StallReport.MonitorCost {
        .init(
            heldNs: Int64(clamping: costs.reduce(0) { $0 + $1.heldNanoseconds }),
            unwindNs: Int64(clamping: costs.reduce(0) { $0 + $1.unwindNanoseconds }),
            symbolicationNs: naming.nanoseconds,
            copiedBytes: Int64(clamping: costs.reduce(0) { $0 + $1.bytesCopied })
        )
    }
}

extension StallObservation {
    /// The loop had moved on before anybody took its stack.
    fileprivate var isOverUnseen: Bool { if case .raced = stack { samples.isEmpty } else { false } }

    /// The detection's stack, then the samples before it.
    var allSamples: [StackSample] {
        [stack.captured.map { StackSample(time: detectedAt, stack: $0, site: site) }].compactMap { $0 } + samples
    }
}
