import StallReports

/// The thread that names, writes and tells what the watchdog found. Slow work ends here: names, disks, the server's handler.
struct Reporter: ~Copyable {
    private let notices: Mailbox<StallNotice>
    private let composer: ReportComposer
    private let tell: @Sendable (StallEvent) -> Void
    private var shelf: ReportShelf
    private var log: RunLog
    private let live: LiveBoard
    private var open: [Int: Case] = [:]

    private struct Case {
        let observation: StallObservation
        var samples: [StackSample]
        var report: StallReport
    }

    init(
        notices: Mailbox<StallNotice>,
        composer: ReportComposer,
        shelf: ReportShelf,
        log: RunLog,
        live: LiveBoard,
        tell: @escaping @Sendable (StallEvent) -> Void
    ) {
        self.notices = notices
        self.composer = composer
        self.shelf = shelf
        self.log = log
        self.live = live
        self.tell = tell
    }

    /// The thread's life. Returns when the mailbox is closed and everything in it is written.
    consuming func run() {
        shelf.tidy()
        shelf.put(log.entry(shelf))
        while let batch = notices.take() {
            for notice in batch { handle(notice) }
            // Samples and growth alone change nothing in it.
            if batch.contains(where: \.changesRunRecord) { shelf.put(log.entry(shelf)) }
        }
        shelf.put(log.lastEntry(shelf))
    }

    private mutating func handle(_ notice: StallNotice) {
        switch notice {
        case .checkpoint: break
        case .fault(let error): tell(.fault(error))
        case .began(let observation): begin(observation)
        case .sampled(let number, let stack): open[number]?.samples.append(stack)
        case .grew(let number, let span): grow(number, span)
        case .ended(let number, let span, let evidence): end(number, span, evidence)
        }
    }

    private mutating func begin(_ observation: StallObservation) {
        let report = composer.report(of: observation)
        open[observation.number] = Case(observation: observation, samples: observation.allSamples, report: report)
        log.count(report)
        publish(report, .began(report))
    }

    private mutating func grow(_ number: Int, _ span: StallSpan) {
        guard var stall = open[number] else { return }
        composer.extend(&stall.report, by: span)
        open[number] = stall
        publish(stall.report, .grew(stall.report))
    }

    private mutating func end(_ number: Int, _ span: StallSpan, _ evidence: EvidenceWindow?) {
        guard var stall = open.removeValue(forKey: number) else { return }
        composer.close(&stall.report, of: stall.observation, by: span, evidence)
        // The later samples may have shown that what looked like the culprit only came and went.
        composer.addStacks(stall.samples, of: stall.observation, to: &stall.report)
        publish(stall.report, .ended(stall.report))
        live.release(number)
    }

    private mutating func publish(_ report: StallReport, _ event: StallEvent) {
        shelf.put(report)
        tell(event)
    }
}

extension StallNotice {
    fileprivate var changesRunRecord: Bool {
        switch self {
        case .began, .ended, .checkpoint: true
        case .grew, .sampled, .fault: false
        }
    }
}
