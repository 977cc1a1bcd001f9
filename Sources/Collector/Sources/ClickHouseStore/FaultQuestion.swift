import StallReading
import StallReports
import StallStore

/// One query about faults. The parts of its range are determined once, for all its statements.
struct FaultQuestion: Sendable {
    private let store: ClickHouseStore
    private let query: StallQuery
    private let range: Range<Int64>
    /// The hours that have sums, and the ranges in which single stalls are counted.
    private let parts: (generations: [UInt64], raw: [Range<Int64>])
    private let settings: [(String, String)]
    let aliases: FaultAliases

    /// - Parameter isPartial: Whether shards that do not answer are skipped.
    init(_ store: ClickHouseStore, _ query: StallQuery, isPartial: Bool = false) async throws {
        (self.store, self.query, range) = (store, query, store.range(query))
        settings = isPartial ? [("skip_unavailable_shards", "1")] : []
        let range = range
        guard isPartial else {
            async let states = store.hourStates(query.team, range)
            async let names = store.aliases(query.team)
            (parts, aliases) = (try await states.split(range), try await names)
            return
        }
        // The shard that does not answer may have the state of the hours.
        parts = (try? await store.hourStates(query.team, range).split(range)) ?? ([], [range])
        aliases = (try? await store.aliases(query.team)) ?? FaultAliases()
    }

    func list(_ order: FaultOrder, _ limit: Int) async throws -> FaultList {
        let (watchedNs, runs) = try await watched()
        let faults = try await faults(of: nil, order, limit, watchedNs)
        return FaultList(faults: faults, watchedNs: watchedNs, runs: runs)
    }

    // MARK: The rows that are summed

    enum Rows {
        case faults
        /// With the host of each.
        case hosts
    }

    /// A table of rows `f, service, release, verdict, host, c, n, t, l, m, a, z`, also of stalls that run records only counted: fault, names,
    /// count, reports, total, longest, moment, first, last.
    private func rows(_ kind: Rows, of roots: [String]? = nil) -> String {
        var filters = SQLCondition.among(query.choices)
        if let roots { filters = filters && .among([("fingerprint", aliases.members(of: roots))]) }
        if let text = query.text, !text.isEmpty { filters = filters && named(text) }
        let filter = "team = \(SQLLiteral.text(query.team)) AND \(filters.sql)"
        var selects: [String] = []
        // One table of sums does not distinguish hosts.
        let isByHost = kind == .hosts || !query.hosts.isEmpty
        if !parts.generations.isEmpty {
            selects.append(
                """
                SELECT \(aliases.sql("fingerprint")) AS f, service, release, verdict, \(isByHost ? "host" : "'' AS host"), count AS c, reports AS n, total AS t,
                    longest AS l, toInt64(hour) * \(Hours.hourNs) + \(Hours.hourNs / 2) AS m, first AS a, last AS z
                FROM \(store.table(isByHost ? "sum_host" : "sum"))
                WHERE \(filter) AND day >= \(Hours.day(range.lowerBound)) AND day <= \(Hours.day(range.upperBound))
                    AND generation IN \(SQLLiteral.list(parts.generations))
                """
            )
        }
        selects.append(
            """
            SELECT \(aliases.sql("fingerprint")) AS f, service, release, verdict, host, count AS c, toInt64(1) AS n, total AS t, longest AS l,
                started AS m, started AS a, last AS z
            FROM \(store.table("stall")) FINAL WHERE \(filter) AND \(SQLCondition.began(in: parts.raw).sql)
            """
        )
        // A run record has no verdicts of its counted stalls.
        if query.verdicts.isEmpty { selects.append(counted(roots)) }
        return "(\(selects.joined(separator: " UNION ALL ")))"
    }

