import RunLoopKit
import StallReports

/// Who reports: the same in every report of one run.
struct RunIdentity: Sendable {
    let id: ULID
    let host: HostIdentity
    let service: ServiceIdentity
    let process: ProcessIdentity
    let startedAt: Timestamp

    /// The calling process. `service` nil: it is called what its executable is called.
    init(service: ServiceIdentity?) {
        id = .make()
        host = .current()
        process = .current()
        startedAt = .now()
        let executable = process.executable?.split(separator: "/").last.map(String.init)
        self.service = service ?? ServiceIdentity(name: executable ?? "unknown")
    }
}

/// The run record in the making.
struct RunLog {
    private let run: RunIdentity
    private let ledger: WatchdogLedger
    let meter: CostMeter
    let notices: Mailbox<StallNotice>
    private var stalls: [String: Int64] = [:]
    /// Why the monitor has switched itself off.
    var disarmed: StallMonitorError?

    init(run: RunIdentity, ledger: WatchdogLedger, meter: CostMeter, notices: Mailbox<StallNotice>) {
        self.meter = meter
        self.notices = notices
        self.run = run
        self.ledger = ledger
    }

    mutating func count(_ kind: StallKind) {
        stalls[kind.rawValue, default: 0] += 1
    }

    /// The record as of now.
    func entry(_ shelf: ReportShelf) -> RunRecord {
        let (counts, now) = (ledger.snapshot, MonotonicInstant.now)
        var record = RunRecord(
            id: run.id,
            startedAt: run.startedAt,
            updatedAt: .now(),
            host: run.host,
            service: run.service,
            process: run.process,
            monitorVersion: StallMonitor.version,
            watched: counts.totals(at: now).sorted { $0.key.label < $1.key.label }.map(Self.watched),
            ticks: Int64(counts.looks),
            lateTicks: Int64(counts.lateLooks),
            stalls: stalls,
            raced: Int64(counts.raced),
            captureFailures: Int64(counts.captureFailures),
            lostWrites: shelf.lostWrites,
            cost: .init(captures: Int64(counts.captures), bytesWritten: shelf.bytesWritten)
        )
        record.updatedMonotonicNs = now.nanoseconds
        addPauses(counts, to: &record)
        addOwnCost(to: &record, shelf, counts)
        return record
    }

    private static func watched(_ name: WatchName, _ total: WatchdogLedger.WatchTotal) -> RunRecord.Watched {
        var watched = RunRecord.Watched(
            type: name.type,
            label: name.label,
            watchedNs: total.time.nanoseconds,
            turns: total.turns,
            turnDurations: .init(total.lengths)
        )
        watched.watching = total.underWay
        return watched
    }

    private func addPauses(_ counts: WatchdogLedger.Counts, to record: inout RunRecord) {
        record.pauses = counts.pauses.count
        record.pauseLog = counts.pauses.log
        record.dismissed = Dictionary(uniqueKeysWithValues: counts.dismissed.map { ($0.rawValue, $1) })
        record.disarmed = disarmed?.message
    }

    /// The record of a run that has ended in order.
    func lastEntry(_ shelf: ReportShelf) -> RunRecord {
        var record = entry(shelf)
        record.state = .stopped
        record.stoppedAt = record.updatedAt
        return record
    }
}
