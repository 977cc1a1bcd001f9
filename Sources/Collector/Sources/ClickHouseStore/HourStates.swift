import StallStore
import Synchronization

/// Whether an hour of a team is counted by sums or by its stalls.
///
/// Sums of `stall` cannot be accumulated as rows arrive: a stall has several versions, and may be sent again. So an hour's sums
/// are computed from its stalls once nothing is written to it any more, and computed again after something was written:
///
/// 1. A collector that is about to write stalls of an hour announces it with a row in `touch`, which has a unique token. The
///    announcement is valid for ``touchTime``; then it must be repeated.
/// 2. An hour whose number of touches has not changed for ``settleTime`` has no insert in progress. Its sums are written under a
///    unique number (`generation`), and a row in `done` says for how many touches they are valid.
/// 3. A query uses an hour's sums only if `done` has the current number of touches. Otherwise it counts the stalls themselves.
///
/// None of this depends on another machine's clock.
struct HourStates {
    /// Longer than ``touchTime`` plus the time of an insert.
    static let settleTime = Duration.seconds(420)
    static let touchTime = Duration.seconds(120)

    /// The hours whose sums are valid, with the numbers of these sums.
    private(set) var generations: [Int64: UInt64] = [:]
    /// The hours without valid sums, with their numbers of touches.
    private(set) var raw: [Int64: UInt64] = [:]

    init(touches: [Int64: UInt64], done: [Int64: (touches: UInt64, generation: UInt64)]) {
        for (hour, count) in touches {
            if let sums = done[hour], sums.touches == count {
                generations[hour] = sums.generation
            } else {
                raw[hour] = count
            }
        }
    }

    /// The last hour that has rows.
    var lastHour: Int64 { max(generations.keys.max() ?? 0, raw.keys.max() ?? 0) }

    /// Splits a time range into whole hours that have sums, and ranges in which stalls are counted.
    func split(_ range: Range<Int64>) -> (generations: [UInt64], raw: [Range<Int64>]) {
        let unit = Hours.hourNs
        // Not lowerBound + unit - 1: a question may begin at the end of the range of Int64.
        let first = range.lowerBound / unit + (range.lowerBound % unit == 0 ? 0 : 1)
        let end = range.upperBound / unit
        guard first < end else { return ([], range.isEmpty ? [] : [range]) }
        let settled = generations.filter { $0.key >= first && $0.key < end }.map(\.value).sorted()
        var parts = raw.keys.filter { $0 >= first && $0 < end }.sorted().map { $0 * unit..<($0 + 1) * unit }
        parts.insert(range.lowerBound..<first * unit, at: 0)
        parts.append(end * unit..<range.upperBound)
        var merged: [Range<Int64>] = []
        for part in parts where !part.isEmpty {
            if let last = merged.last, last.upperBound == part.lowerBound {
                merged[merged.count - 1] = last.lowerBound..<part.upperBound
            } else {
                merged.append(part)
            }
        }
        return (settled, merged)
    }
}

extension ClickHouseStore {
    func hourStates(_ team: String, _ range: Range<Int64>) async throws -> HourStates {
        guard !range.isEmpty else { return HourStates(touches: [:], done: [:]) }
        let hours = Hours.hour(range.lowerBound)...Hours.hour(range.upperBound - 1)
        return try await hourStates(SQLCondition("team = \(SQLLiteral.text(team))"), hours)[team]
            ?? HourStates(touches: [:], done: [:])
    }

    /// Returns the states by team.
    func hourStates(_ team: SQLCondition, _ hours: ClosedRange<Int64>) async throws -> [String: HourStates] {
        let condition = """
            \(team.sql) AND day >= \(hours.lowerBound / 24) AND day <= \(hours.upperBound / 24)
            AND hour >= \(hours.lowerBound) AND hour <= \(hours.upperBound)
            """
        let rows = try await ask(
            ["w", "t", "h", "n", "g"],
            """
            FROM (
                SELECT 'touch' AS w, team AS t, hour AS h, toUInt64(uniqExact(token)) AS n, toUInt64(0) AS g
                FROM \(table("touch")) WHERE \(condition) GROUP BY team, hour
                UNION ALL
                SELECT 'done' AS w, team AS t, hour AS h, toUInt64(max(touches)) AS n, toUInt64(argMax(generation, touches)) AS g
                FROM \(table("done")) WHERE \(condition) GROUP BY team, hour
            )
            """
        )
        var touches: [String: [Int64: UInt64]] = [:]
        var done: [String: [Int64: (touches: UInt64, generation: UInt64)]] = [:]
        for row in rows {
            let (team, hour, count) = (row.text(1), try row.number(2), try row.unsigned(3))
            if row.text(0) == "touch" {
                touches[team, default: [:]][hour] = count
            } else {
                done[team, default: [:]][hour] = (count, try row.unsigned(4))
            }
        }
        return touches.reduce(into: [:]) { $0[$1.key] = HourStates(touches: $1.value, done: done[$1.key] ?? [:]) }
    }

