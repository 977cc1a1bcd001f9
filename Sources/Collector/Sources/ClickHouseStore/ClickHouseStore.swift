import Foundation
import StallReports
public import StallStore
import Synchronization

/// A store on ClickHouse servers: one server, or a cluster with shards and replicas. Any number of collectors may use it at once.
///
/// A stall is acknowledged when one server has it, or as many replicas as the address demands.
public final class ClickHouseStore: StallStore {
    let client: ClickHouseClient
    let schema: ClickHouseSchema
    let address: ClickHouseAddress
    /// Unique for each start of a collector.
    let name = ULID.make().description
    let state = Mutex(State())

    struct State {
        /// Nanoseconds since 1970: stalls that started earlier are removed.
        var horizonNs: Int64 = 0
        var arrivals = ArrivalClock()
        /// The hours that this collector has announced, and until when it may write to them without a new announcement.
        var touched: [HourKey: ContinuousClock.Instant] = [:]
        /// The number of touches of an hour, and since when this collector has seen that number.
        var seen: [HourKey: (touches: UInt64, since: ContinuousClock.Instant)] = [:]
        var tokens = 0
        var aliases: Set<AliasKey> = []
        var lastVersion: UInt64 = 0
    }

    /// Creates the database and its tables if they do not exist, and migrates older ones.
    ///
    /// - Throws: ``StoreError``.
    public init(_ address: ClickHouseAddress) async throws(StoreError) {
        (self.address, schema) = (address, ClickHouseSchema(address))
        client = ClickHouseClient(address)
        do {
            try await migrate()
            try await readHorizon()
            try await readLastVersion()
        } catch let error as StoreError {
            throw error
        } catch {
            throw StoreError("the store \(address) cannot be used: \(error)")
        }
    }

    /// If all steps were executed before, nothing is changed, so a server of the cluster may be down.
    private func migrate() async throws {
        let known: UInt64
        do {
            known = try await ask(["toUInt64(max(number))"], "FROM \(table("migration"))").first?.unsigned(0) ?? 0
        } catch let error as ClickHouseError where [60, 81].contains(error.code) {
            // The table or the database does not exist yet.
            known = 0
            try await define(schema.createDatabase, inDatabase: false)
        }
        guard known <= schema.steps.count else {
            throw StoreError(
                "\(address) was made by a newer version of the collector; run that one, or give another database"
            )
        }
        try await execute(stepsAfter: Int(known))
    }

    func execute(stepsAfter known: Int) async throws {
        let steps = schema.steps
        // The table of steps is created last by the first step.
        for number in known..<steps.count {
            for statement in steps[number] {
                do {
                    try await define(statement)
                } catch let error as ClickHouseError where error.code == 62 && statement.hasPrefix("ALTER") {
                    try await addColumn(statement.replacing(" IF NOT EXISTS", with: ""))
                }
            }
            var rows = TabbedRows(into: "\(table("migration")) (number)")
            rows.add(number + 1)
            rows.endRow()
            try await insert(rows)
        }
    }

    /// For servers that do not know `IF NOT EXISTS` here, as 18.16. On a cluster one that has the column hides another one's error.
    private func addColumn(_ statement: String) async throws {
        do {
            try await define(statement)
        } catch let error as ClickHouseError where [15, 44].contains(error.code) {
            // The column exists: 44 in 18.16, 15 in later versions.
        }
    }

    /// The clock of an earlier collector may have been ahead: changes of its alerts with smaller versions would be ignored, and their
    /// receivers told again and again.
    private func readLastVersion() async throws {
        let last = try await ask(["max(version)"], "FROM \(table("alert"))").first?.unsigned(0) ?? 0
        state.withLock { $0.lastVersion = max($0.lastVersion, min(last, .max / 4)) }
    }

    // MARK: Statements

    func table(_ name: String) -> String { "\(schema.database).\(name)" }

    private func define(_ sql: String, inDatabase: Bool = true) async throws {
        var statement = ClickHouseClient.Statement(sql)
        statement.timeout = .seconds(60)
        _ = try await client.send(statement, inDatabase: inDatabase)
    }

