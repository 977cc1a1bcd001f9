public import StallReports
public import StallStore

extension ClickHouseStore {
    /// Queries stop showing stalls at the hour of `moment`; the servers' disks are freed by whole days. The latest day is kept,
    /// whatever its size.
    ///
    /// This also makes the sums of hours that are complete (``HourStates``).
    public func removeOld(before moment: Timestamp, maximumBytes: Int64?) async throws -> Int {
        let removal: Result<Int, any Error>
        do {
            removal = .success(try await remove(before: moment, maximumBytes))
        } catch {
            removal = .failure(error)
        }
        try await settle()
        return try removal.get()
    }

    private func remove(before moment: Timestamp, _ maximumBytes: Int64?) async throws -> Int {
        try await readHorizon()
        var removed = try await hide(before: Hours.hour(max(0, moment.sinceEpoch)) * Hours.hourNs)
        try await dropDays()
        while let maximumBytes, try await usedBytes() > maximumBytes {
            let days = try await days(of: "stall")
            // The latest day can be tomorrow, by a sender's clock. What arrives today would then be accepted, and not be shown.
            guard days.count > 1, days[0] < Hours.day(Timestamp.now().sinceEpoch) else { break }
            // It was dropped before, and a replica that lags behind still has it: its space is freed later.
            guard days[0] >= Hours.day(horizonNs) else { break }
            removed += try await hide(before: Int64(days[0] + 1) * Hours.dayNs)
            try await dropDays()
        }
        return removed
    }

    /// The bytes of one replica of each shard, and the rows of all teams.
    public func size() async throws -> StoreSize {
        let horizonNs = horizonNs
        let runs = try await ask(
            ["uniqExact(team, id)"],
            "FROM \(table("run")) WHERE day >= \(Hours.day(horizonNs)) AND updated >= \(horizonNs)"
        )
        return StoreSize(
            bytes: try await usedBytes(),
            stalls: try await stalls(horizonNs..<Int64.max),
            runs: try runs.first?.number(0) ?? 0
        )
    }

    /// The number of rows of all teams.
    private func stalls(_ range: Range<Int64>) async throws -> Int64 {
        guard !range.isEmpty else { return 0 }
        let hours = Hours.hour(range.lowerBound)...Hours.hour(range.upperBound - 1)
        var selects = ["SELECT toInt64(0) AS n"]
        for (team, states) in try await hourStates(SQLCondition("1"), hours) {
            let (generations, raw) = states.split(range)
            let condition = "team = \(SQLLiteral.text(team))"
            if !generations.isEmpty {
                selects.append(
                    "SELECT toInt64(sum(reports)) AS n FROM \(table("sum")) WHERE \(condition) AND generation IN \(SQLLiteral.list(generations))"
                )
            }
            // Hours that no collector has announced have no rows.
            let touched = raw.map { $0.clamped(to: 0..<(states.lastHour + 1) * Hours.hourNs) }
            selects.append(
                "SELECT toInt64(count()) AS n FROM \(table("stall")) FINAL WHERE \(condition) AND \(SQLCondition.began(in: touched).sql)"
            )
        }
        let rows = try await ask(["toInt64(sum(n))"], "FROM (\(selects.joined(separator: " UNION ALL ")))")
        return try rows.first?.number(0) ?? 0
    }

    // MARK: The horizon

    func readHorizon() async throws {
        let rows = try await ask(["toInt64(max(before))"], "FROM \(table("horizon")) WHERE name = 'stall'")
        let before = try rows.first?.number(0) ?? 0
        raiseHorizon(to: before)
    }

    /// - Returns: The number of stalls that are not shown any more.
    private func hide(before moment: Int64) async throws -> Int {
        let known = horizonNs
        guard moment > known else { return 0 }
        let removed = try await stalls(known..<moment)
        var rows = TabbedRows(into: "\(table("horizon")) (name, before)")
        rows.add("stall")
        rows.add(moment)
        rows.endRow()
        try await insert(rows)
        raiseHorizon(to: moment)
        return Int(removed)
    }

    /// Drops the partitions that are completely before the horizon.
    ///
    /// - Throws: After the others were dropped, if the server refuses to drop one, which can be too large for it
    ///   (`max_partition_size_to_drop`).
    private func dropDays() async throws {
        let end = Hours.day(horizonNs)
        var refusal: ClickHouseError?
        for name in ClickHouseSchema.aged {
            for day in try await days(of: name) where day < end {
                let cluster = schema.cluster.map { " ON CLUSTER \($0)" } ?? ""
                var statement = ClickHouseClient.Statement(
                    "ALTER TABLE \(schema.local(name))\(cluster) DROP PARTITION \(day)"
                )
                statement.timeout = .seconds(60)
                do {
                    _ = try await client.send(statement)
                } catch let error as ClickHouseError where error.code != nil {
                    refusal = refusal ?? error
                }
            }
        }
        if let refusal { throw refusal }
    }

    /// The days for which any shard has a partition of the table.
    private func days(of name: String) async throws -> [Int64] {
        let local = schema.local(name).split(separator: ".").last ?? ""
        return try await ask(
            ["toInt64(partition) AS d"],
            """
            FROM \(systemParts) WHERE active AND database = \(SQLLiteral.text(schema.database)) AND table = \(SQLLiteral.text(String(local)))
            GROUP BY d ORDER BY d
            """
        ).map { try $0.number(0) }
    }

    /// The bytes on one replica of each shard.
    private func usedBytes() async throws -> Int64 {
        let rows = try await ask(
            ["toInt64(sum(bytes_on_disk))"],
            "FROM \(systemParts) WHERE active AND database = \(SQLLiteral.text(schema.database))"
        )
        return try rows.first?.number(0) ?? 0
    }

    private var systemParts: String { schema.cluster.map { "cluster('\($0)', system, parts)" } ?? "system.parts" }
}
