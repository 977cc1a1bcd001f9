import RunLoopKit
import StallDetection
import StallDiagnosis
import StallReports

/// The thread that turns the watchdog's notices into reports. All slow work happens here or later: symbols, disks, the server's
/// handler.
///
///     notice ──> known and repeated? only count it ──> name the stacks ──> find the cause ──> report ──> write, call the handler
struct Reporter: ~Copyable {
    private let notices: Mailbox<StallNotice>
    private let composer: ReportComposer
    let tell: @Sendable (StallEvent) -> Void
    private var publisher: ReportPublisher
    private var log: RunLog
    private let meter: CostMeter
    private let ledger: WatchdogLedger
    /// The thread's processor time when it began to handle the present notice, or when the handler has returned since.
    private var start: UInt64 = 0
    private let live: LiveBoard
    private let supply: SupplyLocation
    private let details: DetailsSource
    private let lookup: TimedLookup
    var throttle: ReportThrottle
    var held: [Int: HeldStall] = [:]
    var recordPace = RecordPace()
    /// The stalls that have a report and are not over, by number.
    private var open: [Int: StallCase] = [:]
    /// The stalls whose finished reports may still wait for the disk, oldest first. Until it has them, the record of ongoing stalls is the only trace
    /// of these that outlives the process.
    private var unwritten: [Int] = []

    /// - Parameter handler: Called with each event, on the reporter's thread. Its time does not count as the monitor's cost.
    init(_ parts: EngineParts, _ handler: @escaping @Sendable (StallEvent) -> Void) {
        let configuration = parts.configuration
        (notices, live, supply) = (parts.notices, parts.live, parts.supply)
        (meter, ledger) = (parts.meter, parts.ledger)
        lookup = TimedLookup(patience: configuration.lookupPatience)
        tell = meter.exempting(handler)
        composer = ReportComposer(run: parts.run, ownCode: configuration.ownCode)
        publisher = ReportPublisher(writer: parts.writer, tell: tell)
        log = RunLog(parts, composer.symbols)
        throttle = ReportThrottle(rule: configuration.repeats)
        details = DetailsSource(labels: configuration.metadata, ask: configuration.details)
    }

    /// The body of the thread. Returns when the mailbox is closed and all its notices are handled.
    consuming func run() {
        supply.search()
        publisher.prepare()
        publisher.put(log.entry(publisher))
        while let batch = notices.take(until: recordPace.deadline) {
            for notice in batch where publisher.hasTime(for: notice) { handle(notice) }
            meter.spent(.reporting)
            releaseWritten()
            if recordPace.mustWrite(at: .now) {
                publisher.put(withRepeats(log.entry(publisher)))
                recordPace.wrote(at: .now)
                live.note(waiting: publisher.waitingReports)
            }
        }
        publisher.settle()
        releaseWritten()
        publisher.put(withRepeats(log.lastEntry(publisher)))
        publisher.close()
    }

    private mutating func handle(_ notice: StallNotice) {
        start = ThreadClock.nanoseconds
        switch notice {
        case .checkpoint:
            supply.search()
            recordPace.noteChange(at: .now)
        case .adopt(let rule): throttle.adopt(rule)
        case .settled(let done): done()
        case .fault(let error): tell(.fault(error))
        case .mended(let error): tell(.mended(error))
        case .began(let observation): takeUp(observation)
        case .sampled(let number, let sample):
            open[number]?.add(sample, lookup)
            held[number]?.add(sample)
        case .grew(let number, let span): grow(number, span)
        case .counted(let number, let busy):
            open[number]?.busy = busy
            held[number]?.busy = busy
        case .crashing(let number): noteCrash(number)
        case .aborting(let number, let notice): write(notice, of: number)
        case .ended(let number, let span, let evidence, let state): end(number, span, evidence, as: state)
        case .disarmed(let error):
            log.disarmed = error
            recordPace.noteChange()
        }
    }

    /// Counts a stall that the watchdog has found, and begins its report unless its fault is only counted now.
    private mutating func takeUp(_ observation: StallObservation) {
        var observation = observation
        observation.watchdogCPU = observation.watchdogCPU ?? meter.totals.watching
        log.count(observation.kind)
        // A stall with a known stack can be counted without looking up symbols.
        if let known = throttle.fingerprint(ofKnown: observation), holdsBack(observation, known) { return }
        let stall = StallCase(observation, isOver: observation.isOver, lookup, composer.symbols)
        meter.named(in: stall.stacks.cost.symbolicationNs)
        guard !holdsBack(observation, stall.stacks.fingerprint) else { return }
        beginReport(of: stall, isOver: observation.isOver)
    }

