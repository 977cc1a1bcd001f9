import Foundation
import GRDB
public import StallReports

extension SQLiteStore {
    /// Reads the latest run record of each service on each host.
    public func latestRuns(team: String, since: Timestamp) async throws -> [LatestRun] {
        try await database.read { database in
            // With max() the other columns are those of the row with the maximum (sqlite.org/lang_select.html, "Bare columns").
            try Row.fetchAll(
                database,
                sql: """
                    SELECT service, release, host, max(updated) AS updated, running FROM run WHERE team = ? AND updated > ?
                    GROUP BY service, host
                    """,
                arguments: [team, since.sinceEpoch]
            ).map { LatestRun($0) }
        }
    }

    /// Reads the run records that became silent, and leaves out those whose process was replaced.
    public func silentRuns(team: String, since: Timestamp, before: Timestamp) async throws -> [LatestRun] {
        try await database.read { database in
            let silent = try Row.fetchAll(
                database,
                sql: """
                    SELECT service, release, host, updated, running FROM run WHERE team = ? AND updated > ? AND updated < ? AND running
                    ORDER BY service, host, updated
                    """,
                arguments: [team, since.sinceEpoch, before.sinceEpoch]
            ).map { LatestRun($0) }
            var left: [LatestRun] = []
            for runs in silent.chunked(by: { ($0.service, $0.host) == ($1.service, $1.host) }) {
                left += try Self.withoutSuccessor(runs, team, database)
            }
            return left
        }
    }

    /// Leaves out runs whose process was replaced. Each process that started on the same host after another one's last record
    /// replaces one such process.
    ///
    /// - Parameter runs: The runs of one service on one host, sorted by their last records.
    private static func withoutSuccessor(
        _ runs: ArraySlice<LatestRun>,
        _ team: String,
        _ database: Database
    ) throws -> [LatestRun] {
        guard let first = runs.first else { return [] }
        var starts = try Int64.fetchAll(
            database,
            sql:
                "SELECT started FROM run WHERE team = ? AND updated >= ? AND service = ? AND host = ? AND started >= ? ORDER BY started",
            arguments: [team, first.updatedAt.sinceEpoch, first.service, first.host, first.updatedAt.sinceEpoch]
        )[...]
        return runs.filter { run in
            starts = starts.drop { $0 < run.updatedAt.sinceEpoch }
            return starts.popFirst() == nil
        }
    }

    /// Finds new faults in the table `seen`.
    public func newFaults(
        team: String,
        services: [String],
        since: Timestamp,
        novelty: Novelty,
        limit: Int
    ) async throws -> [NewFault] {
        let chosen = services.isEmpty ? "" : " AND service IN (\(services.map { _ in "?" }.joined(separator: ", ")))"
        // Where each fault was first seen, by its current fingerprint.
        let known = """
            WITH known AS (
                SELECT service, release, coalesce(alias.fingerprint, seen.fingerprint) AS fingerprint, min(first) AS first
                FROM seen LEFT JOIN alias ON alias.team = seen.team AND alias.alias = seen.fingerprint
                WHERE seen.team = ?\(chosen) GROUP BY 1, 2, 3
            )
            """
        let question =
            switch novelty {
            case .service:
                """
                , past AS (SELECT service FROM known GROUP BY service HAVING min(first) < ?)
                SELECT service, '' AS release, fingerprint, min(first) AS first FROM known WHERE service IN (SELECT service FROM past)
                GROUP BY service, fingerprint HAVING min(first) >= ? ORDER BY 4, 3 LIMIT ?
                """
            case .release:
                """
                , begun AS (
                    SELECT service, release, lag(release) OVER (PARTITION BY service ORDER BY min(first), release) AS previous
                    FROM known WHERE release <> '' GROUP BY service, release
                )
                SELECT service, release, fingerprint, first FROM known JOIN begun USING (service, release)
                WHERE previous IS NOT NULL AND first >= ? AND NOT EXISTS (
                    SELECT 1 FROM known AS earlier WHERE earlier.service = known.service AND earlier.release = previous
                        AND earlier.fingerprint = known.fingerprint
                ) AND first >= ? ORDER BY 4, 3 LIMIT ?
                """
            }
        return try await database.read { database in
            try Row.fetchAll(
                database,
                sql: known + question,
                arguments: [team] + StatementArguments(services)
                    + [since.sinceEpoch, since.sinceEpoch, max(0, limit)]
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

extension LatestRun {
    fileprivate init(_ row: Row) {
        self.init(
            service: row["service"],
            release: row["release"],
            host: row["host"],
            updatedAt: Timestamp(sinceEpoch: row["updated"]),
            isRunning: row["running"]
        )
    }
}

extension Array {
    /// Groups adjacent elements that belong together.
    fileprivate func chunked(by belong: (Element, Element) -> Bool) -> [ArraySlice<Element>] {
        var (chunks, start): ([ArraySlice<Element>], Int) = ([], startIndex)
        for index in indices.dropFirst() where !belong(self[index - 1], self[index]) {
            chunks.append(self[start..<index])
            start = index
        }
        if start < endIndex { chunks.append(self[start...]) }
        return chunks
    }
}
