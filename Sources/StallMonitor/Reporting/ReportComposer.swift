import RunLoopKit
import StackCapture
import StallDetection
import StallDiagnosis
import StallReports
import Symbolication

/// Makes reports out of observations: names for addresses, the culprit, the cause. Confined to the reporter's thread.
struct ReportComposer {
    let run: RunIdentity
    private let symbolicator = Symbolicator()
    let ownCode: OwnCode

    init(run: RunIdentity, ownCode: OwnCode) {
        self.run = run
        self.ownCode = ownCode
    }

    /// The report of a stall that has just been proven.
    func report(of stall: StallObservation, _ findings: CaseFindings) -> StallReport {
        let clock = stall.clock
        var report = StallReport(
            id: stall.reportID,
            kind: stall.kind,
            startedAt: clock.time(of: stall.span.earliestStart),
            detectedAt: clock.time(of: stall.detectedAt),
            durationNs: 0,
            rule: stall.reportRule,
            host: run.host,
            service: stall.subject?.service ?? run.service,
            process: stall.subject?.identity ?? run.process,
            run: run.id,
            watched: watched(stall),
            busy: stall.busy,
            thread: .init(
                id: stall.threadID ?? 0,
                name: stall.evidence?.after.name,
                state: stall.evidence.map { String($0.after.state) }
            ),
            fingerprint: .make(kind: stall.kind, frames: [], modules: [])
        )
        report.victims = findings.victims
        report.watcher = stall.subject.map { _ in run.process }
        addStacks(findings, of: stall, to: &report)
        extend(&report, of: stall, by: stall.span)
        report.cause = cause(of: stall, findings, in: report, over: stall.evidence)
        tellLocks(of: findings, in: &report)
        report.tellPool()
        return report
    }

    /// What is not known of a loop that is watched from outside is left out.
    private func watched(_ stall: StallObservation) -> StallReport.Watched {
        var watched = StallReport.Watched(type: stall.watch.name.type, label: stall.watch.name.label)
        guard stall.subject == nil else { return watched }
        watched.mode = stall.loop.modeName(at: stall.pulse.modeIndex)
        watched.activity = stall.watch.name.type == .runLoop ? stall.pulse.phase.reportName : nil
        watched.turn = stall.pool == nil ? stall.pulse.turn : nil
        watched.turnDurations = .init(stall.loop.heartbeat.turnHistogram)
        return watched
    }

    /// Brings the length of a stall that goes on up to date.
    func extend(_ report: inout StallReport, of stall: StallObservation, by span: StallSpan) {
        report.durationNs = span.length.nanoseconds
        report.excludedNs = span.unproven > .zero ? span.unproven.nanoseconds : nil
        report.severity = Severity(duration: span.length)
        (report.durationMinNs, report.durationMaxNs) = span.isExact ? (nil, nil) : span.bounds
        if let pool = stall.pool { report.pool?.extend(pool, until: span.latestEnd) }
    }

    /// Brings stacks and culprit of a stall that goes on up to date.
    func retell(_ report: inout StallReport, of stall: StallObservation, _ findings: CaseFindings, by span: StallSpan) {
        addStacks(findings, of: stall, to: &report)
        extend(&report, of: stall, by: span)
        tellLocks(of: findings, in: &report)
        report.tellPool()
    }

    /// Closes the report of a stall that is over.
    func close(
        _ report: inout StallReport,
        of stall: StallObservation,
        _ findings: CaseFindings,
        by span: StallSpan,
        _ evidence: EvidenceWindow?
    ) {
        extend(&report, of: stall, by: span)
        report.state = .recovered
        report.watched.turnDurations = .init(stall.loop.heartbeat.turnHistogram) ?? report.watched.turnDurations
        report.endedAt = stall.clock.time(of: span.latestEnd, sleptUntilNow: true)
        // What the workers of a pool did since is not what the pool stood at.
        if let evidence, stall.pool == nil { report.cause = cause(of: stall, findings, in: report, over: evidence) }
        tellLocks(of: findings, in: &report)
        tellNamedWait(findings, of: stall, in: &report)
    }

