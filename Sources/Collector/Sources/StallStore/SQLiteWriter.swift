internal import Foundation
internal import GRDB
internal import StallReports

/// Writes within one transaction.
struct SQLiteWriter {
    private let database: Database

    init(_ database: Database) { self.database = database }

    /// - Returns: whether it was new, or newer than what was known.
    func insert(_ arrival: Arrival) throws -> Bool {
        switch arrival {
        case .stall(let stall): try insert(stall)
        case .run(let run): try insert(run)
        }
    }

    private func insert(_ stall: ArrivedStall) throws -> Bool {
        let known = try Row.fetchOne(
            statement("SELECT number, version, fingerprint FROM stall WHERE team = ? AND id = ?"),
            arguments: [stall.team, stall.id.description]
        )
        let fingerprint = try unite(stall)
        let values: StatementArguments = [
            stall.version, stall.startedNs, stall.lastNs, stall.durationNs, stall.count, stall.totalNs, stall.longestNs,
            stall.service, stall.release, stall.host, stall.label, stall.verdict, fingerprint, stall.culprit,
        ]
        if let known {
            guard stall.version > (known["version"] as Int64) else { return false }
            let number: Int64 = known["number"]
            let before = try Place(of: number, database)
            try run(
                """
                UPDATE stall SET version = ?, started = ?, last = ?, duration = ?, count = ?, total = ?, longest = ?, service = ?,
                    release = ?, host = ?, label = ?, verdict = ?, fingerprint = ?, culprit = ?
                WHERE number = ?
                """,
                values + [number]
            )
            try run("UPDATE body SET report = ? WHERE number = ?", [Data(stall.body), number])
            // It may have become longer than any, or another fault's: such sums are made anew.
            let after = try Place(of: number, database)
            for place in before == after ? [after] : [before, after] { try sumAnew(place) }
        } else {
            try run(
                """
                INSERT INTO stall (version, started, last, duration, count, total, longest, service, release, host, label, verdict,
                    fingerprint, culprit, team, id)
                VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
                """,
                values + [stall.team, stall.id.description]
            )
            try run(
                "INSERT INTO body (number, report) VALUES (?, ?)",
                [database.lastInsertedRowID, Data(stall.body)]
            )
            try addToSums(stall, fingerprint)
        }
        try run(
            """
            INSERT INTO fault (team, fingerprint, latest, culprit, place) VALUES (?, ?, ?, ?, ?)
            ON CONFLICT DO UPDATE SET latest = excluded.latest, culprit = excluded.culprit, place = excluded.place
            WHERE excluded.latest >= latest
            """,
            [stall.team, fingerprint, stall.id.description, stall.culprit, stall.place]
        )
        return true
    }

    private func insert(_ run: ArrivedRun) throws -> Bool {
        let known = try Int64.fetchOne(
            statement("SELECT updated FROM run WHERE team = ? AND id = ?"),
            arguments: [run.team, run.id.description]
        )
        if let known, known >= run.updatedNs { return false }
        try self.run(
            """
            INSERT OR REPLACE INTO run (team, id, updated, started, watched, service, release, host, running, body)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
            """,
            [
                run.team, run.id.description, run.updatedNs, run.startedNs, run.watchedNs, run.service, run.release,
                run.host, run.isRunning, Data(run.body),
            ]
        )
        try self.run("DELETE FROM counted WHERE team = ? AND run = ?", [run.team, run.id.description])
        for fault in run.counted {
            try self.run(
                """
                INSERT OR REPLACE INTO counted (team, run, fingerprint, service, release, host, count, total, longest, first, last)
                VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
                """,
                [
                    run.team, run.id.description, try current(fault.fingerprint, run.team), run.service, run.release,
                    run.host, fault.count, fault.totalNs, fault.longestNs, fault.firstNs, fault.lastNs,
                ]
            )
        }
        return true
    }

    // MARK: Sums

