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

    /// Which fingerprints belong to one fault.
    func aliases(_ team: String) async throws -> FaultAliases {
        let pairs = try await ask(
            ["alias", "fingerprint", "max(rank) AS r"],
            """
            FROM \(table("alias")) WHERE team = \(SQLLiteral.text(team)) GROUP BY alias, fingerprint
            ORDER BY r DESC, alias, fingerprint LIMIT 50000
            """
        )
        return FaultAliases(pairs.map { ($0.text(0), $0.text(1)) })
    }
}
