import Foundation
import GRDB
public import StallReading
public import StallReports

extension SQLiteStore {
    /// Answers in one transaction, so that sums and watched time are from the same moment.
    public func faults(_ query: StallQuery, by order: FaultOrder, limit: Int) async throws -> FaultList {
        try await database.read { database in
            let question = SQLiteQuestion(database, query)
            let (watchedNs, runs) = try question.watched()
            let faults = try question.faults(of: nil, order, limit, watchedNs)
            return FaultList(faults: faults, watchedNs: watchedNs, runs: runs)
        }
    }

    /// Sums one fault over all its fingerprints.
    public func fault(_ fingerprint: Fingerprint, _ query: StallQuery) async throws -> Fault? {
        try await database.read { database in
            let question = SQLiteQuestion(database, query)
            let current = try question.current(fingerprint)
            return try question.faults(of: [current], .total, 1, question.watched().ns).first
        }
    }

    /// Selects the stalls of all fingerprints of the fault.
    public func stalls(
        _ query: StallQuery,
        of fingerprint: Fingerprint?,
        before place: StoredReport.Place?,
        longestFirst: Bool,
        limit: Int
    ) async throws -> [StoredStall] {
        try await database.read { database in
            let question = SQLiteQuestion(database, query.ending(at: place))
            let current = try fingerprint.map { try question.current($0) }
            return try question.stalls(of: current, before: place, longestFirst, limit)
        }
    }

    /// Counts reports in the range.
    public func count(_ query: StallQuery, limit: Int) async throws -> Int {
        try await database.read { try SQLiteQuestion($0, query).count(limit) }
    }

    /// Returns at most about 4 MiB of reports at once.
    public func reports(
        _ query: StallQuery,
        after last: StoredReport.Place?,
        limit: Int
    ) async throws -> [StoredReport] {
        let packed = try await database.read { try SQLiteQuestion($0, query).reports(after: last, limit) }
        return try page(packed) { StoredReport(place: $0.place, json: try unpacked($0.body)) }
    }

    /// Returns at most about 4 MiB of records at once.
    public func runs(_ query: StallQuery, after last: ULID?, limit: Int) async throws -> [StoredRun] {
        let packed = try await database.read { try SQLiteQuestion($0, query).runs(after: last, limit) }
        return try page(packed) { StoredRun(id: $0.id, json: try unpacked($0.body)) }
    }

    /// Returns as many documents as fit into a page, and at least one. The others are on the next page.
    private func page<Packed, Document>(
        _ packed: [Packed],
        _ unpack: (Packed) throws -> Document
    ) throws -> [Document] where Document: StoredDocument {
        var (page, bytes): ([Document], Int) = ([], 0)
        for one in packed {
            let document = try unpack(one)
            page.append(document)
            bytes = bytes.addingSaturated(document.json.count)
            if bytes >= SQLiteQuestion.pageBytes { break }
        }
        return page
    }

    /// Returns stalls in the order of the column `place`.
    public func arrivals(
        team: String,
        after place: Int64,
        limit: Int
    ) async throws -> [(place: Int64, stall: StoredStall)] {
        try await database.read { database in
            try Row.fetchAll(
                database,
                sql:
                    "SELECT \(SQLiteQuestion.stallColumns) FROM stall WHERE team = ? AND place > ? ORDER BY place LIMIT ?",
                arguments: [team, place, max(0, limit)]
            ).compactMap { row in StoredStall(row).map { (row["place"], $0) } }
        }
    }

    /// Returns the last value of `place` that was given to a stall.
    public func lastPlace() async throws -> Int64 {
        try await database.read { try Int64.fetchOne($0, sql: "SELECT place FROM sequence") ?? 0 }
    }

    /// Counts by day over all fingerprints of the fault.
    public func days(of fingerprint: Fingerprint, _ query: StallQuery) async throws -> [DayCount] {
        try await database.read { database in
            let question = SQLiteQuestion(database, query)
            return try question.days(of: question.current(fingerprint))
        }
    }

