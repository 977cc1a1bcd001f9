import Foundation
public import StallReading
public import StallReports
public import StallStore

extension ClickHouseStore {
    /// If a shard does not answer, returns the faults of the other shards, marked as partial.
    public func faults(_ query: StallQuery, by order: FaultOrder, limit: Int) async throws -> FaultList {
        try await wholeOrPartial { isPartial in
            var list = try await FaultQuestion(self, query, isPartial: isPartial).list(order, limit)
            list.isPartial = isPartial
            return list
        }
    }

    /// Sums one fault over all its fingerprints.
    public func fault(_ fingerprint: Fingerprint, _ query: StallQuery) async throws -> Fault? {
        let question = try await FaultQuestion(self, query)
        async let watched = question.watched()
        let root = question.aliases.root(fingerprint.rawValue)
        return try await question.faults(of: [root], .total, 1, watched.ns).first
    }

    /// Counts the stalls by day and by all fingerprints of the fault.
    public func days(of fingerprint: Fingerprint, _ query: StallQuery) async throws -> [DayCount] {
        let question = try await FaultQuestion(self, query)
        return try await question.days(of: question.aliases.root(fingerprint.rawValue))
    }

    /// Sums all faults of each service. If a shard does not answer, those of the other shards, marked as partial.
    public func services(_ query: StallQuery) async throws -> ServiceList {
        try await wholeOrPartial { isPartial in
            let services = try await FaultQuestion(self, query, isPartial: isPartial).services()
            return ServiceList(services: services, isPartial: isPartial)
        }
    }

    /// Reads at most 256 names of each kind.
    public func choices(_ query: StallQuery) async throws -> Choices {
        let everything = StallQuery(team: query.team, since: query.since, until: query.until)
        return try await wholeOrPartial { isPartial in
            var choices = try await choices(FaultQuestion(self, everything, isPartial: isPartial))
            choices.isPartial = isPartial
            return choices
        }
    }

    /// If a shard has no replica that answers, the other shards' answers are still useful, provided that the result says that it is
    /// partial.
    private func wholeOrPartial<Answer: Sendable>(
        _ ask: (_ isPartial: Bool) async throws -> Answer
    ) async throws -> Answer {
        do {
            return try await ask(false)
        } catch let error as ClickHouseError where error.isPartOfClusterGone && schema.cluster != nil {
            return try await ask(true)
        }
    }

    private func choices(_ question: FaultQuestion) async throws -> Choices {
        async let services = question.names("service", .faults)
        async let releases = question.names("release", .faults)
        async let verdicts = question.names("verdict", .faults)
        async let hosts = question.names("host", .hosts)
        var choices = Choices()
        (choices.services, choices.releases) = try await (services, releases)
        (choices.verdicts, choices.hosts) = try await (verdicts, hosts)
        return choices
    }

    /// Which fingerprints belong to one fault. Pairs are never removed: of very many, the latest count.
    func aliases(_ team: String) async throws -> FaultAliases {
        let pairs = try await ask(
            ["alias", "fingerprint", "max(rank) AS r"],
            """
            FROM \(table("alias")) WHERE team = \(SQLLiteral.text(team)) GROUP BY alias, fingerprint
            ORDER BY r, alias DESC, fingerprint DESC LIMIT 50000
            """
        )
        return FaultAliases(pairs.reversed().map { ($0.text(0), $0.text(1)) })
    }
}

extension ClickHouseStore {
    /// Reads the greatest version of each stall.
    public func stalls(
        _ query: StallQuery,
        of fingerprint: Fingerprint?,
        before place: StoredReport.Place?,
        longestFirst: Bool,
        limit: Int
    ) async throws -> [StoredStall] {
        var search = StallSearch(self, query.ending(at: place), longestFirst ? .longest : .latest)
        search.bound = place
        if let fingerprint {
            let aliases = try await aliases(query.team)
            search.fingerprints = aliases.members(of: [aliases.root(fingerprint.rawValue)])
            search.aliases = aliases
        } else {
            search.aliases = try await aliases(query.team)
        }
        return try await search.found(limit)
    }

