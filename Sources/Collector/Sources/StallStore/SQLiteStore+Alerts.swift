import Foundation
import GRDB
public import StallReports

extension SQLiteStore {
    /// Reads the times of all run records.
    public func silentRuns(team: String, since: Timestamp, before: Timestamp) async throws -> [SilentRun] {
        let runs = try await database.read { database in
            try Row.fetchAll(
                database,
                sql: "SELECT service, release, host, updated, started, running FROM run WHERE team = ? AND updated > ?",
                arguments: [team, since.sinceEpoch]
            ).map { KnownRun($0) }
        }
        return KnownRun.silent(runs, before: before)
    }

    /// Finds new faults in the tables `seen` and `counted`.
    public func newFaults(
        team: String,
        services: [String],
        since: Timestamp,
        novelty: Novelty,
        limit: Int
    ) async throws -> [NewFault] {
        let sql = Self.newFaults(novelty, serviceCount: services.count)
        return try await database.read { database in
            try Row.fetchAll(
                database,
                sql: sql,
                arguments: [team, team] + StatementArguments(services)
                    + [since.sinceEpoch, max(0, limit)]
            ).compactMap { row in
                guard let fingerprint = Fingerprint(rawValue: row["fingerprint"]) else { return nil }
                return NewFault(
                    fingerprint: fingerprint,
                    service: row["service"],
                    release: row["release"],
                    firstAt: Timestamp(sinceEpoch: row["first"])
                )
            }
        }
    }

    /// A query for rows `service, release, fingerprint, first`. Its arguments are the team twice, the services, the moment, and the limit.
    ///
    /// - Parameter serviceCount: 0: it is about all services.
    private static func newFaults(_ novelty: Novelty, serviceCount: Int) -> String {
        let marks = Array(repeating: "?", count: serviceCount).joined(separator: ", ")
        let chosen = serviceCount == 0 ? "" : " AND service IN (\(marks))"
        // When each service and release first had each fault, by its current fingerprint.
        let known = """
            WITH written AS (
                SELECT team, service, release, fingerprint, first FROM seen WHERE team = ?
                UNION ALL SELECT team, service, release, fingerprint, first FROM counted WHERE team = ?
            ), known AS (
                SELECT service, release, coalesce(alias.fingerprint, written.fingerprint) AS fingerprint, min(first) AS first
                FROM written LEFT JOIN alias ON alias.team = written.team AND alias.alias = written.fingerprint
                WHERE true\(chosen) GROUP BY 1, 2, 3
            )
            """
        let question =
            switch novelty {
            case .service:
                """
                , begun AS (SELECT service, min(first) AS start FROM known GROUP BY service)
                SELECT service, '' AS release, fingerprint, min(first) AS first FROM known JOIN begun USING (service)
                GROUP BY service, fingerprint HAVING min(first) >= ? AND min(first) > start ORDER BY 4, 3 LIMIT ?
                """
            case .release:
                """
                , begun AS (
                    SELECT service, release, lag(release) OVER (PARTITION BY service ORDER BY min(first), release) AS previous
                    FROM known WHERE release <> '' GROUP BY service, release
                )
                SELECT service, release, fingerprint, first FROM known JOIN begun USING (service, release)
                WHERE previous IS NOT NULL AND NOT EXISTS (
                    SELECT 1 FROM known AS earlier WHERE earlier.service = known.service AND earlier.release = previous
                        AND earlier.fingerprint = known.fingerprint
                ) AND first >= ? ORDER BY 4, 3 LIMIT ?
                """
            }
        return known + question
    }

    /// Reads the alerts, sorted by team, rule and subject.
    public func alerts() async throws -> [Alert] {
        try await database.read { database in
            try Row.fetchAll(database, sql: "SELECT * FROM alert ORDER BY team, rule, subject").map { row in
                var alert = Alert(
                    team: row["team"],
                    rule: row["rule"],
                    subject: row["subject"],
                    text: row["text"],
                    beganAt: Timestamp(sinceEpoch: row["began"])
                )
                alert.endedAt = (row["ended"] as Int64?).map { Timestamp(sinceEpoch: $0) }
                alert.toldBegin = Alert.keys(row["told_begin"])
                alert.toldEnd = Alert.keys(row["told_end"])
                return alert
            }
        }
    }

    /// Writes and removes alerts in one transaction.
    public func change(alerts: [Alert], removing done: [Alert]) async throws {
        if alerts.isEmpty, done.isEmpty { return }
        try await database.write { database in
            for alert in done {
                try database.execute(
                    sql: "DELETE FROM alert WHERE team = ? AND rule = ? AND subject = ?",
                    arguments: [alert.team, alert.rule, alert.subject]
                )
            }
            for alert in alerts {
                try database.execute(
                    sql: """
                        INSERT OR REPLACE INTO alert (team, rule, subject, text, began, ended, told_begin, told_end)
                        VALUES (?, ?, ?, ?, ?, ?, ?, ?)
                        """,
                    arguments: [
                        alert.team, alert.rule, alert.subject, alert.text, alert.beganAt.sinceEpoch,
                        alert.endedAt?.sinceEpoch, Alert.text(alert.toldBegin), Alert.text(alert.toldEnd),
                    ]
                )
            }
        }
    }
}

extension KnownRun {
    fileprivate init(_ row: Row) {
        self.init(
            SilentRun(
                service: row["service"],
                release: row["release"],
                host: row["host"],
                updatedAt: Timestamp(sinceEpoch: row["updated"])
            ),
            startedAt: Timestamp(sinceEpoch: row["started"]),
            isRunning: row["running"]
        )
    }
}
