import GRDB
import StallReports

/// Changes of the sums by the stalls of one transaction. They are accumulated in memory, because many stalls have the same fault
/// and hour.
///
/// A stall that changes subtracts its old values and adds its new ones, so no other stall has to be read. Only if it was the
/// longest, first or last stall of its hour, these three values are determined again, once per transaction.
struct SQLiteSums {
    /// The contribution of one stall to the sums.
    struct Part {
        var hour: HourKey
        var host: String
        var count: Int64
        var totalNs: Int64
        var longestNs: Int64
        var startedNs: Int64
        var lastNs: Int64

        init(_ stall: ArrivedStall, _ fingerprint: String) {
            hour = HourKey(
                team: stall.team,
                service: stall.service,
                hour: Hours.hour(stall.startedNs),
                fingerprint: fingerprint,
                release: stall.release,
                verdict: stall.verdict
            )
            host = stall.host
            (count, totalNs, longestNs) = (stall.count, stall.totalNs, stall.longestNs)
            (startedNs, lastNs) = (stall.startedNs, stall.lastNs)
        }

        /// - Parameter row: A row of `stall`.
        init(_ row: Row) {
            (startedNs, lastNs) = (row["started"], row["last"])
            hour = HourKey(
                team: row["team"],
                service: row["service"],
                hour: Hours.hour(startedNs),
                fingerprint: row["fingerprint"],
                release: row["release"],
                verdict: row["verdict"]
            )
            host = row["host"]
            (count, totalNs, longestNs) = (row["count"], row["total"], row["longest"])
        }

        fileprivate var day: HostKey { HostKey(hour: hour, day: Hours.day(startedNs), host: host) }
    }

    /// The key of a row of `fault_hour`.
    struct HourKey: Hashable {
        var team: String
        var service: String
        var hour: Int64
        var fingerprint: String
        var release: String
        var verdict: String

        fileprivate var values: [DatabaseValue] {
            [
                team.databaseValue, service.databaseValue, hour.databaseValue, fingerprint.databaseValue,
                release.databaseValue, verdict.databaseValue,
            ]
        }
    }

    /// The key of a row of `fault_host`.
    fileprivate struct HostKey: Hashable {
        var team: String
        var fingerprint: String
        var day: Int64
        var service: String
        var release: String
        var verdict: String
        var host: String

        init(hour: HourKey, day: Int64, host: String) {
            (team, fingerprint, self.day) = (hour.team, hour.fingerprint, day)
            (service, release, verdict, self.host) = (hour.service, hour.release, hour.verdict, host)
        }

        var values: [DatabaseValue] {
            [
                team.databaseValue, fingerprint.databaseValue, day.databaseValue, service.databaseValue,
                release.databaseValue, verdict.databaseValue, host.databaseValue,
            ]
        }
    }

    /// The key of a row of `seen`.
    private struct SeenKey: Hashable {
        var team: String
        var service: String
        var fingerprint: String
        var release: String

        init(_ hour: HourKey) {
            (team, service, fingerprint, release) = (hour.team, hour.service, hour.fingerprint, hour.release)
        }

        var values: [DatabaseValue] { [team, service, fingerprint, release].map(\.databaseValue) }
    }

    private struct Change {
        var count: Int64 = 0
        var reports: Int64 = 0
        var totalNs: Int64 = 0
        var longestNs: Int64 = 0
        var firstNs = Int64.max
        var lastNs: Int64 = 0
        /// Whether a stall that had one of the extreme values is no longer part of the sum.
        var isStale = false

        mutating func add(_ part: Part) {
            count = count.addingSaturated(part.count)
            reports += 1
            totalNs = totalNs.addingSaturated(part.totalNs)
            longestNs = max(longestNs, part.longestNs)
            firstNs = min(firstNs, part.startedNs)
            lastNs = max(lastNs, part.lastNs)
        }
    }

    /// When the first and the last of some stalls began and ended.
    private struct Seen {
        var first = Int64.max
        var last: Int64 = 0

        mutating func add(_ part: Part) { (first, last) = (min(first, part.startedNs), max(last, part.lastNs)) }
    }

    private var hours: [HourKey: Change] = [:]
    private var hosts: [HostKey: Int64] = [:]
    private var seen: [SeenKey: Seen] = [:]
    /// Those that a stall has left, which turned out to be of another fault, with its start.
    private var left: [SeenKey: Int64] = [:]

    mutating func add(_ part: Part) {
        // Each of these looks up its key once: a key has many texts, and hashing them takes most of the time.
        hours[part.hour, default: Change()].add(part)
        hosts[part.day, default: 0] += 1
        seen[SeenKey(part.hour), default: Seen()].add(part)
    }