    /// Reads the greatest version of the report.
    public func report(_ id: ULID, team: String) async throws -> [UInt8]? {
        let day = Hours.day(horizonNs)
        let rows = try await ask(
            ["report"],
            """
            FROM \(table("body")) WHERE team = \(SQLLiteral.text(team)) AND id = \(SQLLiteral.text(id.description)) AND day >= \(day)
            ORDER BY version DESC LIMIT 1
            """
        )
        return try rows.first.map { try unpacked($0.bytes(0)) }
    }

    /// Reads the greatest version of each report, in pages of limited size.
    public func reports(
        _ query: StallQuery,
        after last: StoredReport.Place?,
        limit: Int
    ) async throws -> [StoredReport] {
        var search = StallSearch(self, query, .earliest)
        search.bound = last
        while true {
            let stalls = try await search.found(limit)
            guard !stalls.isEmpty else { return [] }
            let days = Set(stalls.map { Hours.day($0.startedAt.sinceEpoch) }).sorted()
            let (asked, bodies) = try await bodies(
                of: stalls.map(\.id.description),
                "report",
                """
                FROM \(table("body")) FINAL
                WHERE team = \(SQLLiteral.text(query.team)) AND day IN \(SQLLiteral.list(days))
                """
            )
            let packed = stalls.compactMap { stall in
                bodies[stall.id.description].map { (place: stall.place, body: $0) }
            }
            // All of these were removed meanwhile. That does not mean that there are no more.
            if packed.isEmpty, asked > 0 {
                search.bound = stalls[asked - 1].place
                continue
            }
            return try DocumentPage.first(of: packed, size: \.json.count) {
                StoredReport(place: $0.place, json: try unpacked($0.body))
            }
        }
    }

    /// The packed documents of the first of these ids, as many as fit into a page.
    ///
    /// - Parameter rows: Where they are, without a condition for the ids.
    /// - Returns: The number of these ids, and the documents that are there.
    private func bodies(
        of ids: [String],
        _ column: String,
        _ rows: String
    ) async throws -> (asked: Int, found: [String: [UInt8]]) {
        func ask(_ value: String, _ ids: [String]) async throws -> [TabbedAnswer.Row] {
            try await self.ask(["id", value], "\(rows) AND id IN \(SQLLiteral.list(ids))")
        }
        // The sizes come first: all documents together can be too large for the memory.
        let sizes = try await ask("length(\(column))", ids).map { ($0.text(0), Int(try $0.number(1))) }
        let sizeOf = Dictionary(sizes) { first, _ in first }
        let first = DocumentPage.first(of: ids, size: { sizeOf[$0] ?? 0 }) { $0 }
        let found = try await ask(column, first).map { ($0.text(0), $0.bytes(1)) }
        return (first.count, Dictionary(found) { first, _ in first })
    }

    /// Reads the greatest version of each run record, in pages of limited size.
    public func runs(_ query: StallQuery, after last: ULID?, limit: Int) async throws -> [StoredRun] {
        let filter = SQLCondition.runs(query)
        let team = "team = \(SQLLiteral.text(query.team))"
        var after = last?.description ?? ""
        while true {
            let ids = try await ask(
                ["id"],
                """
                FROM \(table("run")) FINAL WHERE \(team) AND id > \(SQLLiteral.text(after)) AND \(filter.sql)
                    AND \(runCondition(range(query))) ORDER BY id LIMIT \(max(0, limit))
                """
            ).map { $0.text(0) }
            guard !ids.isEmpty else { return [] }
            let (asked, bodies) = try await bodies(of: ids, "body", "FROM \(table("run")) FINAL WHERE \(team)")
            let packed = ids.compactMap { id in
                ULID(id).flatMap { id in bodies[id.description].map { (id: id, body: $0) } }
            }
            // As with reports.
            if packed.isEmpty, asked > 0 {
                after = ids[asked - 1]
                continue
            }
            return try DocumentPage.first(of: packed, size: \.json.count) {
                StoredRun(id: $0.id, json: try unpacked($0.body))
            }
        }
    }

