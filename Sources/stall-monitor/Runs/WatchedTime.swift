import StallReading
import StallReports

/// What was watched, and how much of that time was blocked: a row for each run of a monitor, each host, or each loop. Pure.
struct WatchedTime {
    enum Grouping: String, CaseIterable, Encodable { case run, host, loop }

    /// The rows' keys: what one row is about.
    private enum Key: Hashable {
        case run(ULID?)
        case host(String)
        case loop(service: String?, label: String?, WatchedType?)
    }

    /// Stalls that are in the same row.
    private struct Group: Hashable {
        let traits: Shared<OutlineTraits>.Identity
        let origin: Shared<OutlineOrigin>.Identity
    }

    private let grouping: Grouping
    private var rows: [WatchedRow] = []
    private var indices: [Key: Int] = [:]
    private var groups: [Group: Int] = [:]
    /// For each run, the service that it watched, unless its loops have services of their own.
    private let services: [ULID: String]

    /// - Parameter overview: The directories' contents, whether they match or not.
    init(_ overview: ReportReader.Overview, _ selection: StallSelection, by grouping: Grouping) {
        self.grouping = grouping
        let known = overview.runs.compactMap { run in run.commonService.map { (run.id, $0) } }
        services = Dictionary(known) { first, _ in first }
        let names = selection.fingerprints.isEmpty ? nil : FaultNames(overview.stalls)
        let traits = FaultTraits(overview.stalls, for: selection)
        let chosen = overview.chosen(by: selection, counting: .whole)
        for run in chosen.runs {
            add(run)
            // Counted stalls are left out if nobody can tell whether they match, as in a list of faults. All of them together show that: of
            // a part of them, the longest's length is a guess.
            for fault in run.repeated ?? []
            where fault.membership(in: selection, names: names, traits: traits) == .wanted {
                let row = index(of: run, fault.label, fault.type, run.service(of: fault))
                rows[row].add(selection.part(of: fault).repeats)
            }
        }
        for stall in chosen.stalls { add(selection.part(of: stall)) }
    }

    /// Runs in the order of their start; hosts and loops by the blocked share of their time, the greatest first.
    var sorted: [WatchedRow] {
        rows.map(\.withShare).sorted { left, right in
            if grouping == .run, left.startedAt != right.startedAt {
                // Those of which only stalls are left come first.
                guard let start = left.startedAt, let other = right.startedAt else { return left.startedAt == nil }
                return start < other
            }
            let shares = (left.share ?? 0, right.share ?? 0)
            if shares.0 != shares.1 { return shares.0 > shares.1 }
            return (right.totalNs, left.order) < (left.totalNs, right.order)
        }
    }

    private mutating func add(_ run: RunRecord) {
        var seen: Set<Int> = []
        // A run that watched no loop has a row, too: that is why there are no stalls.
        if grouping != .loop {
            let row = index(of: run, nil, nil, nil)
            rows[row].runs += 1
            seen.insert(row)
        }
        for loop in run.watched {
            let row = index(of: run, loop.label, loop.type, run.service(of: loop))
            if seen.insert(row).inserted { rows[row].runs += 1 }
            rows[row].add(loop)
        }
    }

    private mutating func add(_ stall: StallOutline) {
        let group = Group(traits: .init(stall.traits), origin: .init(stall.origin))
        let row = groups[group] ?? index(of: stall)
        groups[group] = row
        rows[row].add(stall)
    }

    /// - Parameter ofLoop: The loop's service. Nil: the run's.
    private mutating func index(
        of run: RunRecord,
        _ label: String?,
        _ type: WatchedType?,
        _ ofLoop: String?
    ) -> Int {
        let service = ofLoop ?? services[run.id]
        return switch grouping {
        case .run: index(of: .run(run.id), WatchedRow(run))
        case .host: index(of: .host(run.host.name), WatchedRow(host: run.host.name))
        case .loop:
            index(
                of: .loop(service: service, label: label, type),
                WatchedRow(service: service, label: label, type: type)
            )
        }
    }

    private mutating func index(of stall: StallOutline) -> Int {
        // Older records of watchers from outside name programs only, their reports the process. A stall is in the row of its loop.
        let service = stall.run.flatMap { services[$0] } ?? stall.service
        return switch grouping {
        case .run:
            index(
                of: .run(stall.run),
                WatchedRow(run: stall.run, host: stall.host, service: service, release: stall.release)
            )
        case .host: index(of: .host(stall.host), WatchedRow(host: stall.host))
        case .loop:
            index(
                of: .loop(service: service, label: stall.label, stall.type),
                WatchedRow(service: service, label: stall.label, type: stall.type)
            )
        }
    }