    // MARK: Writing

    /// Announces that stalls of these hours are about to be written.
    func touch(_ hours: Set<HourKey>) async throws {
        let now = ContinuousClock.now
        let (due, token) = state.withLock { state in
            state.touched = state.touched.filter { $0.value > now }
            state.tokens += 1
            return (hours.filter { state.touched[$0] == nil }, "\(name)-\(state.tokens)")
        }
        guard !due.isEmpty else { return }
        for part in Self.parts(due.sorted { ($0.hour, $0.team) < ($1.hour, $1.team) }, day: { $0.day }) {
            var rows = TabbedRows(into: "\(table("touch")) (team, day, hour, token)")
            for key in part {
                rows.add(key.team)
                rows.add(key.day)
                rows.add(key.hour)
                rows.add(token)
                rows.endRow()
            }
            try await insert(rows)
        }
        // The time counts from before the insert, so that the announcement expires early rather than late.
        state.withLock { state in for key in due { state.touched[key] = now + HourStates.touchTime } }
    }

    /// Makes the sums of hours to which nothing is being written.
    ///
    /// - Parameter settleTime: How long this collector must have seen the same number of touches.
    package func settle(after settleTime: Duration = HourStates.settleTime) async throws {
        let now = ContinuousClock.now
        let horizon = Hours.hour(horizonNs)
        var due: [(key: HourKey, touches: UInt64)] = []
        for (team, states) in try await hourStates(SQLCondition("1"), horizon...(Int64.max / Hours.hourNs)) {
            due += states.raw.map { (HourKey(team: team, hour: $0.key), $0.value) }
        }
        let quiet = state.withLock { state in
            let before = state.seen
            state.seen = due.reduce(into: [:]) { seen, hour in
                let known = before[hour.key].flatMap { $0.touches == hour.touches ? $0.since : nil }
                seen[hour.key] = (hour.touches, known ?? now)
            }
            return due.filter { hour in state.seen[hour.key].map { now - $0.since >= settleTime } ?? false }
        }
        var refusal: ClickHouseError?
        // One day of a team at a time, because that is one partition.
        let days = Dictionary(grouping: quiet) { DayKey(team: $0.key.team, day: $0.key.day) }
        for (_, hours) in days.sorted(by: { ($0.key.day, $0.key.team) < ($1.key.day, $1.key.team) }) {
            do {
                try await sum(hours)
            } catch let error as ClickHouseError where error.code != nil {
                // The server answers. It may refuse these hours only: there are too many stalls in them for its memory.
                refusal = refusal ?? error
            }
        }
        if let refusal { throw refusal }
    }

    /// - Parameter hours: Hours of one team and one day.
    private func sum(_ hours: [(key: HourKey, touches: UInt64)]) async throws {
        guard let first = hours.map(\.key.hour).min(), let team = hours.first?.key.team else { return }
        // Each hour has its own number: the base plus its distance from the first hour.
        let base = UInt64.random(in: 1...(1 << 62))
        for (name, host) in [("sum", ""), ("sum_host", ", host")] {
            // The same number must not be used again, because some of its rows may be stored already.
            var statement = ClickHouseClient.Statement(
                """
                INSERT INTO \(table(name)) (team, day, hour, generation, fingerprint, service, release, verdict, count, reports, total,
                    longest, first, last\(host))
                SELECT team, day, hour, toUInt64(\(base)) + toUInt64(hour) - \(first) AS g, fingerprint, service, release, verdict,
                    \(SQLSum.saturated("count")) AS c, toInt64(count()) AS n, \(SQLSum.saturated("total")) AS t, max(longest) AS l,
                    min(started) AS a, max(last) AS z\(host)
                FROM \(table("stall")) FINAL
                WHERE team = \(SQLLiteral.text(team)) AND day = \(first / 24) AND hour IN \(SQLLiteral.list(hours.map(\.key.hour)))
                GROUP BY team, day, hour, fingerprint, service, release, verdict\(host)
                """
            )
            (statement.settings, statement.isIdempotent, statement.timeout) = (insertSettings, false, .seconds(300))
            _ = try await client.send(statement)
        }
        var rows = TabbedRows(into: "\(table("done")) (team, day, hour, touches, generation)")
        for (key, touches) in hours {
            rows.add(key.team)
            rows.add(key.day)
            rows.add(key.hour)
            rows.add(touches)
            rows.add(base + UInt64(key.hour - first))
            rows.endRow()
        }
        try await insert(rows)
    }

    /// Splits elements into parts of at most 50 days: ClickHouse refuses blocks with more partitions.
    static func parts<Element>(_ sorted: [Element], day: (Element) -> Int64) -> [[Element]] {
        var (parts, days): ([[Element]], Set<Int64>) = ([[]], [])
        for element in sorted {
            if days.insert(day(element)).inserted, days.count > 50 {
                parts.append([])
                days = [day(element)]
            }
            parts[parts.count - 1].append(element)
        }
        return parts.filter { !$0.isEmpty }
    }
}