    /// Returns at most 256 names of each kind.
    public func choices(_ query: StallQuery) async throws -> Choices {
        try await database.read { try SQLiteQuestion($0, query).choices() }
    }
}

/// A document that is returned as it was sent.
private protocol StoredDocument {
    var json: [UInt8] { get }
}

extension StoredReport: StoredDocument {}
extension StoredRun: StoredDocument {}

/// Queries within one transaction, so that all results are from the same moment.
struct SQLiteQuestion {
    /// The largest number of names of each kind.
    private static let nameLimit = 256
    /// A page ends after the document with which it reaches this size in bytes, compressed or not.
    static let pageBytes = 4 << 20
    /// The columns that ``StoredStall`` reads. `current` is the fault's current fingerprint if it has changed.
    static let stallColumns = """
        stall.*, (SELECT alias.fingerprint FROM alias WHERE alias.team = stall.team AND alias.alias = stall.fingerprint) AS current
        """
    let database: Database
    let query: StallQuery

    init(_ database: Database, _ query: StallQuery) { (self.database, self.query) = (database, query) }

    /// Whether some fault of the team has several fingerprints.
    func hasAliases() throws -> Bool {
        try Bool.fetchOne(
            database,
            sql: "SELECT EXISTS (SELECT 1 FROM alias WHERE team = ?)",
            arguments: [query.team]
        ) ?? false
    }

    func current(_ fingerprint: Fingerprint) throws -> String {
        try String.fetchOne(
            database,
            sql: "SELECT fingerprint FROM alias WHERE team = ? AND alias = ?",
            arguments: [query.team, fingerprint.rawValue]
        ) ?? fingerprint.rawValue
    }

    /// The watched time, as recorded in the run records. A run that is only partly in the range counts with that part.
    func watched() throws -> (ns: Int64, runs: Int) {
        let (condition, arguments) = runsInRange
        let (since, until) = (query.since.sinceEpoch, query.until.sinceEpoch)
        let row = try Row.fetchOne(
            database,
            sql: """
                SELECT count(*) AS runs, CAST(total(
                    watched * (1.0 * (min(updated, ?) - max(started, ?)) / max(updated - started, 1))
                ) AS INTEGER) AS watched
                FROM run WHERE \(condition)
                """,
            arguments: [until, since] + arguments
        )
        return (row?["watched"] ?? 0, row?["runs"] ?? 0)
    }

    func runs(after last: ULID?, _ limit: Int) throws -> [(id: ULID, body: Data)] {
        let (condition, arguments) = runsInRange
        let rows = try Row.fetchCursor(
            database,
            sql: "SELECT id, body FROM run WHERE \(condition) AND id > ? ORDER BY id LIMIT ?",
            arguments: arguments + [last?.description ?? "", max(0, limit)]
        )
        return try Self.page(rows) { row in ULID(row["id"] as String).map { ($0, row["body"]) } }
            .map { (id: $0.0, body: $0.body) }
    }

    private static func page<Place>(
        _ rows: RowCursor,
        _ document: (Row) -> (Place, body: Data)?
    ) throws -> [(Place, body: Data)] {
        var (page, bytes): ([(Place, body: Data)], Int) = ([], 0)
        while bytes < pageBytes, let row = try rows.next() {
            guard let document = document(row) else { continue }
            page.append(document)
            bytes = bytes.addingSaturated(document.body.count)
        }
        return page
    }

    private var runsInRange: (sql: String, arguments: StatementArguments) {
        let choices = Self.among(query.runChoices)
        return (
            "team = ? AND updated > ? AND started < ?" + choices.sql,
            [query.team, query.since.sinceEpoch, query.until.sinceEpoch] + choices.arguments
        )
    }

    /// A condition for each column that has values: the column is one of them.
    private static func among(_ choices: [(String, [String])]) -> (sql: String, arguments: StatementArguments) {
        var (sql, arguments) = ("", StatementArguments())
        for (column, values) in choices where !values.isEmpty {
            sql += " AND \(column) IN (\(values.map { _ in "?" }.joined(separator: ", ")))"
            arguments += StatementArguments(values)
        }
        return (sql, arguments)
    }

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

