import Foundation
import StallReports
public import StallStore
import Synchronization

extension ClickHouseStore {
    /// Writes reports, then run records. An insert that failed may be repeated.
    public func insert(_ arrivals: [Arrival]) async throws -> Int {
        var (stalls, runs): ([ArrivedStall], [ArrivedRun]) = ([], [])
        let horizonNs = horizonNs
        for arrival in arrivals {
            switch arrival {
            // Older stalls would be removed at once, so no partition is created for them.
            case .stall(let stall): if stall.startedNs >= horizonNs { stalls.append(stall) }
            case .run(let run): if run.updatedNs >= horizonNs { runs.append(run) }
            }
        }
        return try await ClickHouseWriter(self).insert(stalls) + ClickHouseWriter(self).insert(runs)
    }
}

/// Writes the arrivals of one insert.
///
/// The order of the writes makes it safe to interrupt and repeat an insert at any point: hours are announced first
/// (``HourStates``), a report is written before its stall, and what is already stored visibly is not written again, except with a
/// quorum. Two collectors that write at the same time write the same rows, and readers count one of them.
struct ClickHouseWriter {
    private let store: ClickHouseStore

    init(_ store: ClickHouseStore) { self.store = store }

    /// - Returns: The number of stalls that were new, or newer than the stored versions.
    func insert(_ stalls: [ArrivedStall]) async throws -> Int {
        guard !stalls.isEmpty else { return 0 }
        try await store.touch(Set(stalls.map { HourKey(team: $0.team, hour: Hours.hour($0.startedNs)) }))
        let known = try await known(stalls)
        var (newest, changes, versions): ([StallKey: ArrivedStall], Int, [StallKey: UInt64]) = ([:], 0, [:])
        for stall in stalls {
            let (key, version) = (StallKey(stall), UInt64(stall.version))
            guard versions[key].map({ version > $0 }) ?? isDue(version, stored: known[key]) else { continue }
            (versions[key], newest[key]) = (version, stall)
            if known[key].map({ version > $0 }) ?? true { changes += 1 }
        }
        guard !newest.isEmpty else { return 0 }
        // Sorted by the tables' keys, so that the same stalls always make the same block.
        let sorted = newest.sorted { $0.key < $1.key }.map(\.value)
        let first = store.state.withLock { $0.arrivals.begin(sorted.count) }
        defer { store.state.withLock { $0.arrivals.end(first) } }
        // Numbered in the order of their arrival. A stall that changes gets a new number: readers are behind its old one.
        var numbers: [StallKey: UInt64] = [:]
        for stall in stalls where numbers[StallKey(stall)] == nil && newest[StallKey(stall)] != nil {
            numbers[StallKey(stall)] = first + UInt64(numbers.count)
        }
        let parts = ClickHouseStore.parts(sorted) { Hours.day($0.startedNs) }
        for part in parts { try await insertBodies(part) }
        try await insertAliases(sorted)
        for part in parts { try await insertRows(part, numbers) }
        return changes
    }

    private func isDue(_ version: UInt64, stored: UInt64?) -> Bool {
        Self.isDue(version, stored: stored, quorum: store.address.quorum)
    }

    /// Whether a version must be written before it is acknowledged.
    ///
    /// With a quorum, a stored version is written again: an insert that failed may have left it on one replica only, and the servers
    /// wait for the others only when something is written.
    static func isDue(_ version: UInt64, stored: UInt64?, quorum: Int) -> Bool {
        guard let stored else { return true }
        return quorum > 0 ? version >= stored : version > stored
    }

    private struct StallKey: Hashable, Comparable {
        let team: String
        let hour: Int64
        let id: String

        init(_ stall: ArrivedStall) {
            (team, hour, id) = (stall.team, Hours.hour(stall.startedNs), stall.id.description)
        }

        init(team: String, hour: Int64, id: String) { (self.team, self.hour, self.id) = (team, hour, id) }

        static func < (left: Self, right: Self) -> Bool {
            (left.hour / 24, left.team, left.hour, left.id) < (right.hour / 24, right.team, right.hour, right.id)
        }
    }

    /// Returns the stored versions of these stalls.
    private func known(_ stalls: [ArrivedStall]) async throws -> [StallKey: UInt64] {
        var known: [StallKey: UInt64] = [:]
        for (team, stalls) in Dictionary(grouping: stalls, by: \.team) {
            let hours = Set(stalls.map { Hours.hour($0.startedNs) })
            let rows = try await store.ask(
                ["toInt64(hour)", "id", "max(version)"],
                """
                FROM \(store.table("stall"))
                WHERE team = \(SQLLiteral.text(team)) AND day IN \(SQLLiteral.list(Set(hours.map { $0 / 24 }).sorted()))
                    AND hour IN \(SQLLiteral.list(hours.sorted())) AND id IN \(SQLLiteral.list(Set(stalls.map(\.id.description)).sorted()))
                GROUP BY hour, id
                """
            )
            for row in rows {
                let key = StallKey(team: team, hour: try row.number(0), id: row.text(1))
                known[key] = try row.unsigned(2)
            }
        }
        return known
    }

    private func insertBodies(_ stalls: [ArrivedStall]) async throws {
        var rows = TabbedRows(into: "\(store.table("body")) (team, day, id, version, report)")
        for stall in stalls {
            rows.add(stall.team)
            rows.add(Hours.day(stall.startedNs))
            rows.add(stall.id.description)
            rows.add(stall.version)
            rows.add(plain: Data(stall.body).base64EncodedData())
            rows.endRow()
        }
        try await store.insert(rows)
    }