    /// Counts rows. Versions of one stall count once.
    public func count(_ query: StallQuery, limit: Int) async throws -> Int {
        let filter = SQLCondition.among(query.choices) && .named(query.text)
        // Another version of a stall may have another verdict or culprit. All other filtered columns stay the same.
        let isFinal = !query.verdicts.isEmpty || !(query.text ?? "").isEmpty
        let rows = try await ask(
            ["count()"],
            """
            FROM (
                SELECT \(isFinal ? "" : "DISTINCT ")id FROM \(table("stall"))\(isFinal ? " FINAL" : "")
                WHERE team = \(SQLLiteral.text(query.team)) AND \(SQLCondition.began(in: [range(query)]).sql) AND \(filter.sql)
                LIMIT \(max(0, limit))
            )
            """
        )
        return Int(try rows.first?.number(0) ?? 0)
    }

    /// Returns only stalls before all inserts in progress, so that a reader does not miss one that becomes visible later.
    public func arrivals(
        team: String,
        after place: Int64,
        limit: Int
    ) async throws -> [(place: Int64, stall: StoredStall)] {
        var place = max(0, place)
        while true {
            let rows = try await feed(team, after: place, limit)
            guard let last = rows.last else { return [] }
            let found = try await stalls(of: rows, team)
            if !found.isEmpty { return found }
            // All of these were removed. That does not mean that there are no more.
            place = try last.number(0)
        }
    }

    private func feed(_ team: String, after place: Int64, _ limit: Int) async throws -> [TabbedAnswer.Row] {
        let bound = visibleBound
        func rows(_ condition: String, _ limit: Int) async throws -> [TabbedAnswer.Row] {
            try await ask(
                ["toInt64(arrived)", "toInt64(hour)", "id"],
                """
                FROM \(table("feed")) FINAL
                WHERE team = \(SQLLiteral.text(team)) AND day >= \(place / 86_400_000_000) AND arrived < \(bound) AND \(condition)
                ORDER BY arrived, id LIMIT \(max(0, limit))
                """
            )
        }
        let page = try await rows("arrived > \(place)", limit)
        guard page.count >= limit, let last = try page.last?.number(0) else { return page }
        // Several collectors may have used the last number. A reader continues after it, so all its rows belong to this page.
        return try await page.filter { try $0.number(0) < last } + rows("arrived = \(last)", 10_000)
    }

    private func stalls(of rows: [TabbedAnswer.Row], _ team: String) async throws -> [(
        place: Int64, stall: StoredStall
    )] {
        // The rows are known by their hours: the range has no effect.
        let everything = StallQuery(team: team, since: Timestamp(seconds: 0), until: .now())
        var search = StallSearch(self, everything, .latest)
        search.aliases = try await aliases(team)
        let stalls = try await search.rows(rows.map { (try $0.number(1), $0.text(2)) })
        let byId = Dictionary(stalls.map { ($0.id.description, $0) }, uniquingKeysWith: { first, _ in first })
        return try rows.compactMap { row in try byId[row.text(2)].map { (try row.number(0), $0) } }
    }

    /// The bound before which all arrivals are visible. A stall that arrives during a query may be returned again by the next
    /// one.
    public func lastPlace() async throws -> Int64 {
        Int64(clamping: visibleBound) - 1
    }

    /// The query's range without stalls that are too old to be shown.
    func range(_ query: StallQuery) -> Range<Int64> {
        let since = max(query.since.sinceEpoch, horizonNs, 0)
        return since..<max(since, query.until.sinceEpoch)
    }

    /// Selects runs that are at least partly in a range.
    func runCondition(_ range: Range<Int64>) -> String {
        "day >= \(Hours.day(range.lowerBound)) AND updated > \(range.lowerBound) AND started < \(range.upperBound)"
    }

    func unpacked(_ body: [UInt8]) throws -> [UInt8] {
        guard let packed = Data(base64Encoded: Data(body)) else {
            throw ClickHouseError(garbled: "a report is no Base64")
        }
        return try ArrivedDocument.unpacked([UInt8](packed))
    }
}
