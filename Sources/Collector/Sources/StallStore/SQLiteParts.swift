import Foundation
import GRDB

/// The rows that answer a query, as one table called `part`: sums for the whole hours or days in the range, and single stalls at
/// its ends.
struct SQLiteParts {
    let sql: String
    let arguments: StatementArguments

    /// Rows `fingerprint, service, release, verdict, count, reports, total, longest, moment, first, last`.
    ///
    /// - Parameters:
    ///   - fingerprints: Only rows of these faults. Nil: of all faults.
    ///   - hasAliases: Whether some faults of the team have several fingerprints. Those are summed as one.
    static func hours(_ query: StallQuery, of fingerprints: [String]? = nil, hasAliases: Bool) -> SQLiteParts {
        var parts = Builder(query, fingerprints, hasAliases)
        let stalls = """
            SELECT fingerprint, service, release, verdict, count, 1 AS reports, total, longest, started AS moment, started AS first, last
            FROM stall WHERE team = ?
            """
        // The sums by hour do not distinguish hosts.
        for (start, end) in parts.ends(of: query.hosts.isEmpty ? Hours.hourNs : nil) {
            parts.add(stalls + " AND started >= ? AND started < ?", [query.team, start, end])
        }
        if let (first, end) = parts.whole(Hours.hourNs), query.hosts.isEmpty {
            parts.add(
                """
                SELECT fingerprint, service, release, verdict, count, reports, total, longest,
                    hour * \(Hours.hourNs) + \(Hours.hourNs / 2) AS moment, first, last
                FROM fault_hour WHERE team = ? AND hour >= ? AND hour < ?
                """,
                [query.team, first, end]
            )
        }
        // A run record has no verdicts of its counted stalls.
        if query.verdicts.isEmpty {
            parts.add(
                """
                SELECT fingerprint, service, release, '' AS verdict, count, 0 AS reports, total, longest, last AS moment, first, last
                FROM counted WHERE team = ? AND first >= ? AND first < ?
                """,
                [query.team, query.since.sinceEpoch, query.until.sinceEpoch],
            )
        }
        return parts.table("service, release, verdict, count, reports, total, longest, moment, first, last")
    }

    /// Rows `fingerprint, host, reports`.
    static func hosts(_ query: StallQuery, of fingerprints: [String]? = nil, hasAliases: Bool) -> SQLiteParts {
        var parts = Builder(query, fingerprints, hasAliases)
        let stalls = "SELECT fingerprint, host, 1 AS reports FROM stall WHERE team = ?"
        for (start, end) in parts.ends(of: Hours.dayNs) {
            parts.add(stalls + " AND started >= ? AND started < ?", [query.team, start, end])
        }
        if let (first, end) = parts.whole(Hours.dayNs) {
            parts.add(
                "SELECT fingerprint, host, reports FROM fault_host WHERE team = ? AND day >= ? AND day < ?",
                [query.team, first, end]
            )
        }
        if query.verdicts.isEmpty {
            parts.add(
                "SELECT fingerprint, host, 0 AS reports FROM counted WHERE team = ? AND first >= ? AND first < ?",
                [query.team, query.since.sinceEpoch, query.until.sinceEpoch],
            )
        }
        return parts.table("host, reports")
    }

    /// For `LIKE … ESCAPE '\'`: what contains the text. By scalar, because SQLite does not know which of them are one character.
    static func pattern(_ text: String) -> String {
        let special = "%_\\".unicodeScalars
        return "%" + text.unicodeScalars.map { special.contains($0) ? "\\\($0)" : "\($0)" }.joined() + "%"
    }

    private struct Builder {
        private let team: String
        private let hasAliases: Bool
        private let since: Int64
        private let until: Int64
        /// The fingerprints of the chosen faults.
        private var names = ""
        private var namesArguments: StatementArguments = []
        private var filter = ""
        private var filterArguments: StatementArguments = []
        private var selects: [String] = []
        private var arguments: StatementArguments = []

        init(_ query: StallQuery, _ fingerprints: [String]?, _ hasAliases: Bool) {
            (team, self.hasAliases) = (query.team, hasAliases)
            (since, until) = (max(0, query.since.sinceEpoch), max(0, query.until.sinceEpoch))
            for (column, values) in query.choices where !values.isEmpty { restrict(column, to: values) }
            if let fingerprints { choose(fingerprints) }
            guard let text = query.text, !text.isEmpty else { return }
            filter += """
                 AND fingerprint IN (
                    SELECT fingerprint FROM fault WHERE team = ? AND culprit LIKE ? ESCAPE '\\'
                    UNION ALL SELECT alias FROM alias JOIN fault USING (team, fingerprint) WHERE team = ? AND culprit LIKE ? ESCAPE '\\'
                )
                """
            let pattern = SQLiteParts.pattern(text)
            filterArguments += [team, pattern, team, pattern]
        }

        private mutating func restrict(_ column: String, to values: [String]) {
            filter += " AND \(column) IN (\(Self.marks(values)))"
            filterArguments += StatementArguments(values)
        }

        /// The fingerprints are one JSON argument, because SQLite limits the number of terms in a list of VALUES.
        private mutating func choose(_ fingerprints: [String]) {
            let chosen = (try? JSONEncoder().encode(fingerprints)).map { String(decoding: $0, as: UTF8.self) } ?? "[]"
            names = """
                name (value) AS (
                    SELECT value FROM json_each(?)
                    UNION ALL SELECT alias FROM alias WHERE team = ? AND fingerprint IN (SELECT value FROM json_each(?))
                ),
                """
            namesArguments = [chosen, team, chosen]
            filter += " AND fingerprint IN (SELECT value FROM name)"
        }

        private static func marks(_ values: [String]) -> String { values.map { _ in "?" }.joined(separator: ", ") }

        /// The units that are completely in the range: the first one, and the first one after the last.
        func whole(_ unit: Int64) -> (Int64, Int64)? {
            let (first, end) = (since / unit + (since % unit == 0 ? 0 : 1), until / unit)
            return first < end ? (first, end) : nil
        }

        /// The parts of the range that are in no whole unit.
        func ends(of unit: Int64?) -> [(Int64, Int64)] {
            // Whole units end before the range does, so their products do not overflow.
            guard let unit, let (first, end) = whole(unit) else { return [(since, until)] }
            return [(since, first * unit), (end * unit, until)].filter { $0.0 < $0.1 }
        }

        mutating func add(_ select: String, _ values: StatementArguments) {
            selects.append(select + filter)
            arguments += values + filterArguments
        }

        /// - Parameter columns: All columns except the fingerprint.
        func table(_ columns: String) -> SQLiteParts {
            let rows = selects.joined(separator: " UNION ALL ")
            guard hasAliases else {
                return SQLiteParts(sql: "WITH \(names) part AS (\(rows))", arguments: namesArguments + arguments)
            }
            return SQLiteParts(
                sql: """
                    WITH \(names) written AS (\(rows)), part AS (
                        SELECT coalesce(alias.fingerprint, written.fingerprint) AS fingerprint, \(columns)
                        FROM written LEFT JOIN alias ON alias.team = ? AND alias.alias = written.fingerprint
                    )
                    """,
                arguments: namesArguments + arguments + [team]
            )
        }
    }
}
