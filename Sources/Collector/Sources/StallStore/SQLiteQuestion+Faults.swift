import GRDB
import StallReading
import StallReports

extension SQLiteQuestion {
    func faults(
        of fingerprints: [String]?,
        _ order: FaultOrder,
        _ limit: Int,
        _ watchedNs: Int64
    ) throws -> [Fault] {
        let list = try sums(of: fingerprints, order, limit, watchedNs)
        let names = list.map(\.name)
        var faults = Dictionary(list.map { ($0.name, $0.fault) }) { first, _ in first }
        try addNames(to: &faults, names)
        let hours = SQLiteParts.hours(query, of: names, hasAliases: try hasAliases())
        try addReports(to: &faults, in: hours)
        try addHosts(to: &faults, names)
        try addTrends(to: &faults, in: hours)
        return names.compactMap { faults[$0] }
    }

    /// Faults without their names and counts, by the fingerprint as it is stored.
    private func sums(
        of fingerprints: [String]?,
        _ order: FaultOrder,
        _ limit: Int,
        _ watchedNs: Int64
    ) throws -> [(name: String, fault: Fault)] {
        let column =
            switch order {
            case .total: "total"
            case .count: "count"
            case .worst: "longest"
            case .last: "last"
            }
        return try fetch(
            .hours(query, of: fingerprints, hasAliases: hasAliases()),
            """
            SELECT fingerprint, CAST(total(count) AS INTEGER) AS count, CAST(total(reports) AS INTEGER) AS reports,
                CAST(total(total) AS INTEGER) AS total, max(longest) AS longest, min(first) AS first, max(last) AS last
            FROM part GROUP BY fingerprint ORDER BY \(column) DESC, fingerprint LIMIT \(max(0, limit))
            """
        ).compactMap { row in
            let name: String = row["fingerprint"]
            let sums: Fault.Sums = (
                row["count"], row["reports"], row["total"], row["longest"], row["first"], row["last"]
            )
            return Fault(name, sums, watchedNs: watchedNs).map { (name, $0) }
        }
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
            faults[row["fingerprint"] as String]?.addAlias(row["alias"])
        }
    }

    /// The numbers of reports by service, release and verdict.
    private func addReports(to faults: inout [String: Fault], in hours: SQLiteParts) throws {
        for row in try fetch(
            hours,
            """
            SELECT fingerprint, service, release, verdict, CAST(total(reports) AS INTEGER) AS reports
            FROM part GROUP BY fingerprint, service, release, verdict
            """
        ) {
            faults[row["fingerprint"] as String]?.addReports(
                row["reports"],
                service: row["service"],
                release: row["release"],
                verdict: row["verdict"]
            )
        }
    }

    private func addHosts(to faults: inout [String: Fault], _ names: [String]) throws {
        for row in try fetch(
            .hosts(query, of: names, hasAliases: hasAliases()),
            "SELECT fingerprint, host, CAST(total(reports) AS INTEGER) AS reports FROM part GROUP BY fingerprint, host"
        ) {
            faults[row["fingerprint"] as String]?.addReports(row["reports"], host: row["host"])
        }
    }

    private func addTrends(to faults: inout [String: Fault], in hours: SQLiteParts) throws {
        let (since, length) = (query.since.sinceEpoch, query.until.nanoseconds(since: query.since))
        func part(of moment: String) -> String {
            "CAST(1.0 * (\(moment) - \(since)) / \(max(1, length)) * \(Trend.parts) AS INTEGER)"
        }
        // Of stalls that were only counted, and of those of an hour, the first and the last moment are known. A stall began where it counts: its
        // end may be beyond its hour.
        let last = "CASE reports WHEN 0 THEN moment WHEN 1 THEN first ELSE min(last, moment + \(Hours.hourNs / 2)) END"
        for row in try fetch(
            hours,
            """
            SELECT fingerprint, \(part(of: "first")) AS start, \(part(of: last)) AS part, CAST(total(count) AS INTEGER) AS count
            FROM part GROUP BY 1, 2, 3
            """
        ) {
            faults[row["fingerprint"] as String]?.addToTrend(row["count"], from: row["start"], to: row["part"])
        }
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

    func services() throws -> [ServiceSum] {
        try fetch(
            .hours(query, hasAliases: false),
            """
            SELECT service, CAST(total(count) AS INTEGER) AS count, CAST(total(total) AS INTEGER) AS total
            FROM part GROUP BY service ORDER BY 3 DESC, 1
            """
        ).map { row in ServiceSum(name: row["service"], count: row["count"], totalNs: row["total"]) }
    }

    func choices() throws -> Choices {
        var everything = query
        (everything.services, everything.releases, everything.hosts, everything.verdicts) = ([], [], [], [])
        everything.text = nil
        func names(_ column: String, _ parts: SQLiteParts) throws -> [String] {
            try fetch(
                parts,
                "SELECT \(column) AS name FROM part WHERE \(column) <> '' GROUP BY 1 ORDER BY total(reports) DESC, 1 LIMIT \(Fault.nameLimit)"
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
