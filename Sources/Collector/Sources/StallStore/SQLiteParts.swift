internal import GRDB

/// The rows that a question is answered from, as one table called `part`: sums where a whole hour or day lies in the range, stalls at its ends.
struct SQLiteParts {
    let sql: String
    let arguments: StatementArguments

    /// Rows `fingerprint, service, release, verdict, count, reports, total, longest, moment, first, last`.
    ///
    /// - Parameter fingerprints: of these faults only; nil for all.
    static func hours(_ query: StallQuery, of fingerprints: [String]? = nil) -> SQLiteParts {
        var parts = Builder(query, fingerprints)
        let stalls = """
            SELECT fingerprint, service, release, verdict, count, 1 AS reports, total, longest, started AS moment, started AS first, last
            FROM stall WHERE team = ?
            """
        // The sums by hour do not tell hosts apart.
        for (start, end) in parts.ends(of: query.hosts.isEmpty ? SQLiteTime.hourNs : nil) {
            parts.add(stalls + " AND started >= ? AND started < ?", [query.team, start, end])
        }
        if let (first, end) = parts.whole(SQLiteTime.hourNs), query.hosts.isEmpty {
            parts.add(
                """
                SELECT fingerprint, service, release, verdict, count, reports, total, longest,
                    hour * \(SQLiteTime.hourNs) + \(SQLiteTime.hourNs / 2) AS moment, first, last
                FROM fault_hour WHERE team = ? AND hour >= ? AND hour < ?
                """,
                [query.team, first, end]
            )
        }
        // Which verdict these had, nobody has noted.
        if query.verdicts.isEmpty {
            parts.add(
                """
                SELECT fingerprint, service, release, '' AS verdict, count, 0 AS reports, total, longest, last AS moment, first, last
                FROM counted WHERE team = ? AND first >= ? AND first < ?
                """,
                [query.team, query.since.sinceEpoch, query.until.sinceEpoch],
            )
        }
        return parts.table
    }

    /// Rows `fingerprint, host, reports`.
    static func hosts(_ query: StallQuery, of fingerprints: [String]? = nil) -> SQLiteParts {
        var parts = Builder(query, fingerprints)
        let stalls = "SELECT fingerprint, host, 1 AS reports FROM stall WHERE team = ?"
        for (start, end) in parts.ends(of: SQLiteTime.dayNs) {
            parts.add(stalls + " AND started >= ? AND started < ?", [query.team, start, end])
        }
        if let (first, end) = parts.whole(SQLiteTime.dayNs) {
            parts.add(
                "SELECT fingerprint, host, reports FROM fault_host WHERE team = ? AND day >= ? AND day < ?",
                [query.team, first, end]
            )
        }
        return parts.table
    }

    private struct Builder {
        private let since: Int64
        private let until: Int64
        private var filter = ""
        private var filterArguments: StatementArguments = []
        private var selects: [String] = []
        private var arguments: StatementArguments = []

        init(_ query: StallQuery, _ fingerprints: [String]?) {
            (since, until) = (query.since.sinceEpoch, query.until.sinceEpoch)
            let choices = [
                ("service", query.services), ("release", query.releases), ("host", query.hosts),
                ("verdict", query.verdicts),
            ]
            for (column, values) in choices where !values.isEmpty { restrict(column, to: values) }
            if let fingerprints { restrict("fingerprint", to: fingerprints) }
            guard let text = query.text, !text.isEmpty else { return }
            filter +=
                " AND fingerprint IN (SELECT fingerprint FROM fault WHERE team = ? AND culprit LIKE ? ESCAPE '\\')"
            let pattern = text.map { "%_\\".contains($0) ? "\\\($0)" : "\($0)" }.joined()
            filterArguments += [query.team, "%\(pattern)%"]
        }

        private mutating func restrict(_ column: String, to values: [String]) {
            filter += " AND \(column) IN (\(values.map { _ in "?" }.joined(separator: ", ")))"
            filterArguments += StatementArguments(values)
        }

        /// Units that lie in the range as a whole: the first, and the first behind them.
        func whole(_ unit: Int64) -> (Int64, Int64)? {
            let (first, end) = ((since + unit - 1) / unit, until / unit)
            return first < end ? (first, end) : nil
        }

        /// What is left of the range beside those.
        func ends(of unit: Int64?) -> [(Int64, Int64)] {
            guard let unit, let (first, end) = whole(unit) else { return [(since, until)] }
            return [(since, first * unit), (end * unit, until)].filter { $0.0 < $0.1 }
        }

        mutating func add(_ select: String, _ values: StatementArguments) {
            selects.append(select + filter)
            arguments += values + filterArguments
        }

        var table: SQLiteParts {
            SQLiteParts(sql: "WITH part AS (\(selects.joined(separator: " UNION ALL ")))", arguments: arguments)
        }
    }
}
