import RunLoopKit
import StallReports

/// Makes the run record.
struct RunLog {
    private let run: RunIdentity
    private let ledger: WatchdogLedger
    private let meter: CostMeter
    private let notices: Mailbox<StallNotice>
    /// Names that were looked up, including those that were not found.
    private var names: [[UInt]: String?] = [:]
    private let symbols: StallSymbols
    /// The shortest job whose function is named: looking up a name costs far more than counting the job.
    private let longJob: Duration
    private var stalls: [String: Int64] = [:]
    /// Why the monitor has switched itself off.
    var disarmed: StallMonitorError?

    init(_ parts: EngineParts, _ symbols: StallSymbols) {
        (run, ledger, meter, notices) = (parts.run, parts.ledger, parts.meter, parts.notices)
        (longJob, self.symbols) = (parts.configuration.longJob, symbols)
    }

    mutating func count(_ kind: StallKind) {
        stalls[kind.rawValue, default: 0] += 1
    }

    /// The record as of now.
    mutating func entry(_ publisher: ReportPublisher) -> RunRecord {
        let (counts, now) = (ledger.snapshot, MonotonicInstant.now)
        let totals = counts.totals(at: now).sorted {
            ($0.key.label, $0.key.service ?? "") < ($1.key.label, $1.key.service ?? "")
        }
        let watched = totals.map { self.watched($0, $1) }
        var record = RunRecord(
            id: run.id,
            startedAt: run.startedAt,
            updatedAt: .now(),
            host: run.host,
            service: run.service,
            process: run.process,
            monitorVersion: StallMonitor.version,
            watched: watched,
            ticks: Int64(counts.looks),
            lateTicks: Int64(counts.lateLooks),
            stalls: stalls,
            raced: Int64(counts.raced),
            captureFailures: Int64(counts.captureFailures),
            lostWrites: publisher.lostWrites,
            cost: .init(captures: Int64(counts.captures), bytesWritten: publisher.bytesWritten)
        )
        record.updatedMonotonicNs = now.nanoseconds
        record.targets = counts.targets.isEmpty ? nil : counts.targets
        addPauses(counts, at: now, to: &record)
        addOwnCost(to: &record, publisher, counts)
        return record
    }

    private mutating func watched(_ name: WatchName, _ total: WatchdogLedger.WatchTotal) -> RunRecord.Watched {
        var watched = RunRecord.Watched(
            type: name.type,
            label: name.label,
            watchedNs: total.time.nanoseconds,
            turns: total.turns,
            turnDurations: .init(total.lengths)
        )
        (watched.service, watched.watching) = (name.service, total.underWay)
        guard name.type == .taskPool else { return watched }
        watched.jobLengths = RunRecord.LengthCount.of(total.lengths)
        watched.longestJob = total.lengths.longest >= longJob.nanoseconds ? self.name(of: total.longestFunctions) : nil
        return watched
    }

    private mutating func name(of functions: [UInt]) -> String? {
        guard !functions.isEmpty else { return nil }
        if let known = names[functions] { return known }
        let name = symbols.nameOfJob(at: functions)
        // There is one entry for each new longest job, so there are few.
        names[functions] = .some(name)
        return name
    }

    private func addPauses(_ counts: WatchdogLedger.Counts, at time: MonotonicInstant, to record: inout RunRecord) {
        let pauses = counts.pauses(until: time)
        (record.pauses, record.pauseLog) = (pauses.count, pauses.log)
        record.dismissed = Dictionary(uniqueKeysWithValues: counts.dismissed.map { ($0.rawValue, $1) })
        record.disarmed = disarmed?.message
    }

    /// The record of a run that has ended normally.
    mutating func lastEntry(_ publisher: ReportPublisher) -> RunRecord {
        var record = entry(publisher)
        record.state = .stopped
        record.stoppedAt = record.updatedAt
        return record
    }
}

extension RunLog {
    /// Adds what the monitor cost, how writing went, and the state of the budget.
    func addOwnCost(to record: inout RunRecord, _ publisher: ReportPublisher, _ counts: WatchdogLedger.Counts) {
        let totals = meter.totals
        record.cost.watchdogCPUNs = Int64(clamping: totals.watching)
        record.cost.heldNs = Int64(clamping: totals.held)
        record.cost.reporterCPUNs = Int64(clamping: totals.reporting)
        record.cost.writerCPUNs = Int64(clamping: totals.writing)
        record.cost.captureCPUNs = Int64(clamping: totals.capturing)
        record.cost.unwindNs = Int64(clamping: totals.unwinding)
        record.cost.symbolicationNs = Int64(clamping: totals.naming)
        record.cost.copiedBytes = Int64(clamping: totals.copiedBytes)
        record.writing = publisher.record
        let dropped = notices.dropped
        record.writing?.dropped = dropped.mapValues(Int64.init)
        record.writing?.noticePeakBytes = Int64(notices.peakBytes)
        record.lostWrites += Int64(dropped["stalls"] ?? 0)
        record.budget = counts.budget.map { RunRecord.Budget($0.upToDate(at: .now)) }
    }
}

extension RunRecord.Budget {
    fileprivate init(_ account: CostBudget.Account) {
        self.init(
            state: account.state.rawValue,
            since: WallClockAnchor().time(of: account.since),
            stops: Int64(account.stops),
            thinnedNs: account.thinned.nanoseconds,
            stoppedNs: account.stopped.nanoseconds,
            skippedSamples: Int64(account.skippedSamples),
            skippedStacks: Int64(account.skippedStacks)
        )
    }
}

/// When the run record is written. After a change: at once. After stalls that are only counted: at once after the first, then once a
/// second. The same holds for changes in what is watched, while there are many of them.
struct RecordPace {
    /// The latest time to write, even if nothing else happens. Nil if there is nothing to write.
    private(set) var deadline: MonotonicInstant?
    /// When to write what was only counted: a second after the last time.
    private var next = atOnce
    private static let atOnce = MonotonicInstant(nanoseconds: 0)
    /// Loops may come and go all the time. A record for each of them would keep the disk busy, and use up the bytes and the
    /// processor time that stalls' reports need.
    private var rate = RateLimit(perMinute: 30, burst: 30)

    /// Notes a change after which the record is always written at once. Samples, growth and stalls that are only counted do not count as changes.
    mutating func noteChange() { deadline = Self.atOnce }

    /// Notes that something was counted.
    mutating func noteCount() { deadline = deadline ?? next }

    /// Notes that what is watched has changed, or the monitor's state.
    mutating func noteChange(at time: MonotonicInstant) {
        guard rate.hasRoom(at: time) else { return noteCount() }
        rate.use(1, at: time)
        noteChange()
    }

    /// Whether to write now.
    func mustWrite(at time: MonotonicInstant) -> Bool { deadline.map { $0 <= time } ?? false }

    /// Notes that the record was written.
    mutating func wrote(at time: MonotonicInstant) { (deadline, next) = (nil, time + .seconds(1)) }
}