    private mutating func index(of key: Key, _ row: @autoclosure () -> WatchedRow) -> Int {
        if let index = indices[key] { return index }
        rows.append(row())
        indices[key] = rows.count - 1
        return rows.count - 1
    }
}

/// The sums of a run, of a host, or of all loops of one service that have the same label.
struct WatchedRow: Encodable {
    var run: ULID?
    var state: RunRecord.State?
    var startedAt: Timestamp?
    /// When it stopped, or last gave a sign of life. Nil while it is running.
    var endedAt: Timestamp?
    var pid: Int32?
    var host: String?
    var service: String?
    var release: String?
    var label: String?
    var type: WatchedType?
    var runs = 0
    var loops = 0
    /// The watched time of all these loops.
    var watchedNs: Int64 = 0
    /// The number of turns, or of a pool's jobs. Nil if it is not known, as for a part of a run.
    var turns: UInt64?
    /// The highest 99th percentile of a run.
    var p99TurnNs: Int64?
    var maxTurnNs: Int64?
    /// The part of the watched time in which turns were counted.
    private var countedNs: Int64 = 0
    /// Including those that were only counted.
    var stalls: Int64 = 0
    var totalNs: Int64 = 0
    var longestNs: Int64 = 0

    /// The blocked share of the watched time, from 0. Nil if nothing was watched.
    var share: Double?

    var turnsPerSecond: Double? {
        turns.flatMap { countedNs > 0 ? Double($0) / (Double(countedNs) / 1_000_000_000) : nil }
    }

    fileprivate var withShare: WatchedRow {
        var row = self
        row.share = watchedNs > 0 ? min(1, Double(totalNs) / Double(watchedNs)) : nil
        return row
    }

    /// The order of equal rows.
    fileprivate var order: String {
        [run?.description, host, service, label, type?.rawValue].map { $0 ?? "" }.joined(separator: "\n")
    }

    init(
        run: ULID? = nil,
        host: String? = nil,
        service: String? = nil,
        release: String? = nil,
        label: String? = nil,
        type: WatchedType? = nil
    ) {
        (self.run, self.host, self.service, self.release) = (run, host, service, release)
        (self.label, self.type) = (label, type)
    }

    init(_ record: RunRecord) {
        (run, state, startedAt, pid) = (record.id, record.state, record.startedAt, record.process.pid)
        endedAt = record.state == .running ? nil : record.stoppedAt ?? record.updatedAt
        (host, service, release) = (
            record.host.name, record.watchedService, record.targets == nil ? record.service?.version : nil
        )
    }

    mutating func add(_ loop: RunRecord.Watched) {
        loops += 1
        watchedNs = watchedNs.addingSaturated(max(0, loop.watchedNs))
        if let count = loop.turns {
            turns = (turns ?? 0).addingSaturated(count)
            countedNs = countedNs.addingSaturated(max(0, loop.watchedNs))
        }
        guard let lengths = loop.turnDurations else { return }
        p99TurnNs = max(p99TurnNs ?? 0, lengths.p99Ns)
        maxTurnNs = max(maxTurnNs ?? 0, lengths.maxNs)
    }

    mutating func add(_ stall: StallOutline) {
        add(count: 1, totalNs: stall.durationNs, longestNs: stall.durationNs)
        if let repeats = stall.repeats {
            add(repeats)
        } else {
            add(count: stall.suppressed, totalNs: 0, longestNs: 0)
        }
    }

    mutating func add(_ repeats: StallReport.Repeats) {
        add(count: repeats.count, totalNs: repeats.totalNs, longestNs: repeats.longestNs)
    }

    private mutating func add(count: Int, totalNs: Int64, longestNs: Int64) {
        stalls = stalls.addingSaturated(Int64(clamping: max(0, count)))
        self.totalNs = self.totalNs.addingSaturated(max(0, totalNs))
        self.longestNs = max(self.longestNs, longestNs)
    }

    private enum CodingKeys: String, CodingKey {
        case run, state, pid, host, service, release, label, type, runs, loops, turns, stalls, share
        case startedAt = "started_at"
        case endedAt = "ended_at"
        case watchedNs = "watched_ns"
        case p99TurnNs = "p99_turn_ns"
        case maxTurnNs = "max_turn_ns"
        case totalNs = "total_ns"
        case longestNs = "longest_ns"
    }
}
