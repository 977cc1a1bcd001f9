import GRDB
import StallReading
import StallReports

extension SQLiteQuestion {
    /// The largest number of names of each kind.
    private static let nameLimit = 256

    func faults(
        of fingerprints: [String]?,
        _ order: FaultOrder,
        _ limit: Int,
        _ watchedNs: Int64
    ) throws -> [Fault] {
        let column =
            switch order {
            case .total: "total"
            case .count: "count"
            case .worst: "longest"
            case .last: "last"
            }
        let rows = try fetch(
            .hours(query, of: fingerprints, hasAliases: hasAliases()),
            """
            SELECT fingerprint, CAST(total(count) AS INTEGER) AS count, CAST(total(reports) AS INTEGER) AS reports,
                CAST(total(total) AS INTEGER) AS total, max(longest) AS longest, min(first) AS first, max(last) AS last
            FROM part GROUP BY fingerprint ORDER BY \(column) DESC, fingerprint LIMIT \(max(0, limit))
            """
        )
        let names = rows.map { $0["fingerprint"] as String }
        var faults: [String: Fault] = [:]
        for row in rows {
            guard let fingerprint = Fingerprint(rawValue: row["fingerprint"]) else { continue }
            var fault = Fault(
                fingerprint: fingerprint,
                firstAt: Timestamp(sinceEpoch: row["first"]),
                lastAt: Timestamp(sinceEpoch: row["last"])
            )
            (fault.count, fault.reports) = (row["count"], row["reports"])
            (fault.totalNs, fault.longestNs) = (row["total"], row["longest"])
            fault.share = watchedNs > 0 ? min(1, Double(fault.totalNs) / Double(watchedNs)) : nil
            faults[fingerprint.rawValue] = fault
        }
        try addNames(to: &faults, names)
        try addCounts(to: &faults, names)
        return names.compactMap { faults[$0] }
    }

    private func addNames(to faults: inout [String: Fault], _ names: [String]) throws {
        let marks = names.map { _ in "?" }.joined(separator: ", ")
        let arguments: StatementArguments = [query.team] + StatementArguments(names)
        for row in try Row.fetchAll(
            database,
            sql: "SELECT * FROM fault WHERE team = ? AND fingerprint IN (\(marks))",
            arguments: arguments
        ) {
            let (name, place): (String, String) = (row["fingerprint"], row["place"])
            faults[name]?.culprit = row["culprit"]
            faults[name]?.place = place.isEmpty ? nil : place
            faults[name]?.latest = ULID(row["latest"] as String)
        }
        for row in try Row.fetchAll(
            database,
            sql: "SELECT alias, fingerprint FROM alias WHERE team = ? AND fingerprint IN (\(marks)) ORDER BY alias",
            arguments: arguments
        ) {
            let name: String = row["fingerprint"]
            guard faults[name].map({ $0.aliases.count < Self.nameLimit }) ?? false else { continue }
            if let alias = Fingerprint(rawValue: row["alias"]) { faults[name]?.aliases.append(alias) }
        }
    }

    private func addCounts(to faults: inout [String: Fault], _ names: [String]) throws {
        let sums = try fetch(
            .hours(query, of: names, hasAliases: hasAliases()),
            """
            SELECT fingerprint, service, release, verdict, CAST(total(reports) AS INTEGER) AS reports
            FROM part GROUP BY fingerprint, service, release, verdict
            """
        )
        for row in sums {
            let (name, reports): (String, Int64) = (row["fingerprint"], row["reports"])
            guard var fault = faults[name] else { continue }
            Self.count(row["service"], reports, &fault.services)
            Self.count(row["release"], reports, &fault.releases)
            Self.count(row["verdict"], reports, &fault.verdicts)
            faults[name] = fault
        }
        let hosts = try fetch(
            .hosts(query, of: names, hasAliases: hasAliases()),
            "SELECT fingerprint, host, CAST(total(reports) AS INTEGER) AS reports FROM part GROUP BY fingerprint, host"
        )
        for row in hosts {
            let name: String = row["fingerprint"]
            guard var fault = faults[name] else { continue }
            Self.count(row["host"], row["reports"], &fault.hosts)
            faults[name] = fault
        }
        let (since, length) = (query.since.sinceEpoch, query.until.nanoseconds(since: query.since))
        let trend = try fetch(
            .hours(query, of: names, hasAliases: hasAliases()),
            """
            SELECT fingerprint, CAST(1.0 * (moment - \(since)) / \(max(1, length)) * \(Trend.parts) AS INTEGER) AS part,
                CAST(total(count) AS INTEGER) AS count
            FROM part GROUP BY 1, 2
            """
        )
        for row in trend {
            let part = min(max(0, row["part"] as Int), Trend.parts - 1)
            faults[row["fingerprint"] as String]?.trend.add(row["count"], inPart: part)
        }
    }

    private static func count(_ name: String, _ reports: Int64, _ counts: inout [String: Int64]) {
        guard !name.isEmpty, reports > 0, counts[name] != nil || counts.count < nameLimit else { return }
        counts[name] = (counts[name] ?? 0).addingSaturated(reports)
    }

    func days(of fingerprint: String) throws -> [DayCount] {
        try fetch(
            .hours(query, of: [fingerprint], hasAliases: hasAliases()),
            """
            SELECT moment / \(Hours.dayNs) AS day, CAST(total(count) AS INTEGER) AS count, CAST(total(total) AS INTEGER) AS total
            FROM part GROUP BY 1 ORDER BY 1
            """
        ).map { row in
            DayCount(
                day: Timestamp(seconds: (row["day"] as Int64) * 86400),
                count: row["count"],
                totalNs: row["total"]
            )
        }
    }

    func choices() throws -> Choices {
        var everything = query
        (everything.services, everything.releases, everything.hosts, everything.verdicts) = ([], [], [], [])
        everything.text = nil
        func names(_ column: String, _ parts: SQLiteParts) throws -> [String] {
            try fetch(
                parts,
                "SELECT \(column) AS name FROM part WHERE \(column) <> '' GROUP BY 1 ORDER BY total(reports) DESC, 1 LIMIT \(Self.nameLimit)"
            ).map { $0["name"] }
        }
        var choices = Choices()
        choices.services = try names("service", .hours(everything, hasAliases: false))
        choices.releases = try names("release", .hours(everything, hasAliases: false))
        choices.hosts = try names("host", .hosts(everything, hasAliases: false))
        choices.verdicts = try names("verdict", .hours(everything, hasAliases: false))
        return choices
    }

    private func fetch(_ parts: SQLiteParts, _ sql: String) throws -> [Row] {
        try Row.fetchAll(database, sql: parts.sql + " " + sql, arguments: parts.arguments)
    }
}