    private func stallsInRange(of fingerprint: String? = nil) -> (sql: String, arguments: StatementArguments) {
        let choices = Self.among(query.choices)
        var sql = "team = ? AND started >= ? AND started < ?" + choices.sql
        var arguments = [query.team, query.since.sinceEpoch, query.until.sinceEpoch] + choices.arguments
        if let text = query.text, !text.isEmpty {
            sql += " AND culprit LIKE ? ESCAPE '\\'"
            arguments += [SQLiteParts.pattern(text)]
        }
        if let fingerprint {
            sql +=
                " AND fingerprint IN (SELECT ? UNION ALL SELECT alias FROM alias WHERE alias.team = ? AND alias.fingerprint = ?)"
            arguments += [fingerprint, query.team, fingerprint]
        }
        return (sql, arguments)
    }

    func count(_ limit: Int) throws -> Int {
        let (condition, arguments) = stallsInRange()
        return try Int.fetchOne(
            database,
            sql: "SELECT count(*) FROM (SELECT 1 FROM stall WHERE \(condition) LIMIT ?)",
            arguments: arguments + [max(0, limit)]
        ) ?? 0
    }

    func reports(after last: StoredReport.Place?, _ limit: Int) throws -> [(place: StoredReport.Place, body: Data)] {
        let (condition, arguments) = stallsInRange()
        let rows = try Row.fetchCursor(
            database,
            sql: """
                SELECT id, started, report FROM stall JOIN body USING (number) WHERE \(condition) AND (started, id) > (?, ?)
                ORDER BY started, id LIMIT ?
                """,
            arguments: arguments + [last?.startedAt.sinceEpoch ?? 0, last?.id.description ?? "", max(0, limit)]
        )
        return try Self.page(rows) { row in
            guard let id = ULID(row["id"] as String) else { return nil }
            return (.init(startedAt: Timestamp(sinceEpoch: row["started"]), id: id), row["report"])
        }.map { (place: $0.0, body: $0.body) }
    }

    func stalls(
        of fingerprint: String?,
        before place: StoredReport.Place?,
        _ longestFirst: Bool,
        _ limit: Int
    ) throws -> [StoredStall] {
        var (condition, arguments) = stallsInRange(of: fingerprint)
        if let place {
            condition += " AND (started, id) < (?, ?)"
            arguments += [place.startedAt.sinceEpoch, place.id.description]
        }
        let rows = try Row.fetchAll(
            database,
            sql: """
                SELECT \(Self.stallColumns) FROM stall WHERE \(condition)
                ORDER BY \(longestFirst ? "duration DESC, id" : "started DESC, id DESC") LIMIT ?
                """,
            arguments: arguments + [max(0, limit)]
        )
        return rows.compactMap { StoredStall($0) }
    }

    func days(of fingerprint: String) throws -> [DayCount] {
        try fetch(
            .hours(query, of: [fingerprint], hasAliases: hasAliases()),
            """
            SELECT moment / \(SQLiteTime.dayNs) AS day, CAST(total(count) AS INTEGER) AS count, CAST(total(total) AS INTEGER) AS total
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

extension StoredStall {
    /// Nil if another version of the collector wrote the row in an unknown form.
    fileprivate init?(_ row: Row) {
        guard let id = ULID(row["id"] as String),
            let fingerprint = Fingerprint(rawValue: row["current"] ?? row["fingerprint"])
        else { return nil }
        self.init(
            id: id,
            fingerprint: fingerprint,
            startedAt: Timestamp(sinceEpoch: row["started"]),
            durationNs: row["duration"],
            isOver: ArrivedStall.isOver(row["version"]),
            verdict: Verdict(rawValue: row["verdict"]),
            service: row["service"],
            release: row["release"],
            host: row["host"],
            label: row["label"],
            culprit: row["culprit"]
        )
    }
}
