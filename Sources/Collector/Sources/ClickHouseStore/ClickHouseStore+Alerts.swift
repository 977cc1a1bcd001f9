public import StallReports
public import StallStore

// Alerts, and what alert rules search for: monitors that became silent, and faults that are new.

extension ClickHouseStore {
    /// Reads one row of a server.
    public func check() async throws { _ = try await ask(["max(number)"], "FROM \(table("migration"))") }

    /// Reads the times of all run records.
    public func silentRuns(team: String, since: Timestamp, before: Timestamp) async throws -> [SilentRun] {
        let since = max(since.sinceEpoch, 0)
        let runs = try await ask(
            ["service", "release", "host", "toInt64(updated)", "started", "running"],
            "FROM \(table("run")) FINAL WHERE team = \(SQLLiteral.text(team)) AND day >= \(Hours.day(since)) AND updated > \(since)"
        ).map { row in
            KnownRun(
                SilentRun(
                    service: row.text(0),
                    release: row.text(1),
                    host: row.text(2),
                    updatedAt: Timestamp(sinceEpoch: try row.number(3))
                ),
                startedAt: Timestamp(sinceEpoch: try row.number(4)),
                isRunning: try row.number(5) != 0
            )
        }
        return KnownRun.silent(runs, before: before)
    }

    /// Finds new faults by when each service and release first had each fault.
    public func newFaults(
        team: String,
        services: [String],
        since: Timestamp,
        novelty: Novelty,
        limit: Int
    ) async throws -> [NewFault] {
        let end = max(since, Timestamp.now()).advanced(byNanoseconds: Hours.dayNs)
        var query = StallQuery(team: team, since: Timestamp(seconds: 0), until: end)
        query.services = services
        let known = KnownFaults(try await FaultQuestion(self, query).firsts())
        let found = novelty == .service ? known.newInService(since) : known.newInRelease(since)
        let sorted = found.sorted {
            ($0.firstAt, $0.fingerprint.rawValue) < ($1.firstAt, $1.fingerprint.rawValue)
        }
        return Array(sorted.prefix(max(0, limit)))
    }
}

/// When each service and release had each fault for the first time.
struct KnownFaults {
    struct First: Hashable, Sendable {
        var fingerprint: Fingerprint
        var service: String
        var release: String
        var firstAt: Timestamp
    }

    private let firsts: [First]

    init(_ firsts: [First]) { self.firsts = firsts }

    /// New faults of services that had stalls before them.
    func newInService(_ since: Timestamp) -> [NewFault] {
        let begun = Dictionary(firsts.map { ($0.service, $0.firstAt) }, uniquingKeysWith: min)
        let faults = firsts.map { (ServiceFault(service: $0.service, fingerprint: $0.fingerprint), $0.firstAt) }
        return Dictionary(faults, uniquingKeysWith: min).compactMap { fault, firstAt in
            guard firstAt >= since, let start = begun[fault.service], firstAt > start else { return nil }
            return NewFault(fingerprint: fault.fingerprint, service: fault.service, firstAt: firstAt)
        }
    }

    /// New faults of releases whose previous release did not have the fault.
    func newInRelease(_ since: Timestamp) -> [NewFault] {
        let previous = previousReleases
        let known = Set(
            firsts.map { ReleaseFault(service: $0.service, release: $0.release, fingerprint: $0.fingerprint) }
        )
        return firsts.filter { first in
            guard first.firstAt >= since, let before = previous[first.service]?[first.release] else { return false }
            let key = ReleaseFault(service: first.service, release: before, fingerprint: first.fingerprint)
            return !known.contains(key)
        }.map { NewFault(fingerprint: $0.fingerprint, service: $0.service, release: $0.release, firstAt: $0.firstAt) }
    }

    /// The previous release of each release, by service. Releases are in the order of their first stalls.
    private var previousReleases: [String: [String: String]] {
        var begun: [String: [String: Timestamp]] = [:]
        for first in firsts where !first.release.isEmpty {
            let known = begun[first.service]?[first.release]
            begun[first.service, default: [:]][first.release] = known.map { min($0, first.firstAt) } ?? first.firstAt
        }
        return begun.mapValues { releases in
            let order = releases.sorted { ($0.value, $0.key) < ($1.value, $1.key) }.map(\.key)
            return Dictionary(zip(order.dropFirst(), order), uniquingKeysWith: { first, _ in first })
        }
    }

    private struct ServiceFault: Hashable {
        var service: String
        var fingerprint: Fingerprint
    }

    private struct ReleaseFault: Hashable {
        var service: String
        var release: String
        var fingerprint: Fingerprint
    }
}

extension ClickHouseStore {
    /// Reads all alerts that are not removed.
    public func alerts() async throws -> [Alert] {
        try await ask(
            ["team", "rule", "subject", "text", "began", "ended", "told_begin", "told_end"],
            "FROM \(table("alert")) FINAL WHERE removed = 0 ORDER BY team, rule, subject"
        ).map { row in
            var alert = Alert(
                team: row.text(0),
                rule: row.text(1),
                subject: row.text(2),
                text: row.text(3),
                beganAt: Timestamp(sinceEpoch: try row.number(4))
            )
            let ended = try row.number(5)
            alert.endedAt = ended == Self.lasts ? nil : Timestamp(sinceEpoch: ended)
            (alert.toldBegin, alert.toldEnd) = (Alert.keys(row.text(6)), Alert.keys(row.text(7)))
            return alert
        }
    }

    /// Inserts new versions of all these alerts as one block. ClickHouse has no transactions: a reader sees the block completely
    /// or not at all.
    public func change(alerts: [Alert], removing done: [Alert]) async throws {
        var rows = TabbedRows(
            into: "\(table("alert")) (team, rule, subject, version, removed, text, began, ended, told_begin, told_end)"
        )
        // Changed alerts come after removed ones, as if one statement had followed the other.
        for (alerts, removed) in [(done, 1), (alerts, 0)] {
            for alert in alerts {
                for text in [alert.team, alert.rule, alert.subject] { rows.add(text) }
                rows.add(nextVersion())
                rows.add(removed)
                rows.add(alert.text)
                rows.add(alert.beganAt.sinceEpoch)
                rows.add(alert.endedAt?.sinceEpoch ?? Self.lasts)
                rows.add(Alert.text(alert.toldBegin))
                rows.add(Alert.text(alert.toldEnd))
                rows.endRow()
            }
        }
        try await insert(rows)
    }

    /// Means that an alert has not ended.
    private static let lasts: Int64 = -1
}