    /// A query: `SELECT columns rest`.
    func ask(
        _ columns: [String],
        _ rest: String,
        settings: [(String, String)] = []
    ) async throws -> [TabbedAnswer.Row] {
        var statement = ClickHouseClient.Statement(
            "SELECT \(columns.joined(separator: ", ")), \(TabbedAnswer.mark) \(rest) FORMAT TabSeparated"
        )
        statement.settings = settings
        return try TabbedAnswer(try await client.send(statement), columns: columns.count).rows
    }

    /// Returns when the servers have the rows. A replicated table ignores a block that it already has.
    func insert(_ rows: TabbedRows) async throws {
        guard rows.count > 0 else { return }
        var statement = ClickHouseClient.Statement(rows)
        statement.settings = insertSettings
        statement.timeout = .seconds(60)
        _ = try await client.send(statement)
    }

    /// All rows are sent as one block, which is stored and deduplicated as a whole.
    var insertSettings: [(String, String)] {
        guard schema.cluster != nil else { return [] }
        var settings = [("insert_distributed_sync", "1")]
        if address.quorum > 0 {
            settings += [("insert_quorum", "\(address.quorum)"), ("insert_quorum_timeout", "20000")]
        }
        return settings
    }

    var horizonNs: Int64 { state.withLock { $0.horizonNs } }
    func raiseHorizon(to moment: Int64) { state.withLock { $0.horizonNs = max($0.horizonNs, moment) } }

    /// Everything that arrived before this moment is visible. In microseconds since 1970.
    var visibleBound: UInt64 { state.withLock { $0.arrivals.bound() } }

    /// Returns a number greater than all before it, including those of earlier collectors. In microseconds since 1970.
    func nextVersion() -> UInt64 {
        state.withLock { state in
            state.lastVersion = max(state.lastVersion + 1, Self.microseconds())
            return state.lastVersion
        }
    }

    static func microseconds() -> UInt64 { UInt64(max(0, Timestamp.now().sinceEpoch / 1000)) }
}

struct HourKey: Hashable, Sendable {
    var team: String
    /// Whole hours since 1970.
    var hour: Int64

    /// Whole days since 1970.
    var day: Int64 { hour / 24 }
}

struct DayKey: Hashable, Sendable {
    var team: String
    var day: Int64
}

struct AliasKey: Hashable, Sendable {
    var team: String
    var alias: String
    var fingerprint: String
}

/// Numbers stalls in the order of their arrival: microseconds since 1970, each number once per collector.
///
/// A numbered stall becomes visible when its insert ends, which may be after that of a later one; so readers stop before inserts
/// in progress. The inserts of other collectors are unknown; because of them, readers stay one second behind.
struct ArrivalClock: Sendable {
    static let delay: UInt64 = 1_000_000
    private var last: UInt64 = 0
    private var open: Set<UInt64> = []
    private var time: UInt64 = 0
    private var timeAt: ContinuousClock.Instant

    init(_ now: ContinuousClock.Instant = .now) { timeAt = now }

    /// - Parameter system: The time by the system's clock, which can be set back.
    /// - Returns: The first of as many numbers.
    mutating func begin(
        _ count: Int,
        system: UInt64 = ClickHouseStore.microseconds(),
        _ now: ContinuousClock.Instant = .now
    ) -> UInt64 {
        let first = max(last + 1, advance(system, now))
        last = first + UInt64(count)
        open.insert(first)
        return first
    }

    mutating func end(_ first: UInt64) { open.remove(first) }

    /// Everything before this number is visible.
    mutating func bound(
        system: UInt64 = ClickHouseStore.microseconds(),
        _ now: ContinuousClock.Instant = .now
    ) -> UInt64 {
        let time = advance(system, now)
        return min(open.min() ?? .max, time - min(time, Self.delay))
    }

    /// The system's time. If that was set back, this one goes on at half the speed until the system's has caught up: what arrives
    /// is visible soon, and other collectors' readers are not behind for good.
    private mutating func advance(_ system: UInt64, _ now: ContinuousClock.Instant) -> UInt64 {
        let passed = UInt64(max(0, timeAt.duration(to: now) / Duration.microseconds(1)))
        (time, timeAt) = (max(system, time + passed / 2), now)
        return time
    }
}
