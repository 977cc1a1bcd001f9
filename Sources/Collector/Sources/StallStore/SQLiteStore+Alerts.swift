internal import Foundation
internal import GRDB
public import StallReports

extension SQLiteStore {
    public func latestRuns(team: String, since: Timestamp) async throws -> [LatestRun] {
        try await database.read { database in
            // Beside max() the other columns are those of the row that has it (sqlite.org/lang_select.html, "Bare columns").
            try Row.fetchAll(
                database,
                sql: """
                    SELECT service, release, host, max(updated) AS updated, running FROM run WHERE team = ? AND updated > ?
                    GROUP BY service, host
                    """,
                arguments: [team, since.sinceEpoch]
            ).map { row in
                LatestRun(
                    service: row["service"],
                    release: row["release"],
                    host: row["host"],
                    updatedAt: Timestamp(sinceEpoch: row["updated"]),
                    isRunning: row["running"]
                )
            }
        }
    }

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
                alert.toldBegin = Self.names(row["told_begin"])
                alert.toldEnd = Self.names(row["told_end"])
                return alert
            }
        }
    }

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
                        alert.endedAt?.sinceEpoch, Self.text(alert.toldBegin), Self.text(alert.toldEnd),
                    ]
                )
            }
        }
    }

    /// Names have no line breaks in them.
    private static func text(_ names: Set<String>) -> String { names.sorted().joined(separator: "\n") }
    private static func names(_ text: String) -> Set<String> { Set(text.split(separator: "\n").map(String.init)) }
}