    private func addToSums(_ stall: ArrivedStall, _ fingerprint: String) throws {
        try run(
            """
            INSERT INTO fault_hour (team, service, hour, fingerprint, release, verdict, count, reports, total, longest, first, last)
            VALUES (?, ?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?)
            ON CONFLICT DO UPDATE SET count = count + excluded.count, reports = reports + 1, total = total + excluded.total,
                longest = max(longest, excluded.longest), first = min(first, excluded.first), last = max(last, excluded.last)
            """,
            [
                stall.team, stall.service, SQLiteTime.hour(stall.startedNs), fingerprint, stall.release, stall.verdict,
                stall.count, stall.totalNs, stall.longestNs, stall.startedNs, stall.lastNs,
            ]
        )
        try run(
            """
            INSERT INTO fault_host (team, fingerprint, day, service, release, verdict, host, reports) VALUES (?, ?, ?, ?, ?, ?, ?, 1)
            ON CONFLICT DO UPDATE SET reports = reports + 1
            """,
            [
                stall.team, fingerprint, SQLiteTime.day(stall.startedNs), stall.service, stall.release, stall.verdict,
                stall.host,
            ]
        )
    }

    /// Which hour's and which day's sums a stall is part of.
    private struct Place: Hashable {
        var team: String
        var fingerprint: String
        var hour: Int64
        var day: Int64

        init(of number: Int64, _ database: Database) throws {
            let row = try Row.fetchOne(
                database.cachedStatement(sql: "SELECT team, fingerprint, started FROM stall WHERE number = ?"),
                arguments: [number]
            )
            guard let row else { throw DatabaseError(resultCode: .SQLITE_CORRUPT) }
            (team, fingerprint) = (row["team"], row["fingerprint"])
            (hour, day) = (SQLiteTime.hour(row["started"]), SQLiteTime.day(row["started"]))
        }
    }

    private func sumAnew(_ place: Place) throws {
        try run(
            "DELETE FROM fault_hour WHERE team = ? AND hour = ? AND fingerprint = ?",
            [place.team, place.hour, place.fingerprint]
        )
        try run(
            """
            INSERT INTO fault_hour
            SELECT team, service, ?, fingerprint, release, verdict, sum(count), count(*), CAST(total(total) AS INTEGER), max(longest),
                min(started), max(last)
            FROM stall WHERE team = ? AND fingerprint = ? AND started >= ? AND started < ? GROUP BY service, release, verdict
            """,
            [place.hour, place.team, place.fingerprint]
                + [place.hour * SQLiteTime.hourNs, (place.hour + 1) * SQLiteTime.hourNs]
        )
        try run(
            "DELETE FROM fault_host WHERE team = ? AND fingerprint = ? AND day = ?",
            [place.team, place.fingerprint, place.day]
        )
        try run(
            """
            INSERT INTO fault_host
            SELECT team, fingerprint, ?, service, release, verdict, host, count(*)
            FROM stall WHERE team = ? AND fingerprint = ? AND started >= ? AND started < ? GROUP BY service, release, verdict, host
            """,
            [place.day, place.team, place.fingerprint]
                + [place.day * SQLiteTime.dayNs, (place.day + 1) * SQLiteTime.dayNs]
        )
    }

    // MARK: Names of a fault

    /// The fingerprint that a fault is kept under.
    private func current(_ fingerprint: String, _ team: String) throws -> String {
        try String.fetchOne(
            statement("SELECT fingerprint FROM alias WHERE team = ? AND alias = ?"),
            arguments: [team, fingerprint]
        ) ?? fingerprint
    }

    /// Brings the faults together that a report says are one: it had no names first, and has some now.
    private func unite(_ stall: ArrivedStall) throws -> String {
        let fingerprint = try current(stall.fingerprint, stall.team)
        for alias in stall.aliases {
            let old = try current(alias, stall.team)
            if old != fingerprint { try rename(old, to: fingerprint, stall.team) }
        }
        return fingerprint
    }

