import RunLoopKit
import StallReports

/// The thread that names, writes and tells what the watchdog found. Slow work ends here: names, disks, the server's handler.
struct Reporter: ~Copyable {
    private let notices: Mailbox<StallNotice>
    private let composer: ReportComposer
    let tell: @Sendable (StallEvent) -> Void
    private var shelf: ReportShelf
    private var log: RunLog
    var throttle: ReportThrottle
    var stackMemory = StackMemory()
    var held: [Int: HeldStall] = [:]
    var recordPace = RecordPace()
    /// What the run record is to tell of at once. Samples, growth and stalls that are only counted are not among it.
    private var recordChanges = 0
    private var open: [Int: Case] = [:]

    private struct Case {
        let observation: StallObservation
        var samples: [StackSample]
        var report: StallReport
        /// At detection.
        let fingerprint: Fingerprint
    }

    init(
        notices: Mailbox<StallNotice>,
        composer: ReportComposer,
        shelf: ReportShelf,
        log: RunLog,
        throttle: ReportThrottle,
        tell: @escaping @Sendable (StallEvent) -> Void
    ) {
        self.notices = notices
        self.composer = composer
        self.shelf = shelf
        self.log = log
        self.throttle = throttle
        self.tell = tell
    }

    /// The thread's life. Returns when the mailbox is closed and everything in it is written.
    consuming func run() {
        shelf.tidy()
        shelf.put(log.entry(shelf))
        while let batch = notices.take(until: recordPace.deadline) {
            let before = recordChanges
            for notice in batch { handle(notice) }
            if recordChanges != before || recordPace.deadline.map({ $0 <= .now }) == true {
                shelf.put(withRepeats(log.entry(shelf)))
                recordPace.wrote(at: .now)
            }
        }
        shelf.put(withRepeats(log.lastEntry(shelf)))
    }

    private mutating func handle(_ notice: StallNotice) {
        switch notice {
        case .checkpoint: recordChanges += 1
        case .fault(let error): tell(.fault(error))
        case .began(let observation): begin(observation)
        case .sampled(let number, let stack):
            open[number]?.samples.append(stack)
            held[number]?.samples.append(stack)
        case .grew(let number, let span): grow(number, span)
        case .ended(let number, let span, let evidence): end(number, span, evidence)
        }
    }

    private mutating func begin(_ observation: StallObservation) {
        log.count(observation.kind)
        guard !holdsBack(observation) else { return }
        let report = composer.report(of: observation)
        guard !holdsBack(observation, report.fingerprint) else { return }
        begin(report, of: observation, observation.allSamples)
    }

    private mutating func begin(_ report: StallReport, of observation: StallObservation, _ samples: [StackSample]) {
        var report = report
        addRepeats(to: &report)
        open[observation.number] = Case(
            observation: observation,
            samples: samples,
            report: report,
            fingerprint: report.fingerprint
        )
        recordChanges += 1
        publish(report, .began(report))
    }

    /// A stall that was held back is worth a report after all.
    private mutating func begin(_ stall: HeldStall) {
        var report = composer.report(of: stall.observation)
        composer.extend(&report, by: stall.span)
        begin(report, of: stall.observation, stall.samples)
    }

    private mutating func grow(_ number: Int, _ span: StallSpan) {
        guard var stall = open[number] else {
            if let stall = releaseHeld(number, span) { begin(stall) }
            return
        }
        composer.extend(&stall.report, by: span)
        open[number] = stall
        throttle.note(span.length, of: stall.fingerprint)
        publish(stall.report, .grew(stall.report))
    }

    private mutating func end(_ number: Int, _ span: StallSpan, _ evidence: EvidenceWindow?) {
        if let stall = releaseHeld(number, span) { begin(stall) }
        guard var stall = open.removeValue(forKey: number) else { return countHeld(number) }
        composer.close(&stall.report, of: stall.observation, by: span, evidence)
        // The later samples may have shown that what looked like the culprit only came and went.
        composer.addStacks(stall.samples, of: stall.observation, to: &stall.report)
        throttle.note(span.length, of: stall.fingerprint)
        throttle.rename(stall.fingerprint, stall.report.fingerprint)
        recordChanges += 1
        publish(stall.report, .ended(stall.report))
    }

    private mutating func publish(_ report: StallReport, _ event: StallEvent) {
        shelf.put(report)
        throttle.noteBytes(shelf.bytesWritten, at: .now)
        tell(event)
    }
}
