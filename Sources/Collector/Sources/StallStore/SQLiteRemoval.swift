import GRDB
import StallReports

/// Removes old rows of one team or of all teams within one transaction.
struct SQLiteRemoval {
    let database: Database
    /// Nil: all teams.
    let team: String?

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
        try run("DELETE FROM fault_hour WHERE hour < ?", [hour])
        try run("DELETE FROM counted WHERE last < ?", [end])
        try run("DELETE FROM seen WHERE last < ?", [end])
        try sumHosts(ofDayOf: end)
        return (stalls, true)
    }

    private func removeStalls(before end: Int64, _ limit: Int, _ usage: inout SQLiteUsage) throws -> Int {
        let rows = try Row.fetchAll(
            database,
            sql: """
                SELECT number, team, length(report) AS bytes FROM stall JOIN body USING (number)
                WHERE started < ?\(isOfTeam) ORDER BY started LIMIT ?
                """,
            arguments: [end] + teamArgument + [limit]
        )
        for row in rows {
            let number: Int64 = row["number"]
            try database.cachedStatement(sql: "DELETE FROM stall WHERE number = ?").execute(arguments: [number])
            try database.cachedStatement(sql: "DELETE FROM body WHERE number = ?").execute(arguments: [number])
            usage.add(row["team"], bytes: -(row["bytes"] as Int), stalls: -1)
        }
        return rows.count
    }

    private func removeRuns(before end: Int64, _ limit: Int, _ usage: inout SQLiteUsage) throws -> Int {
        let rows = try Row.fetchAll(
            database,
            sql:
                "SELECT team, id, length(body) AS bytes FROM run WHERE updated < ?\(isOfTeam) ORDER BY updated LIMIT ?",
            arguments: [end] + teamArgument + [limit]
        )
        for row in rows {
            let (team, id): (String, String) = (row["team"], row["id"])
            try database.cachedStatement(sql: "DELETE FROM run WHERE team = ? AND id = ?").execute(arguments: [
                team, id,
            ])
            try database.cachedStatement(sql: "DELETE FROM counted WHERE team = ? AND run = ?")
                .execute(arguments: [team, id])
            usage.add(team, bytes: -(row["bytes"] as Int), runs: -1)
        }
        return rows.count
    }

    /// Recomputes the sums by host of the day in which the removed time ends, from its other hours.
    private func sumHosts(ofDayOf end: Int64) throws {
        let day = Hours.day(end)
        try run("DELETE FROM fault_host WHERE day <= ?", [day])
        try database.execute(
            sql: """
                INSERT INTO fault_host
                SELECT team, fingerprint, ?, service, release, verdict, host, count(*) FROM stall WHERE started >= ? AND started < ?\(isOfTeam)
                GROUP BY team, fingerprint, service, release, verdict, host
                """,
            arguments: [day, day.multipliedSaturated(by: Hours.dayNs)]
                + [(day + 1).multipliedSaturated(by: Hours.dayNs)] + teamArgument
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

    private var isOfTeam: String { team == nil ? "" : " AND team = ?" }
    private var teamArgument: StatementArguments { team.map { [$0] } ?? [] }

    private func run(_ sql: String, _ arguments: StatementArguments) throws {
        try database.execute(sql: sql + isOfTeam, arguments: arguments + teamArgument)
    }
}
