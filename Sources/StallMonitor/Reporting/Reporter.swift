import RunLoopKit
import StallDetection
import StallDiagnosis
import StallReports

/// The thread that names, writes and tells what the watchdog found. Slow work ends here: names, disks, the server's handler.
struct Reporter: ~Copyable {
    private let notices: Mailbox<StallNotice>
    private let composer: ReportComposer
    let tell: @Sendable (StallEvent) -> Void
    private var publisher: ReportPublisher
    private var log: RunLog
    private var expenses: StallExpenses
    private let live: LiveBoard
    private let supply: SupplyLocation
    private let details: DetailsSource
    private let lookup = PatientLookup()
    var throttle: ReportThrottle
    var stackMemory = StackMemory()
    var held: [Int: HeldStall] = [:]
    var recordPace = RecordPace()
    /// What the run record is to tell of at once. Samples, growth and stalls that are only counted are not among it.
    private var recordChanges = 0
    private var open: [Int: Case] = [:]

    private struct Case {
        let observation: StallObservation
        var findings: CaseFindings
        var report: StallReport
        /// Samples came that the report does not tell of yet.
        var hasNewSamples = false
        /// At detection.
        let fingerprint: Fingerprint
    }

    init(
        notices: Mailbox<StallNotice>,
        composer: ReportComposer,
        publisher: ReportPublisher,
        log: RunLog,
        expenses: StallExpenses,
        throttle: ReportThrottle = .init(rule: .init()),
        details: DetailsSource = DetailsSource(),
        live: LiveBoard = LiveBoard(),
        supply: SupplyLocation = .init(),
        tell: @escaping @Sendable (StallEvent) -> Void
    ) {
        self.notices = notices
        self.composer = composer
        self.publisher = publisher
        self.log = log
        self.live = live
        self.supply = supply
        self.expenses = expenses
        self.throttle = throttle
        self.details = details
        self.tell = tell
    }

    /// The thread's life. Returns when the mailbox is closed and everything in it is written.
    consuming func run() {
        supply.search()
        publisher.tidy()
        publisher.put(log.entry(publisher))
        while let batch = notices.take(until: recordPace.deadline) {
            let before = recordChanges
            for notice in batch where publisher.hasTime(for: notice) { handle(notice) }
            expenses.settle()
            if recordChanges != before || recordPace.deadline.map({ $0 <= .now }) == true {
                publisher.put(withRepeats(log.entry(publisher)))
                recordPace.wrote(at: .now)
                live.note(waiting: publisher.waitingReports)
            }
        }
        publisher.settle()
        publisher.put(withRepeats(log.lastEntry(publisher)))
        publisher.close()
    }

    private mutating func handle(_ notice: StallNotice) {
        expenses.take(notice)
        switch notice {
        case .checkpoint:
            supply.search()
            recordChanges += 1
        case .settled(let done): done()
        case .fault(let error): tell(.fault(error))
        case .mended(let error): tell(.mended(error))
        case .began(let observation): begin(observation)
        case .sampled(let number, let sample):
            open[number]?.findings.add(sample, lookup)
            open[number]?.hasNewSamples = true
            held[number]?.add(sample)
        case .grew(let number, let span): grow(number, span)
        case .counted(let number, let busy):
            open[number]?.report.busy = busy
            held[number]?.busy = busy
        case .crashing(let number): tellCrash(number)
        case .ended(let number, let span, let evidence): end(number, span, evidence)
        case .abandoned(let number, let span, let evidence): end(number, span, evidence, as: .abandoned)
        case .died(let number, let span): end(number, span, nil, as: .terminated)
        case .disarmed(let error):
            log.disarmed = error
            recordChanges += 1
        }
    }