    /// Stalls without a report, as counted by the latest run records.
    private func counted(_ roots: [String]?) -> String {
        let release = "if(empty(counted_service), release, '')"
        var filter = SQLCondition.among([(release, query.releases), ("host", query.hosts)])
        if !query.services.isEmpty {
            let (list, array) = (SQLLiteral.list(query.services), SQLLiteral.array(query.services))
            filter =
                filter
                && SQLCondition(
                    "(empty(counted_service) AND service IN \(list) OR arrayExists(x -> has(\(array), x), counted_service))"
                )
        }
        var faults = SQLCondition.among([
            ("fp", roots.map { aliases.members(of: $0) } ?? []), ("s", query.services),
        ])
        if let text = query.text, !text.isEmpty { faults = faults && named(text, column: "fp") }
        return """
            SELECT \(aliases.sql("fp")) AS f, s AS service, r AS release, '' AS verdict, host, c, toInt64(0) AS n, t, l, z AS m, a, z
            FROM (
                SELECT \(release) AS r, host, counted.fingerprint AS fps, counted.count AS cs, counted.total AS ts,
                    counted.longest AS ls, counted.first AS firsts, counted.last AS lasts,
                    if(empty(counted_service), arrayMap(x -> service, counted.fingerprint), counted_service) AS names
                FROM \(store.table("run")) FINAL
                WHERE team = \(SQLLiteral.text(query.team)) AND notEmpty(counted.fingerprint) AND \(filter.sql)
                    AND \(store.runCondition(range))
            ) ARRAY JOIN fps AS fp, names AS s, cs AS c, ts AS t, ls AS l, firsts AS a, lasts AS z
            WHERE a >= \(range.lowerBound) AND a < \(range.upperBound) AND \(faults.sql)
            """
    }

    /// Faults whose latest culprit contains `text`.
    private func named(_ text: String, column: String = "fingerprint") -> SQLCondition {
        SQLCondition(
            """
            \(aliases.sql(column)) GLOBAL IN (
                SELECT \(aliases.sql("fn")) FROM (
                    SELECT fingerprint AS fn, argMaxMerge(culprit) AS name FROM \(store.table("fault"))
                    WHERE team = \(SQLLiteral.text(query.team)) GROUP BY fingerprint
                ) WHERE positionCaseInsensitive(name, \(SQLLiteral.text(text))) > 0)
            """
        )
    }

    private func ask(_ columns: [String], _ rest: String) async throws -> [TabbedAnswer.Row] {
        try await store.ask(columns, rest, settings: settings)
    }

    // MARK: Faults

    func faults(of roots: [String]?, _ order: FaultOrder, _ limit: Int, _ watchedNs: Int64) async throws -> [Fault] {
        let column =
            switch order {
            case .total: "total"
            case .count: "number"
            case .worst: "longest"
            case .last: "final"
            }
        let rows = try await ask(
            [
                "f", "\(SQLSum.saturated("c")) AS number", "\(SQLSum.saturated("n")) AS reports",
                "\(SQLSum.saturated("t")) AS total", "max(l) AS longest", "min(a) AS start", "max(z) AS final",
            ],
            "FROM \(rows(.faults, of: roots)) GROUP BY f ORDER BY \(column) DESC, f LIMIT \(max(0, limit))"
        )
        var (faults, order): ([String: Fault], [String]) = ([:], [])
        for row in rows {
            let name = row.text(0)
            let sums = try (1...6).map(row.number)
            faults[name] = Fault(name, (sums[0], sums[1], sums[2], sums[3], sums[4], sums[5]), watchedNs: watchedNs)
            order.append(name)
        }
        guard !order.isEmpty else { return [] }
        try await addDetails(to: &faults, order)
        return order.compactMap { faults[$0] }
    }

    private func addDetails(to faults: inout [String: Fault], _ roots: [String]) async throws {
        async let names = names(of: roots)
        async let groups = ask(
            ["f", "service", "release", "verdict", SQLSum.saturated("n")],
            "FROM \(rows(.faults, of: roots)) GROUP BY f, service, release, verdict"
        )
        async let hosts = ask(["f", "host", SQLSum.saturated("n")], "FROM \(rows(.hosts, of: roots)) GROUP BY f, host")
        async let trend = trend(of: roots)
        for row in try await names {
            let (name, place) = (row.text(0), row.text(2))
            faults[name]?.culprit = row.text(1)
            faults[name]?.place = place.isEmpty ? nil : place
            faults[name]?.latest = ULID(row.text(3))
        }
        for name in aliases.names { faults[aliases.root(name)]?.addAlias(name) }
        for row in try await groups {
            faults[row.text(0)]?.addReports(
                try row.number(4),
                service: row.text(1),
                release: row.text(2),
                verdict: row.text(3)
            )
        }
        for row in try await hosts { faults[row.text(0)]?.addReports(try row.number(2), host: row.text(1)) }
        for row in try await trend {
            faults[row.text(0)]?.addToTrend(try row.number(3), from: try row.number(1), to: try row.number(2))
        }
    }

    /// When each service and release had each fault for the first time in the range.
    func firsts() async throws -> [KnownFaults.First] {
        try await ask(["f", "service", "release", "min(a)"], "FROM \(rows(.faults)) GROUP BY f, service, release")
            .compactMap { row in
                guard let fingerprint = Fingerprint(rawValue: row.text(0)) else { return nil }
                return KnownFaults.First(
                    fingerprint: fingerprint,
                    service: row.text(1),
                    release: row.text(2),
                    firstAt: Timestamp(sinceEpoch: try row.number(3))
                )
            }
    }