    /// - Parameter new: The part that replaces it.
    mutating func remove(_ part: Part, for new: Part) {
        var change = hours[part.hour] ?? Change()
        change.count = change.count.subtractingSaturated(part.count)
        change.reports -= 1
        change.totalNs = change.totalNs.subtractingSaturated(part.totalNs)
        // If the extremes only move outwards, no query is needed.
        let grows =
            part.hour == new.hour && new.longestNs >= part.longestNs && new.startedNs <= part.startedNs
            && new.lastNs >= part.lastNs
        if !grows { change.isStale = true }
        hours[part.hour] = change
        hosts[part.day, default: 0] -= 1
        let key = SeenKey(part.hour)
        if key != SeenKey(new.hour) { left[key] = min(left[key] ?? .max, part.startedNs) }
    }

    /// Writes all changes into the tables.
    func write(_ database: Database) throws {
        try writeHours(database)
        try writeHosts(database)
        try writeSeen(database)
        try writeLeft(database)
    }

    private func writeHosts(_ database: Database) throws {
        let row = try RepeatedWrite(
            database,
            """
            INSERT INTO fault_host (team, fingerprint, service, release, verdict, host, day, reports) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
            ON CONFLICT DO UPDATE SET reports = reports + excluded.reports
            """
        )
        for (key, reports) in hosts where reports != 0 {
            try row.bind(key.team, key.fingerprint, key.service, key.release, key.verdict, key.host)
            try row.bind(key.day, reports)
            try row.run()
            guard reports < 0 else { continue }
            try database.write(
                """
                DELETE FROM fault_host WHERE team = ? AND fingerprint = ? AND day = ? AND service = ? AND release = ? AND verdict = ?
                    AND host = ? AND reports <= 0
                """,
                key.values
            )
        }
    }

    private func writeSeen(_ database: Database) throws {
        for (key, times) in seen {
            try database.write(
                """
                INSERT INTO seen (team, service, fingerprint, release, first, last) VALUES (?, ?, ?, ?, ?, ?)
                ON CONFLICT DO UPDATE SET first = min(first, excluded.first), last = max(last, excluded.last)
                WHERE excluded.first < first OR excluded.last > last
                """,
                key.values + [times.first, times.last].map(\.databaseValue)
            )
        }
    }

    /// Corrects the first times from which a stall was taken away.
    private func writeLeft(_ database: Database) throws {
        for (key, started) in left {
            try database.write(
                """
                DELETE FROM seen WHERE team = ? AND service = ? AND fingerprint = ? AND release = ? AND NOT EXISTS (
                    SELECT 1 FROM stall WHERE team = ? AND service = ? AND fingerprint = ? AND release = ?
                )
                """,
                key.values + key.values
            )
            // Only if it was the first: earlier ones may have been removed by their age, and are still known.
            try database.write(
                """
                UPDATE seen SET first = (
                    SELECT started FROM stall WHERE team = ? AND service = ? AND fingerprint = ? AND release = ? ORDER BY started LIMIT 1
                ) WHERE team = ? AND service = ? AND fingerprint = ? AND release = ? AND first = ?
                """,
                key.values + key.values + [started.databaseValue]
            )
        }
    }

    private static let isThisHour =
        "team = ? AND service = ? AND hour = ? AND fingerprint = ? AND release = ? AND verdict = ?"

    private func writeHours(_ database: Database) throws {
        // In SQLite a sum that exceeds 64 bits becomes a floating-point number; the cast saturates it instead.
        let row = try RepeatedWrite(
            database,
            """
            INSERT INTO fault_hour (team, service, fingerprint, release, verdict, hour, count, reports, total, longest, first, last)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
            ON CONFLICT DO UPDATE SET count = max(0, CAST(count + excluded.count AS INTEGER)), reports = reports + excluded.reports,
                total = max(0, CAST(total + excluded.total AS INTEGER)), longest = max(longest, excluded.longest),
                first = min(first, excluded.first), last = max(last, excluded.last)
            """
        )
        for (key, change) in hours {
            try row.bind(key.team, key.service, key.fingerprint, key.release, key.verdict)
            try row.bind(key.hour, change.count, change.reports, change.totalNs)
            try row.bind(change.longestNs, change.firstNs, change.lastNs)
            try row.run()
            if change.isStale { try writeExtremes(key, database) }
        }
    }

    /// Determines the extremes of an hour again, or removes its row if it has no stall any more.
    private func writeExtremes(_ key: HourKey, _ database: Database) throws {
        try database.write(
            "DELETE FROM fault_hour WHERE \(Self.isThisHour) AND reports <= 0",
            key.values
        )
        guard database.changesCount == 0 else { return }
        try database.write(
            """
            UPDATE fault_hour SET (longest, first, last) = (
                SELECT coalesce(max(longest), 0), coalesce(min(started), 0), coalesce(max(last), 0)
                FROM stall WHERE team = ? AND fingerprint = ? AND started >= ? AND started < ?
                    AND service = ? AND release = ? AND verdict = ?
            ) WHERE \(Self.isThisHour)
            """,
            [key.team, key.fingerprint].map(\.databaseValue)
                + [key.hour * Hours.hourNs, (key.hour + 1).multipliedSaturated(by: Hours.hourNs)].map(\.databaseValue)
                + [key.service, key.release, key.verdict].map(\.databaseValue) + key.values
        )
    }
}
