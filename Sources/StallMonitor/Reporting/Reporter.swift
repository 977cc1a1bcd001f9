import StallReports

/// The thread that names, writes and tells what the watchdog found. Slow work ends here: names, disks, the server's handler.
struct Reporter: ~Copyable {
    private let notices: Mailbox<StallNotice>
    private let composer: ReportComposer
    private let tell: @Sendable (StallEvent) -> Void
    private var shelf: ReportShelf
    private var log: RunLog
    private var expenses: StallExpenses
    private let supply: SupplyLocation
    private let lookup = PatientLookup()
    private var open: [Int: Case] = [:]

    private struct Case {
        let observation: StallObservation
        var findings: CaseFindings
        var report: StallReport
    }

    init(
        notices: Mailbox<StallNotice>,
        composer: ReportComposer,
        shelf: ReportShelf,
        log: RunLog,
        expenses: StallExpenses,
        supply: SupplyLocation = .init(),
        tell: @escaping @Sendable (StallEvent) -> Void
    ) {
        self.notices = notices
        self.composer = composer
        self.shelf = shelf
        self.log = log
        self.supply = supply
        self.expenses = expenses
        self.tell = tell
    }

    /// The thread's life. Returns when the mailbox is closed and everything in it is written.
    consuming func run() {
        supply.search()
        shelf.tidy()
        shelf.put(log.entry(shelf))
        while let batch = notices.take() {
            for notice in batch where shelf.hasTime(for: notice) { handle(notice) }
            expenses.settle()
            // Samples and growth alone change nothing in it.
            if batch.contains(where: \.changesRunRecord) { shelf.put(log.entry(shelf)) }
        }
        shelf.settle()
        shelf.put(log.lastEntry(shelf))
        shelf.close()
    }

    private mutating func handle(_ notice: StallNotice) {
        expenses.take(notice)
        switch notice {
        case .checkpoint: supply.search()
        case .fault(let error): tell(.fault(error))
        case .mended(let error): tell(.mended(error))
        case .began(let observation): begin(observation)
        case .sampled(let number, let stack): open[number]?.findings.add(stack, lookup)
        case .grew(let number, let span): grow(number, span)
        case .counted(let number, let busy): open[number]?.report.busy = busy
        case .ended(let number, let span, let evidence): end(number, span, evidence)
        case .abandoned(let number, let span, let evidence): end(number, span, evidence, isAbandoned: true)
        case .disarmed(let error): log.disarmed = error
        }
    }

    private mutating func begin(_ observation: StallObservation) {
        let findings = CaseFindings(observation, lookup)
        let report = composer.report(of: observation, findings)
        expenses.named(report)
        open[observation.number] = Case(observation: observation, findings: findings, report: report)
        log.count(report)
        publish(report, observation.number) { .began($0) }
    }

    private mutating func grow(_ number: Int, _ span: StallSpan) {
        guard var stall = open[number] else { return }
        composer.extend(&stall.report, by: span)
        open[number] = stall
        publish(stall.report, number) { .grew($0) }
    }

    private mutating func end(
        _ number: Int,
        _ span: StallSpan,
        _ evidence: EvidenceWindow?,
        isAbandoned: Bool = false
    ) {
        guard var stall = open.removeValue(forKey: number) else { return }
        // The later samples may have shown that what looked like the culprit only came and went.
        composer.addStacks(stall.findings, of: stall.observation, to: &stall.report)
        composer.close(&stall.report, of: stall.observation, stall.findings, by: span, evidence)
        if isAbandoned { (stall.report.state, stall.report.endedAt) = (.abandoned, nil) }
        expenses.named(stall.report)
        publish(stall.report, number) { .ended($0) }
    }

    private mutating func publish(_ report: StallReport, _ number: Int, _ event: (StallReport) -> StallEvent) {
        var report = report
        expenses.note(on: &report, number)
        shelf.put(report)
        tell(event(report))
    }
}

extension StallNotice {
    fileprivate var changesRunRecord: Bool {
        switch self {
        case .began, .ended, .abandoned, .checkpoint, .disarmed: true
        case .grew, .counted, .sampled, .fault, .mended: false
        }
    }
}