    private func names(of roots: [String]) async throws -> [TabbedAnswer.Row] {
        let (members, root) = (SQLLiteral.list(aliases.members(of: roots)), aliases.sql("fn"))
        // A report that was sent without names, and again with them, is the latest of two fingerprints. That of the fault has the names.
        let rank = "concat(latest, toString(fn = \(root)))"
        return try await ask(
            ["\(root) AS f", "argMax(name, \(rank))", "argMax(site, \(rank))", "max(latest)"],
            """
            FROM (
                SELECT fingerprint AS fn, argMaxMerge(culprit) AS name, argMaxMerge(place) AS site, maxMerge(latest) AS latest
                FROM \(store.table("fault")) WHERE team = \(SQLLiteral.text(query.team)) AND fingerprint IN \(members) GROUP BY fingerprint
            ) GROUP BY f
            """
        )
    }

    private func trend(of roots: [String]) async throws -> [TabbedAnswer.Row] {
        let (since, length) = (query.since.sinceEpoch, query.until.nanoseconds(since: query.since))
        func part(of moment: String) -> String {
            "toInt64(floor(toFloat64(\(moment) - \(since)) / \(max(1, length)) * \(Trend.parts)))"
        }
        // Of stalls that were only counted, and of those of an hour, the first and the last moment are known. A stall began where it counts: its
        // end may be beyond its hour.
        let last = "if(n = 0, m, if(n = 1, a, least(z, m + \(Hours.hourNs / 2))))"
        return try await ask(
            ["f", "\(part(of: "a")) AS start", "\(part(of: last)) AS part", SQLSum.saturated("c")],
            "FROM \(rows(.faults, of: roots)) GROUP BY f, start, part"
        )
    }

    // MARK: Other queries

    /// The watched time, as recorded in the run records. A run that is only partly in the range counts with that part, and one that watches
    /// other processes with the time of the chosen services.
    func watched() async throws -> (ns: Int64, runs: Int) {
        let filter = SQLCondition.runs(query)
        let watched = query.services.isEmpty ? "watched" : watchedTime(of: SQLLiteral.array(query.services))
        let (since, until) = (query.since.sinceEpoch, query.until.sinceEpoch)
        let span = "toFloat64(least(toInt64(updated), \(until)) - greatest(started, \(since)))"
        let time = "\(watched) * (\(span) / greatest(toInt64(updated) - started, 1))"
        let rows = try await ask(
            ["count()", "toInt64(least(sum(\(time)), 9.2e18))"],
            """
            FROM \(store.table("run")) FINAL
            WHERE team = \(SQLLiteral.text(query.team)) AND \(filter.sql) AND \(store.runCondition(range))
            """
        )
        guard let row = rows.first else { return (0, 0) }
        return (try row.number(1), Int(try row.number(0)))
    }

    /// Of a row of `run`.
    private func watchedTime(of services: String) -> String {
        """
        if(empty(watched_service), toFloat64(watched), arraySum(arrayMap(
            (name, time) -> if(has(\(services), name), toFloat64(time), toFloat64(0)), watched_service, watched_time)))
        """
    }

    func days(of root: String) async throws -> [DayCount] {
        try await ask(
            ["intDiv(m, \(Hours.dayNs)) AS d", SQLSum.saturated("c"), SQLSum.saturated("t")],
            "FROM \(rows(.faults, of: [root])) GROUP BY d ORDER BY d"
        ).map { row in
            DayCount(
                day: Timestamp(seconds: try row.number(0) * 86400),
                count: try row.number(1),
                totalNs: try row.number(2)
            )
        }
    }

    func services() async throws -> [ServiceSum] {
        try await ask(
            ["service", SQLSum.saturated("c"), "\(SQLSum.saturated("t")) AS total"],
            "FROM \(rows(.faults)) GROUP BY service ORDER BY total DESC, service"
        ).map { row in
            ServiceSum(name: row.text(0), count: try row.number(1), totalNs: try row.number(2))
        }
    }

    func names(_ column: String, _ kind: Rows) async throws -> [String] {
        try await ask(
            [column, "\(SQLSum.saturated("n")) AS reports"],
            "FROM \(rows(kind)) WHERE \(column) <> '' GROUP BY \(column) ORDER BY reports DESC, \(column) LIMIT \(Fault.nameLimit)"
        ).map { $0.text(0) }
    }
}