    /// Begins a report of a stall that was only counted until now.
    private mutating func promote(_ held: HeldStall, isOver: Bool = false) {
        let stall = StallCase(held.observation, later: held.later, isOver: isOver, lookup, composer.symbols)
        stall.span = held.span
        stall.busy = held.busy ?? stall.busy
        beginReport(of: stall, isOver: isOver)
    }

    /// Makes the first version of a report.
    private mutating func beginReport(of stall: StallCase, isOver: Bool) {
        stall.explain(isOver ? nil : lookup)
        stall.repeats = throttle.begin(
            stall.observation.reportID,
            stall.firstFingerprint,
            from: stall.observation.origin,
            at: .now
        )
        throttle.note(stall.span.length, of: stall.firstFingerprint)
        addDetails(to: stall)
        open[stall.observation.number] = stall
        recordPace.noteChange()
        publish(stall) { .began($0) }
    }

    /// Adds the server's description of the stall. This process has no such data for tasks and threads of another process.
    private func addDetails(to stall: StallCase) {
        var report = composer.report(of: stall)
        let seen = stall.observation
        let work = seen.otherProcess == nil ? StalledWork(of: report, at: seen.detectedAt) : StalledWork()
        WorkTable.current.keep(work, ofStall: report.id)
        stall.labels = work.labels.isEmpty ? nil : work.labels
        report.labels = stall.labels
        stall.details = details.details(of: report, work, tell: tell)
    }

    private mutating func grow(_ number: Int, _ span: StallSpan) {
        guard let stall = open[number] else {
            if let stall = releaseHeld(number, span) { promote(stall) }
            return
        }
        stall.span = span
        // A stall that does not end also gets its later samples into the report, not only those from its beginning.
        stall.nameNewSamples(composer.symbols)
        throttle.note(span.length, of: stall.firstFingerprint)
        publish(stall) { .grew($0) }
    }

    /// Writes the report now, because the process ends soon.
    private mutating func noteCrash(_ number: Int) {
        open[number]?.hasCrashed = true
        if let stall = open[number] { publish(stall) { .grew($0) } }
    }

    /// Writes the report for a process that ends as soon as it is on disk.
    private mutating func write(_ notice: AbortNotice, of number: Int) {
        // This applies even if the fault was often reported before.
        if let stall = held.removeValue(forKey: number) { promote(stall) }
        open[number]?.add(notice, composer.symbols)
        guard let stall = open[number] else { return notice.noteWritten() }
        publish(stall, written: notice.noteWritten) { .grew($0) }
    }

    private mutating func end(
        _ number: Int,
        _ span: StallSpan,
        _ evidence: EvidenceWindow?,
        as state: StallState
    ) {
        if let stall = releaseHeld(number, span) { promote(stall, isOver: true) }
        guard let stall = open.removeValue(forKey: number) else {
            live.release(number)
            return countHeld(number)
        }
        stall.end(span, evidence, as: state, composer.symbols)
        meter.named(in: stall.stacks.cost.symbolicationNs)
        throttle.note(span.length, of: stall.firstFingerprint)
        let hadStack = stall.observation.stack.captured != nil
        throttle.rename(stall.firstFingerprint, stall.stacks.fingerprint, isLasting: hadStack)
        recordPace.noteChange()
        publish(stall) { .ended($0) }
        unwritten.append(number)
        releaseWritten()
    }

    /// Releases the stalls whose reports are finished, if none waits for the disk any more. The board keeps no more than its limit.
    private mutating func releaseWritten() {
        if publisher.waitingReports > 0 {
            unwritten.removeFirst(max(0, unwritten.count - LiveBoard.endedLimit))
        } else {
            for number in unwritten { live.release(number) }
            unwritten = []
        }
    }

    private mutating func publish(
        _ stall: StallCase,
        written: () -> Void = {},
        _ event: (StallReport) -> StallEvent
    ) {
        let cost = cost(of: stall)
        let report = composer.report(of: stall, cost)
        publisher.put(report)
        written()
        throttle.noteBytes(publisher.bytesWritten, at: .now)
        tell(event(report))
        start = ThreadClock.nanoseconds
    }

    /// What the stall has cost so far: its stacks, and the processor time of the watchdog and of this thread.
    private func cost(of stall: StallCase) -> StallReport.MonitorCost {
        let (now, watching) = (ThreadClock.nanoseconds, meter.totals.watching)
        stall.reporterCPU &+= now &- start
        var cost = stall.stacks.cost
        cost.watchdogCPUNs = Int64(clamping: watching &- min(watching, stall.observation.watchdogCPU ?? watching))
        cost.reporterCPUNs = Int64(clamping: stall.reporterCPU)
        let state = ledger.snapshot.budget?.state
        cost.budget = state == .full ? nil : state?.rawValue
        return cost
    }
}