    private func rename(_ old: String, to new: String, _ team: String) throws {
        try run("UPDATE alias SET fingerprint = ? WHERE team = ? AND fingerprint = ?", [new, team, old])
        try run("INSERT OR REPLACE INTO alias (team, alias, fingerprint) VALUES (?, ?, ?)", [team, old, new])
        try run("UPDATE stall SET fingerprint = ? WHERE team = ? AND fingerprint = ?", [new, team, old])
        if database.changesCount > 0 { try mergeSums(old, new, team) }
        try run(
            """
            INSERT INTO counted
            SELECT team, run, ?, service, release, host, count, total, longest, first, last
            FROM counted WHERE team = ? AND fingerprint = ?
            ON CONFLICT DO UPDATE SET count = count + excluded.count, total = total + excluded.total,
                longest = max(longest, excluded.longest), first = min(first, excluded.first), last = max(last, excluded.last)
            """,
            [new, team, old]
        )
        try run("DELETE FROM counted WHERE team = ? AND fingerprint = ?", [team, old])
    }

    private func mergeSums(_ old: String, _ new: String, _ team: String) throws {
        try run(
            """
            INSERT INTO fault_hour
            SELECT team, service, hour, ?, release, verdict, count, reports, total, longest, first, last
            FROM fault_hour WHERE team = ? AND fingerprint = ?
            ON CONFLICT DO UPDATE SET count = count + excluded.count, reports = reports + excluded.reports,
                total = total + excluded.total, longest = max(longest, excluded.longest),
                first = min(first, excluded.first), last = max(last, excluded.last)
            """,
            [new, team, old]
        )
        try run("DELETE FROM fault_hour WHERE team = ? AND fingerprint = ?", [team, old])
        try run(
            """
            INSERT INTO fault_host
            SELECT team, ?, day, service, release, verdict, host, reports FROM fault_host WHERE team = ? AND fingerprint = ?
            ON CONFLICT DO UPDATE SET reports = reports + excluded.reports
            """,
            [new, team, old]
        )
        try run("DELETE FROM fault_host WHERE team = ? AND fingerprint = ?", [team, old])
        try run("DELETE FROM fault WHERE team = ? AND fingerprint = ?", [team, old])
    }

    // MARK: Age

    /// - Returns: how many. Zero when there are no more.
    func removeStalls(beforeHour hour: Int64, limit: Int) throws -> Int {
        let end = hour * SQLiteTime.hourNs
        let numbers = try Int64.fetchAll(
            database,
            sql: "SELECT number FROM stall WHERE started < ? ORDER BY started LIMIT ?",
            arguments: [end, limit]
        )
        for number in numbers {
            try run("DELETE FROM stall WHERE number = ?", [number])
            try run("DELETE FROM body WHERE number = ?", [number])
        }
        guard numbers.count < limit else { return numbers.count }
        try run("DELETE FROM fault_hour WHERE hour < ?", [hour])
        try run("DELETE FROM run WHERE updated < ?", [end])
        try run("DELETE FROM counted WHERE last < ?", [end])
        try run(
            "DELETE FROM fault WHERE NOT EXISTS (SELECT 1 FROM stall WHERE stall.team = fault.team AND stall.fingerprint = fault.fingerprint)"
        )
        // The day that the hour is part of: what is left of it.
        let day = SQLiteTime.day(end)
        try run("DELETE FROM fault_host WHERE day <= ?", [day])
        try run(
            """
            INSERT INTO fault_host
            SELECT team, fingerprint, ?, service, release, verdict, host, count(*) FROM stall WHERE started >= ? AND started < ?
            GROUP BY team, fingerprint, service, release, verdict, host
            """,
            [day, day * SQLiteTime.dayNs, (day + 1) * SQLiteTime.dayNs]
        )
        return numbers.count
    }

    private func statement(_ sql: String) throws -> Statement { try database.cachedStatement(sql: sql) }

    private func run(_ sql: String, _ arguments: StatementArguments = []) throws {
        try statement(sql).execute(arguments: arguments)
    }
}
