import GRDB
import StallReports

/// Removes old rows of a team within one transaction.
struct SQLiteRemoval {
    let database: Database
    let team: String

    /// Removes some rows of stalls and runs from before the hour. When no such rows are left, removes the sums too.
    ///
    /// - Returns: The number of removed stalls, and whether everything is removed.
    func remove(beforeHour hour: Int64, limit: Int) throws -> (stalls: Int, isDone: Bool) {
        let end = hour.multipliedSaturated(by: Hours.hourNs)
        var usage = SQLiteUsage()
        let stalls = try removeStalls(before: end, limit, &usage)
        let runs = stalls < limit ? try removeRuns(before: end, limit, &usage) : 0
        try usage.write(database)
        guard stalls < limit, runs < limit else { return (stalls, false) }
        try run(
            "DELETE FROM fault_hour WHERE team = :team AND service IN (\(Self.each("service", in: "fault_hour"))) AND hour < :hour",
            ["hour": hour]
        )
        try run("DELETE FROM counted WHERE team = :team AND last < :end", ["end": end])
        try run("DELETE FROM seen WHERE team = :team AND last < :end", ["end": end])
        try sumHosts(ofDayOf: end)
        return (stalls, true)
    }

    /// The different values of the column that follows the team in a table's key, each found by one search. With them, what is older than a
    /// moment is found by the key, so that no other index has to be written with each report.
    private static func each(_ column: String, in table: String) -> String {
        """
        WITH RECURSIVE each (value) AS (
            SELECT min(\(column)) FROM \(table) WHERE team = :team
            UNION ALL SELECT (SELECT min(\(column)) FROM \(table) WHERE team = :team AND \(column) > value) FROM each WHERE value IS NOT NULL
        ) SELECT value FROM each WHERE value IS NOT NULL
        """
    }

    private func removeStalls(before end: Int64, _ limit: Int, _ usage: inout SQLiteUsage) throws -> Int {
        // In a file that was recovered from a damaged one, reports may be missing: their stalls are removed, too.
        let rows = try Row.fetchAll(
            database,
            sql: """
                SELECT number, coalesce(length(report), 0) AS bytes FROM stall LEFT JOIN body USING (number)
                WHERE team = ? AND started < ? ORDER BY started LIMIT ?
                """,
            arguments: [team, end, limit]
        )
        for row in rows {
            let number: Int64 = row["number"]
            try database.cachedStatement(sql: "DELETE FROM stall WHERE number = ?").execute(arguments: [number])
            try database.cachedStatement(sql: "DELETE FROM body WHERE number = ?").execute(arguments: [number])
            usage.add(team, bytes: -(row["bytes"] as Int), stalls: -1)
        }
        return rows.count
    }

    private func removeRuns(before end: Int64, _ limit: Int, _ usage: inout SQLiteUsage) throws -> Int {
        let rows = try Row.fetchAll(
            database,
            sql:
                "SELECT id, length(body) AS bytes FROM run WHERE team = ? AND updated < ? ORDER BY updated LIMIT ?",
            arguments: [team, end, limit]
        )
        for row in rows {
            let id: String = row["id"]
            try database.cachedStatement(sql: "DELETE FROM run WHERE team = ? AND id = ?").execute(arguments: [
                team, id,
            ])
            for table in ["counted", "watched_service"] {
                try database.cachedStatement(sql: "DELETE FROM \(table) WHERE team = ? AND run = ?")
                    .execute(arguments: [team, id])
            }
            usage.add(team, bytes: -(row["bytes"] as Int), runs: -1)
        }
        return rows.count
    }

    /// Recomputes the sums by host of the day in which the removed time ends, from its other hours.
    private func sumHosts(ofDayOf end: Int64) throws {
        let day = Hours.day(end)
        try run(
            "DELETE FROM fault_host WHERE team = :team AND fingerprint IN (\(Self.each("fingerprint", in: "fault_host"))) AND day <= :day",
            ["day": day]
        )
        try run(
            """
            INSERT INTO fault_host
            SELECT team, fingerprint, :day, service, release, verdict, host, count(*) FROM stall
            WHERE team = :team AND started >= :first AND started < :next
            GROUP BY team, fingerprint, service, release, verdict, host
            """,
            [
                "day": day, "first": day.multipliedSaturated(by: Hours.dayNs),
                "next": (day + 1).multipliedSaturated(by: Hours.dayNs),
            ]
        )
    }

    /// Removes the fingerprints of faults that have no rows left.
    static func removeNames(_ database: Database) throws {
        try database.execute(
            sql: """
                DELETE FROM fault WHERE NOT EXISTS (
                    SELECT 1 FROM stall WHERE stall.team = fault.team AND stall.fingerprint = fault.fingerprint
                ) AND NOT EXISTS (
                    SELECT 1 FROM alias JOIN stall ON stall.team = alias.team AND stall.fingerprint = alias.alias
                    WHERE alias.team = fault.team AND alias.fingerprint = fault.fingerprint
                );
                DELETE FROM alias WHERE NOT EXISTS (
                    SELECT 1 FROM fault WHERE fault.team = alias.team AND fault.fingerprint = alias.fingerprint
                );
                """
        )
    }

    /// The team that uses the most space, and its first hour with rows. Nil if there are no rows.
    static func largest(_ database: Database) throws -> (team: String, hour: Int64)? {
        for team in try String.fetchAll(database, sql: "SELECT team FROM usage WHERE bytes > 0 ORDER BY bytes DESC") {
            let oldest = try Int64.fetchOne(
                database,
                sql: """
                    SELECT min(moment) FROM (
                        SELECT min(started) AS moment FROM stall WHERE team = ? UNION ALL SELECT min(updated) FROM run WHERE team = ?
                    )
                    """,
                arguments: [team, team]
            )
            if let oldest { return (team, Hours.hour(oldest)) }
        }
        return nil
    }

    /// - Parameter sql: Has the team as `:team`.
    private func run(_ sql: String, _ arguments: [String: Int64]) throws {
        try database.execute(sql: sql, arguments: StatementArguments(arguments) + ["team": team])
    }
}