    private mutating func begin(_ observation: StallObservation) {
        log.count(observation.kind)
        guard !holdsBack(observation) else { return }
        // The loop had moved on before its stack could be taken: it waits no more.
        let isOver = if case .raced = observation.stack { true } else { false }
        var findings = CaseFindings(observation, lookup, isOver: isOver)
        let report = compose(observation, &findings, isOver: isOver)
        expenses.named(report)
        guard !holdsBack(observation, report.fingerprint) else { return }
        begin(report, of: observation, findings)
    }

    /// The report of a stall, with what the names on its stacks lead to.
    private func compose(
        _ observation: StallObservation,
        _ findings: inout CaseFindings,
        isOver: Bool
    ) -> StallReport {
        var report = composer.report(of: observation, findings)
        if findings.look(atNamesIn: report, isOver ? nil : lookup) {
            composer.tellNamedWait(findings, of: observation, in: &report)
        }
        return report
    }

    private mutating func begin(_ report: StallReport, of observation: StallObservation, _ findings: CaseFindings) {
        var report = report
        addRepeats(to: &report)
        details.complete(&report) { tell(.fault($0)) }
        open[observation.number] = Case(
            observation: observation,
            findings: findings,
            report: report,
            fingerprint: report.fingerprint
        )
        recordChanges += 1
        publish(report, observation.number) { .began($0) }
    }

    /// A stall that was held back is worth a report after all.
    private mutating func begin(_ stall: HeldStall, isOver: Bool = false) {
        var findings = CaseFindings(stall.observation, lookup, isOver: isOver)
        for sample in stall.later { findings.add(sample, lookup) }
        var report = compose(stall.observation, &findings, isOver: isOver)
        composer.extend(&report, of: stall.observation, by: stall.span)
        if let busy = stall.busy { report.busy = busy }
        begin(report, of: stall.observation, findings)
    }

    private mutating func grow(_ number: Int, _ span: StallSpan) {
        guard var stall = open[number] else {
            if let stall = releaseHeld(number, span) { begin(stall) }
            return
        }
        composer.extend(&stall.report, of: stall.observation, by: span)
        // A stall without end is told by its samples, too, and not by what was there when it was found.
        if stall.hasNewSamples { composer.retell(&stall.report, of: stall.observation, stall.findings, by: span) }
        stall.hasNewSamples = false
        open[number] = stall
        throttle.note(span.length, of: stall.fingerprint)
        publish(stall.report, number) { .grew($0) }
    }

    /// While there is time: the process ends soon.
    private mutating func tellCrash(_ number: Int) {
        guard var stall = open[number] else { return }
        stall.report.cause.summary += " Then the process crashed; the time that its crash handler took is not counted."
        open[number] = stall
        publish(stall.report, number) { .grew($0) }
    }

    private mutating func end(
        _ number: Int,
        _ span: StallSpan,
        _ evidence: EvidenceWindow?,
        as state: StallState = .recovered
    ) {
        if let stall = releaseHeld(number, span) { begin(stall, isOver: true) }
        defer {
            live.release(number)
            expenses.drop(number)
        }
        guard var stall = open.removeValue(forKey: number) else { return countHeld(number) }
        // The later samples may have shown that what looked like the culprit only came and went.
        composer.addStacks(stall.findings, of: stall.observation, to: &stall.report)
        composer.close(&stall.report, of: stall.observation, stall.findings, by: span, evidence)
        stall.report.state = state
        if state == .abandoned { stall.report.endedAt = nil }
        expenses.named(stall.report)
        throttle.note(span.length, of: stall.fingerprint)
        let hadStack = stall.observation.stack.captured != nil
        throttle.rename(stall.fingerprint, stall.report.fingerprint, isLasting: hadStack)
        recordChanges += 1
        publish(stall.report, number) { .ended($0) }
    }

    private mutating func publish(_ report: StallReport, _ number: Int, _ event: (StallReport) -> StallEvent) {
        var report = report
        expenses.note(on: &report, number)
        publisher.put(report)
        throttle.noteBytes(publisher.bytesWritten, at: .now)
        tell(event(report))
    }
}
