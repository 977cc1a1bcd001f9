internal import Foundation
internal import StallReports
public import StallStore
internal import Synchronization

/// A store on ClickHouse servers: one, or a cluster with shards and replicas. Any number of collectors may use it at once.
///
/// A stall is acknowledged when a server has it, or as many replicas as the address asks for.
public final class ClickHouseStore: StallStore {
    let client: ClickHouseClient
    let schema: ClickHouseSchema
    let address: ClickHouseAddress
    /// Another for each collector that was ever started.
    let name = ULID.make().description
    let state = Mutex(State())

    struct State {
        /// Nanoseconds since 1970: stalls that began earlier were removed, or will be.
        var horizonNs: Int64 = 0
        var arrivals = ArrivalClock()
        /// Hours that this collector has announced to write to, and until when it may without saying so again.
        var touched: [HourKey: ContinuousClock.Instant] = [:]
        /// How many touches of an hour this collector has seen, and since when it is so many.
        var seen: [HourKey: (touches: UInt64, since: ContinuousClock.Instant)] = [:]
        var tokens = 0
        var aliases: Set<AliasKey> = []
        var lastVersion: UInt64 = 0
    }

    /// Makes the database and its tables where there are none, and brings older ones to this version's form.
    ///
    /// - Throws: ``StoreError``.
    public init(_ address: ClickHouseAddress) async throws(StoreError) {
        (self.address, schema) = (address, ClickHouseSchema(address))
        client = ClickHouseClient(address)
        do {
            try await migrate()
            try await readHorizon()
        } catch let error as StoreError {
            throw error
        } catch {
            throw StoreError("the store \(address) cannot be used: \(error)")
        }
    }

    /// Where every step was done, nothing is changed: on a cluster a server may be down then.
    private func migrate() async throws {
        let known: UInt64
        do {
            known = try await ask(["toUInt64(max(number))"], "FROM \(table("migration"))").first?.unsigned(0) ?? 0
        } catch let error as ClickHouseError where [60, 81].contains(error.code) {
            // There is no such table, or database.
            known = 0
            try await define(schema.createDatabase, inDatabase: false)
        }
        let steps = schema.steps
        guard known <= steps.count else {
            throw StoreError(
                "\(address) was made by a newer version of the collector; run that one, or give another database"
            )
        }
        // The table of steps is itself made by the first one, as the last.
        for number in Int(known)..<steps.count {
            for statement in steps[number] { try await define(statement) }
            var rows = TabbedRows(into: "\(table("migration")) (number)")
            rows.add(number + 1)
            rows.endRow()
            try await insert(rows)
        }
    }

    // MARK: Statements

    func table(_ name: String) -> String { "\(schema.database).\(name)" }

    private func define(_ sql: String, inDatabase: Bool = true) async throws {
        var statement = ClickHouseClient.Statement(sql)
        statement.timeout = .seconds(60)
        _ = try await client.send(statement, inDatabase: inDatabase)
    }

    /// A question: `SELECT columns rest`.
    func ask(
        _ columns: [String],
        _ rest: String,
        maximumBytes: Int = 64 << 20,
        settings: [(String, String)] = []
    ) async throws -> [TabbedAnswer.Row] {
        var statement = ClickHouseClient.Statement(
            "SELECT \(columns.joined(separator: ", ")), \(TabbedAnswer.mark) \(rest) FORMAT TabSeparated"
        )
        statement.settings = settings
        statement.maximumBytes = maximumBytes
        return try TabbedAnswer(try await client.send(statement), columns: columns.count).rows
    }

    /// Returns when the servers have the rows. The same rows in the same order are dropped by a replicated table where it has them already.
    func insert(_ rows: TabbedRows) async throws {
        guard rows.count > 0 else { return }
        var statement = ClickHouseClient.Statement(rows)
        statement.settings = insertSettings
        statement.timeout = .seconds(60)
        _ = try await client.send(statement)
    }

    /// As one block: it is kept as a whole, and known again as a whole.
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

    /// All that came before it can be seen: microseconds since 1970.
    var visibleBound: UInt64 { state.withLock { $0.arrivals.bound } }

    /// A number that is greater than those before it, also those of a collector that ended: microseconds since 1970.
    func nextVersion() -> UInt64 {
        state.withLock { state in
            state.lastVersion = max(state.lastVersion + 1, Self.microseconds())
            return state.lastVersion
        }
    }

    static func microseconds() -> UInt64 { UInt64(max(0, Timestamp.now().sinceEpoch / 1000)) }
}

/// Whole hours and days since 1970.
enum Hours {
    static let hourNs: Int64 = 3_600_000_000_000
    static let dayNs: Int64 = 24 * hourNs

    static func hour(_ nanoseconds: Int64) -> Int64 { nanoseconds / hourNs }
    static func day(_ nanoseconds: Int64) -> Int64 { nanoseconds / dayNs }
}

struct HourKey: Hashable, Sendable {
    var team: String
    var hour: Int64
}

struct AliasKey: Hashable, Sendable {
    var team: String
    var alias: String
    var fingerprint: String
}

/// Numbers stalls in the order in which they come: microseconds since 1970, each number once in a collector.
///
/// What is numbered is visible only when its insert ends, and may be overtaken: who reads stays before what is under way. Of other collectors
/// it is not known what is under way; for them who reads stays a second behind.
struct ArrivalClock: Sendable {
    static let delay: UInt64 = 1_000_000
    private var last: UInt64 = 0
    private var open: Set<UInt64> = []

    mutating func begin(_ count: Int) -> UInt64 {
        let first = max(last + 1, ClickHouseStore.microseconds())
        last = first + UInt64(count)
        open.insert(first)
        return first
    }

    mutating func end(_ first: UInt64) { open.remove(first) }

    /// Everything before it is visible.
    var bound: UInt64 {
        let now = ClickHouseStore.microseconds()
        return min(open.min() ?? .max, now - min(now, Self.delay))
    }
}
