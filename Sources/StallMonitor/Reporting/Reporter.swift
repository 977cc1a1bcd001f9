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
    private var open: [Int: StallCase] = [:]

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
            open[number]?.add(sample, lookup)
            held[number]?.add(sample)
        case .grew(let number, let span): grow(number, span)
        case .counted(let number, let busy):
            open[number]?.busy = busy
            held[number]?.busy = busy
        case .crashing(let number): tellCrash(number)
        case .lastResort(let number, let words): write(words, of: number)
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
        let findings = CaseFindings(observation, lookup, isOver: isOver)
        let stall = StallCase(observation, findings, composer.stacks(of: observation, findings))
        expenses.named(stall.stacks)
        guard !holdsBack(observation, stall.stacks.fingerprint) else { return }
        begin(stall, isOver: isOver)
    }

    /// A stall that was held back is worth a report after all.
    private mutating func begin(_ held: HeldStall, isOver: Bool = false) {
        var findings = CaseFindings(held.observation, lookup, isOver: isOver)
        for sample in held.later { findings.add(sample, lookup) }
        var stall = StallCase(held.observation, findings, composer.stacks(of: held.observation, findings))
        stall.span = held.span
        stall.busy = held.busy ?? stall.busy
        begin(stall, isOver: isOver)
    }

    /// The first version of a report.
    private mutating func begin(_ stall: StallCase, isOver: Bool) {
        var stall = stall
        stall.findings.look(at: stall.stacks.named, isOver ? nil : lookup)
        stall.cause = composer.cause(of: stall, over: stall.observation.evidence)
        stall.repeats = throttle.begin(stall.observation.reportID, stall.firstFingerprint, at: .now)
        throttle.note(stall.span.length, of: stall.firstFingerprint)
        stall.details = details.details(of: composer.report(of: stall), tell: tell)
        open[stall.observation.number] = stall
        recordChanges += 1
        publish(stall) { .began($0) }
    }

    private mutating func grow(_ number: Int, _ span: StallSpan) {
        guard var stall = open[number] else {
            if let stall = releaseHeld(number, span) { begin(stall) }
            return
        }
        stall.span = span
        // A stall without end is told by its samples, too, and not by what was there when it was found.
        if stall.hasNewSamples { stall.stacks = composer.stacks(of: stall.observation, stall.findings) }
        open[number] = stall
        throttle.note(span.length, of: stall.firstFingerprint)
        publish(stall) { .grew($0) }
    }

    /// While there is time: the process ends soon.
    private mutating func tellCrash(_ number: Int) {
        open[number]?.hasCrashed = true
        if let stall = open[number] { publish(stall) { .grew($0) } }
    }

    /// The process ends as soon as the disk has it.
    private mutating func write(_ words: LastWords, of number: Int) {
        // However often it has been told of before.
        if let stall = held.removeValue(forKey: number) { begin(stall) }
        open[number]?.add(words)
        guard var stall = open[number] else { return words.noteWritten() }
        stall.stacks = composer.stacks(of: stall.observation, stall.findings)
        open[number] = stall
        publish(stall, written: words.noteWritten) { .grew($0) }
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
        stall.stacks = composer.stacks(of: stall.observation, stall.findings)
        stall.end(span, as: state)
        // What the workers of a pool did since is not what the pool stood at.
        if let evidence, stall.observation.pool == nil {
            stall.cause = composer.cause(of: stall, over: evidence)
            stall.hasCrashed = false
        }
        expenses.named(stall.stacks)
        throttle.note(span.length, of: stall.firstFingerprint)
        let hadStack = stall.observation.stack.captured != nil
        throttle.rename(stall.firstFingerprint, stall.stacks.fingerprint, isLasting: hadStack)
        recordChanges += 1
        publish(stall) { .ended($0) }
    }

    private mutating func publish(
        _ stall: StallCase,
        written: () -> Void = {},
        _ event: (StallReport) -> StallEvent
    ) {
        let report = composer.report(of: stall, expenses.cost(of: stall))
        publisher.put(report)
        written()
        throttle.noteBytes(publisher.bytesWritten, at: .now)
        tell(event(report))
    }
}
