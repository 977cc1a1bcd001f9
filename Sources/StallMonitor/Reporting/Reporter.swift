import StallReports

/// The thread that names, writes and tells what the watchdog found. Slow work ends here: names, disks, the server's handler.
struct Reporter: ~Copyable {
    private let notices: Mailbox<StallNotice>
    private let composer: ReportComposer
    private let tell: @Sendable (StallEvent) -> Void
    private var shelf: ReportShelf
    private var record: RunLog
    private var open: [Int: (observation: StallObservation, report: StallReport)] = [:]

    init(
        notices: Mailbox<StallNotice>,
        composer: ReportComposer,
        shelf: ReportShelf,
        record: RunLog,
        tell: @escaping @Sendable (StallEvent) -> Void
    ) {
        self.notices = notices
        self.composer = composer
        self.shelf = shelf
        self.record = record
        self.tell = tell
    }

    /// The thread's life. Returns when the mailbox is closed and everything in it is written.
    consuming func run() {
        shelf.tidy()
        shelf.put(record.entry(lostWrites: shelf.lostWrites))
        while let batch = notices.take() {
            for notice in batch { handle(notice) }
            shelf.put(record.entry(lostWrites: shelf.lostWrites))
        }
        shelf.put(record.lastEntry(lostWrites: shelf.lostWrites))
    }

    private mutating func handle(_ notice: StallNotice) {
        switch notice {
        case .checkpoint:
            break
        case .began(let observation):
            let report = composer.report(of: observation)
            open[observation.number] = (observation, report)
            record.count(report)
            publish(report, .began(report))
        case .grew(let number, let span, _):
            guard var report = open[number]?.report else { return }
            composer.extend(&report, by: span)
            open[number]?.report = report
            publish(report, .grew(report))
        case .ended(let number, let span, let evidence):
            guard let stall = open.removeValue(forKey: number) else { return }
            var report = stall.report
            composer.close(&report, of: stall.observation, by: span, evidence)
            publish(report, .ended(report))
        }
    }

    private mutating func publish(_ report: StallReport, _ event: StallEvent) {
        shelf.put(report)
        tell(event)
    }
}