    private func insertRows(_ stalls: [ArrivedStall], _ numbers: [StallKey: UInt64]) async throws {
        var rows = TabbedRows(
            into: """
                \(store.table("stall")) (team, day, hour, id, version, arrived, started, last, duration, count, total, longest, service, release, \
                host, label, verdict, fingerprint, culprit, place)
                """
        )
        for stall in stalls {
            let key = StallKey(stall)
            rows.add(stall.team)
            rows.add(Hours.day(stall.startedNs))
            rows.add(key.hour)
            rows.add(key.id)
            rows.add(stall.version)
            rows.add(numbers[key] ?? 0)
            for number in [
                stall.startedNs, stall.lastNs, stall.durationNs, stall.count, stall.totalNs, stall.longestNs,
            ] {
                rows.add(number)
            }
            for text in [
                stall.service, stall.release, stall.host, stall.label, stall.verdict, stall.fingerprint, stall.culprit,
                stall.place,
            ] { rows.add(text) }
            rows.endRow()
        }
        try await store.insert(rows)
    }

    /// Writes each pair that this collector has not yet written.
    private func insertAliases(_ stalls: [ArrivedStall]) async throws {
        let pairs = stalls.flatMap { stall in
            stall.aliases.map { AliasKey(team: stall.team, alias: $0, fingerprint: stall.fingerprint) }
        }
        let new = store.state.withLock { state in Set(pairs).subtracting(state.aliases) }
        guard !new.isEmpty else { return }
        var rows = TabbedRows(into: "\(store.table("alias")) (team, alias, fingerprint, rank)")
        var added: Set<AliasKey> = []
        for pair in pairs where new.contains(pair) && added.insert(pair).inserted {
            for text in [pair.team, pair.alias, pair.fingerprint] { rows.add(text) }
            // The earliest pair has the greatest rank.
            rows.add(UInt64.max / 2 - store.nextVersion())
            rows.endRow()
        }
        try await store.insert(rows)
        store.state.withLock { state in
            if state.aliases.count > 100_000 { state.aliases = [] }
            state.aliases.formUnion(new)
        }
    }

    // MARK: Runs

    /// - Returns: The number of records that were new, or newer than the stored versions.
    func insert(_ runs: [ArrivedRun]) async throws -> Int {
        guard !runs.isEmpty else { return 0 }
        let known = try await known(runs)
        var (newest, changes): ([RunKey: ArrivedRun], Int) = ([:], 0)
        for run in runs {
            let key = RunKey(team: run.team, id: run.id.description)
            let (stored, latest) = (known[key], newest[key].map { ($0.updatedNs, $0.watchedNs, $0.isRunning) })
            // With a quorum, a stored record is written again, as a stall is.
            let again = store.address.quorum > 0 && latest == nil
            guard let run = run.replacing(latest ?? stored, again: again) else { continue }
            newest[key] = run
            if stored.map({ run.updatedNs > $0.updatedNs }) ?? true { changes += 1 }
        }
        let sorted = newest.values.sorted {
            (Hours.day($0.updatedNs), $0.team, $0.id.description) < (
                Hours.day($1.updatedNs), $1.team, $1.id.description
            )
        }
        for part in ClickHouseStore.parts(sorted, day: { Hours.day($0.updatedNs) }) { try await insertRows(part) }
        return changes
    }

    /// What the store knows of these runs.
    private func known(_ runs: [ArrivedRun]) async throws -> [RunKey: ArrivedRun.Known] {
        var known: [RunKey: ArrivedRun.Known] = [:]
        for (team, runs) in Dictionary(grouping: runs, by: \.team) {
            let rows = try await store.ask(
                ["id", "toInt64(max(updated))", "argMax(watched, updated)", "argMax(running, updated)"],
                """
                FROM \(store.table("run")) WHERE team = \(SQLLiteral.text(team))
                    AND id IN \(SQLLiteral.list(Set(runs.map(\.id.description)).sorted())) GROUP BY id
                """
            )
            for row in rows {
                known[RunKey(team: team, id: row.text(0))] = (
                    try row.number(1), try row.number(2), try row.number(3) != 0
                )
            }
        }
        return known
    }

    private struct RunKey: Hashable {
        let team: String
        let id: String
    }

    private func insertRows(_ runs: [ArrivedRun]) async throws {
        var rows = TabbedRows(
            into: """
                \(store.table("run")) (team, day, id, updated, started, watched, service, release, host, running, body, counted.fingerprint, \
                counted.count, counted.total, counted.longest, counted.first, counted.last, counted_service, watched_service, watched_time)
                """
        )
        for run in runs {
            rows.add(run.team)
            rows.add(Hours.day(run.updatedNs))
            rows.add(run.id.description)
            for number in [run.updatedNs, run.startedNs, run.watchedNs] { rows.add(number) }
            for text in [run.service, run.release, run.host] { rows.add(text) }
            rows.add(run.isRunning ? 1 : 0)
            rows.add(plain: Data(run.body).base64EncodedData())
            rows.add(run.counted.map(\.fingerprint))
            let columns: [KeyPath<ArrivedRun.Counted, Int64>] = [\.count, \.totalNs, \.longestNs, \.firstNs, \.lastNs]
            for column in columns { rows.add(run.counted.map { $0[keyPath: column] }) }
            let isOwn = run.counted.allSatisfy { ($0.service, $0.release) == (run.service, run.release) }
            rows.add(isOwn ? [] : run.counted.map(\.service))
            rows.add(run.watchedServices.map(\.service))
            rows.add(run.watchedServices.map(\.watchedNs))
            rows.endRow()
        }
        try await store.insert(rows)
    }
}