    /// Names what was captured so far, and says who is the culprit.
    func addStacks(_ findings: CaseFindings, of stall: StallObservation, to report: inout StallReport) {
        let samples = findings.tally.samples
        let crew = stall.pool.map(Crew.init) ?? Crew()
        let (book, time) = ContinuousClock().timed {
            SymbolicatedStacks(
                samples,
                crew: crew,
                companions: companions(of: findings, stall.pool),
                thread: report.thread,
                clock: stall.clock,
                name: { resolve($0, in: stall.subject) },
                isOwn: { isOwn($0, $1, report) }
            )
        }
        report.stacks = book.stacks.isEmpty ? [missingStack(stall, report)] : book.stacks
        report.modules = book.modules
        report.culprit = book.culprit
        report.fingerprint = .make(
            kind: report.kind,
            fault: book.culpritFrames,
            modules: book.modules,
            executable: report.process.executable
        )
        let locks = [findings.lock].compactMap { $0 } + findings.locks
        report.monitor = cost(of: samples.map(\.stack.cost) + locks.flatMap(\.costs), naming: time)
        if let pool = stall.pool { tellWorkers(of: pool, findings, book, crew, in: &report) }
        if let others = stall.others {
            let told = report
            report.add(
                others,
                at: report.detectedAt,
                name: { resolve($0, in: stall.subject) },
                isOwn: { isOwn($0, $1, told) }
            )
        }
        report.isProvisional = book.culpritFrames.contains(where: \.isNamelessOwn) ? true : nil
        report.monitor.symbolicationNote =
            report.missingNames ?? book.problems.first(where: \.isOfBudget)?.description
    }

    /// The owners of locks, each once, without a pool's workers, whose stacks are there anyway.
    private func companions(of findings: CaseFindings, _ pool: PoolObservation?) -> [CompanionStack] {
        guard let pool else { return findings.lock?.companions ?? [] }
        var known = Set(pool.workers.map(\.job.threadID))
        return findings.locks.flatMap(\.companions).filter { known.insert($0.thread.id).inserted }
    }

    /// With the names that are known without any symbols: the loop's own.
    func resolve(_ addresses: [ResolvableAddress], in subject: OutsideProcess?) -> Resolution {
        if let subject { return subject.symbolicator.resolve(addresses, budget: .tool) }
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

    private func isOwn(_ frame: SymbolicatedFrame, _ module: LoadedModule?, _ report: StallReport) -> Bool {
        let executable = report.process.executable ?? ""
        if report.watcher != nil { return ownCode.isOwnOfAnyMake(frame, module: module, executable: executable) }
        return ownCode.isOwn(frame, module: module, executable: executable)
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
        let waits = waits(of: findings, report, stall.subject)
        // Of a pool, the one's at the culprit.
        let window = stall.pool.map { $0.evidence(of: report.thread.id) } ?? window
        let descriptors = waits.longestCall.map(findings.descriptors) ?? []
        let diagnosis = Diagnosis(
            window: window,
            state: (stall.pool == nil ? stall.evidence : window)?.after.state,
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
        guard let lock = findings.lock(of: report.thread.id) else { return }
        let account = LockSummary(lock, report.stacks, processID: report.process.pid) { findings.descriptors(of: $0) }
        account.tell(in: &report)
    }

    /// Says what the names on the stack made known of a wait.
    func tellNamedWait(_ findings: CaseFindings, of stall: StallObservation, in report: inout StallReport) {
        defer { report.tellPool() }
        guard let found = findings.named, report.cause.verdict == .blocked, report.cause.lock == nil else { return }
        report.cause.summary = found.sentence(waits(of: findings, report, stall.subject).longestCall)
        if found.databases.count == 1 { report.cause.systemCall?.descriptors = found.databases.map(\.told) }
    }

    /// What the thread was found at, with calls that a signal interrupted under the names they have on the stack.
    private func waits(of findings: CaseFindings, _ report: StallReport, _ subject: OutsideProcess?) -> WaitProfile {
        let samples = findings.tally.samples.filter { $0.threadID.map { $0 == report.thread.id } ?? true }
        return waits(of: samples, subject)
    }

    /// Likewise, of some of the samples.
    func waits(of samples: [StackSample], _ subject: OutsideProcess? = nil) -> WaitProfile {
        let names = subject?.symbolicator ?? symbolicator
        var samples = samples.weighted
        for index in samples.indices {
            guard let site = samples[index].sample.site, !site.continued.isEmpty else { continue }
            let innermost = samples[index].sample.stack.frames.prefix(3).map {
                ResolvableAddress(address: $0.address, isReturnAddress: $0.found != .register)
            }
            samples[index].sample.site = site.settled(by: names.resolve(innermost).frames.compactMap(\.symbol))
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

extension ContinuousClock {
    /// A result, and the time it took.
    func timed<Result>(_ work: () -> Result) -> (Result, Duration) {
        let start = now
        let result = work()
        return (result, now - start)
    }
}
