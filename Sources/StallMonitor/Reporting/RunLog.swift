import RunLoopKit
import StallDetection
import StallReports

/// The run record in the making.
struct RunLog {
    private let run: RunIdentity
    private let ledger: WatchdogLedger
    let meter: CostMeter
    let notices: Mailbox<StallNotice>
    /// Names that were looked for, also in vain.
    private var names: [[UInt]: String?] = [:]
    private let nameOfJob: ([UInt]) -> String?
    /// A job as long as this is worth a name: to look for one costs far more than to count it.
    private let longJob: Duration
    private var stalls: [String: Int64] = [:]
    /// Why the monitor has switched itself off.
    var disarmed: StallMonitorError?

    /// - Parameters:
    ///   - longJob: how long the longest of a pool's jobs is at least for its function to be named.
    ///   - nameOfJob: a function of the source, by where the job began and who awaited that.
    init(
        run: RunIdentity,
        ledger: WatchdogLedger,
        meter: CostMeter,
        notices: Mailbox<StallNotice>,
        longJob: Duration = StallRule().threshold,
        nameOfJob: @escaping ([UInt]) -> String? = { _ in nil }
    ) {
        (self.longJob, self.nameOfJob) = (longJob, nameOfJob)
        self.meter = meter
        self.notices = notices
        self.run = run
        self.ledger = ledger
    }

    mutating func count(_ kind: StallKind) {
        stalls[kind.rawValue, default: 0] += 1
    }

    /// The record as of now.
    mutating func entry(_ publisher: ReportPublisher) -> RunRecord {
        let (counts, now) = (ledger.snapshot, MonotonicInstant.now)
        let watched = counts.totals(at: now).sorted { $0.key.label < $1.key.label }.map { self.watched($0, $1) }
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
        addPauses(counts, to: &record)
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
        watched.watching = total.underWay
        guard name.type == .taskPool else { return watched }
        watched.jobLengths = RunRecord.LengthCount.of(total.lengths)
        watched.longestJob = total.lengths.longest >= longJob.nanoseconds ? self.name(of: total.longestFunctions) : nil
        return watched
    }

    private mutating func name(of functions: [UInt]) -> String? {
        guard !functions.isEmpty else { return nil }
        if let known = names[functions] { return known }
        let name = nameOfJob(functions)
        // There are as many as there were longest jobs, each longer than the one before.
        names[functions] = .some(name)
        return name
    }

    private func addPauses(_ counts: WatchdogLedger.Counts, to record: inout RunRecord) {
        record.pauses = counts.pauses.count
        record.pauseLog = counts.pauses.log
        record.dismissed = Dictionary(uniqueKeysWithValues: counts.dismissed.map { ($0.rawValue, $1) })
        record.disarmed = disarmed?.message
    }

    /// The record of a run that has ended in order.
    mutating func lastEntry(_ publisher: ReportPublisher) -> RunRecord {
        var record = entry(publisher)
        record.state = .stopped
        record.stoppedAt = record.updatedAt
        return record
    }
}

extension RunLog {
    /// What the monitor cost, how writing went, and what became of the budget.
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
