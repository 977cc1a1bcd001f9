import Foundation
import GRDB
import StallReports

/// Queries within one transaction, so that all results are from the same moment.
struct SQLiteQuestion {
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

    /// The watched time, as recorded in the run records. A run that is only partly in the range counts with that part, and one that watches
    /// other processes with the time of the chosen services.
    func watched() throws -> (ns: Int64, runs: Int) {
        let (condition, arguments) = runsInRange
        let (since, until) = (query.since.sinceEpoch, query.until.sinceEpoch)
        let time = watchedTime
        let row = try Row.fetchOne(
            database,
            sql: """
                SELECT count(*) AS runs, CAST(total(
                    \(time.sql) * (1.0 * (min(updated, ?) - max(started, ?)) / max(updated - started, 1))
                ) AS INTEGER) AS watched
                FROM run WHERE \(condition)
                """,
            arguments: time.arguments + [until, since] + arguments
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
        while bytes < DocumentPage.bytes, let row = try rows.next() {
            guard let document = document(row) else { continue }
            page.append(document)
            bytes = bytes.addingSaturated(document.body.count)
        }
        return page
    }

    private var runsInRange: (sql: String, arguments: StatementArguments) {
        let range = "team = ? AND updated > ? AND started < ?"
        let arguments: StatementArguments = [query.team, query.since.sinceEpoch, query.until.sinceEpoch]
        let own = Self.among(query.runChoices)
        // The releases of what a run watches from outside are not known.
        guard !query.services.isEmpty, query.releases.isEmpty else {
            return (range + own.sql, arguments + own.arguments)
        }
        let (services, hosts) = (Self.among([("service", query.services)]), Self.among([("host", query.hosts)]))
        return (
            """
            \(range)\(hosts.sql) AND id IN (
                SELECT id FROM run WHERE \(range)\(services.sql) UNION ALL SELECT run FROM watched_service WHERE team = ?\(services.sql)
            )
            """,
            arguments + hosts.arguments + arguments + services.arguments + [query.team] + services.arguments
        )
    }

    /// The watched time of a row of `run`.
    private var watchedTime: (sql: String, arguments: StatementArguments) {
        guard !query.services.isEmpty else { return ("watched", []) }
        let services = Self.among([("service", query.services)])
        let rows = "FROM watched_service AS part WHERE part.team = run.team AND part.run = run.id"
        // A name without a table is that of the innermost one.
        return (
            "CASE WHEN EXISTS (SELECT 1 \(rows)) THEN (SELECT total(time) \(rows)\(services.sql)) ELSE watched END",
            services.arguments
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
}

extension StoredStall {
    /// Nil if another version of the collector wrote the row in an unknown form.
    init?(_ row: Row) {
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
