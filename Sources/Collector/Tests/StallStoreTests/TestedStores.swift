import Foundation
import StallReading
import StallReports
import StallStore
import Synchronization
import Testing

@testable import ClickHouseStore

/// A store that the contract is tested on, empty each time.
enum TestedStore: Sendable {
    case file
    case clickHouse

    /// `host:port` of a server for tests: `scripts/clickhouse` starts one.
    static let server = ProcessInfo.processInfo.environment["TEST_CLICKHOUSE"]

    /// How many stalls figures are measured with.
    static let figureRows = ProcessInfo.processInfo.environment["TEST_FIGURES"].flatMap { Int($0) }

    /// Stores of this many collectors, all with the same contents.
    func withStores(_ count: Int, _ work: ([any StallStore]) async throws -> Void) async throws {
        switch self {
        case .file:
            try await Self.withFile { path in try await work((0..<count).map { _ in try SQLiteStore(path: path) }) }
        case .clickHouse:
            try await Self.withDatabase { address in
                var stores: [ClickHouseStore] = []
                for _ in 0..<count { stores.append(try await ClickHouseStore(address)) }
                try await work(stores)
            }
        }
    }

    /// Computes the sums of everything in it, if that is not done at once.
    func settle(_ store: any StallStore) async throws {
        guard let store = store as? ClickHouseStore else { return }
        try await store.settle(after: .zero)
        // An announced write is not valid for longer than that.
        store.state.withLock { $0.touched = [:] }
    }

    private static func withFile(_ work: (String) async throws -> Void) async throws {
        let directory = FileManager.default.temporaryDirectory.path + "/stall-store-\(UUID().uuidString)"
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: directory) }
        try await work(directory + "/stalls.db")
    }

    /// A separate database on the server for tests.
    static func withDatabase(_ work: (ClickHouseAddress) async throws -> Void) async throws {
        let parts = try #require(server).split(separator: "?", maxSplits: 1)
        let options = parts.count > 1 ? "?\(parts[1])" : ""
        let name = "test_" + ULID.make().description.lowercased()
        let address = try ClickHouseAddress("clickhouse://\(parts[0])/\(name)\(options)")
        let cluster = address.cluster.map { " ON CLUSTER \($0)" } ?? ""
        let result: Result<Void, any Error>
        do {
            result = .success(try await work(address))
        } catch {
            result = .failure(error)
        }
        _ = try? await ClickHouseClient(address).send(
            .init("DROP DATABASE IF EXISTS \(name)\(cluster)"),
            inDatabase: false
        )
        try result.get()
    }
}

@Suite("The store in a file fulfils the contract")
struct FileContractTests {
    @Test("It does", arguments: StoreContract.all)
    func keeps(_ check: StoreContract.Check) async throws { try await check.run(StoreContract(.file)) }
}

@Suite(
    "The ClickHouse store fulfils the contract",
    .enabled(if: TestedStore.server != nil, "no server of ClickHouse (scripts/clickhouse starts one)")
)
struct ClickHouseContractTests {
    @Test("It does", arguments: StoreContract.short)
    func keeps(_ check: StoreContract.Check) async throws { try await check.run(StoreContract(.clickHouse)) }

    @Test("Its tables are created once; those of a newer version are not used")
    func migration() async throws {
        try await TestedStore.withDatabase { address in
            let store = try await ClickHouseStore(address)
            _ = try await store.insert([StoreContract.arrival(StoreContract.report())])
            let again = try await ClickHouseStore(address)
            #expect(try await again.faults(StoreContract.query(), by: .total, limit: 10).faults.map(\.count) == [1])
            var rows = TabbedRows(into: "\(store.table("migration")) (number)")
            rows.add(99)
            rows.endRow()
            try await store.insert(rows)
            await #expect(throws: StoreError.self) { try await ClickHouseStore(address) }
        }
    }

    @Test("A store of the second version gets its column, and again without harm; what it counted stays")
    func countedMigration() async throws {
        try await TestedStore.withDatabase { address in
            let (schema, client) = (ClickHouseSchema(address), ClickHouseClient(address))
            _ = try await client.send(.init(schema.createDatabase), inDatabase: false)
            for statement in schema.steps.prefix(2).joined() { _ = try await client.send(.init(statement)) }
            var number = TabbedRows(into: "\(schema.database).migration (number)")
            number.add(2)
            number.endRow()
            let start = StoreContract.report().startedAt.sinceEpoch
            var run = TabbedRows(
                into: """
                    \(schema.database).run (team, day, id, updated, started, service, release, host, counted.fingerprint, counted.count, \
                    counted.total, counted.longest, counted.first, counted.last)
                    """
            )
            run.add("a")
            run.add(Hours.day(start))
            run.add(ULID.make().description)
            for moment in [start + 1, start] { run.add(moment) }
            for name in ["shop", "1.2", "web1"] { run.add(name) }
            run.add([StoreContract.report().fingerprint.rawValue])
            for value in [3, 900, 400, start, start] { run.add([value]) }
            run.endRow()
            for rows in [number, run] {
                var statement = ClickHouseClient.Statement(rows)
                if schema.cluster != nil { statement.settings = [("insert_distributed_sync", "1")] }
                _ = try await client.send(statement)
            }
            let store = try await ClickHouseStore(address)
            try await store.execute(stepsAfter: 0)
            var query = StoreContract.query()
            (query.services, query.releases) = (["shop"], ["1.2"])
            #expect(try await store.faults(query, by: .total, limit: 10).faults.map(\.count) == [3])
        }
    }

    @Test("Text of any kind becomes a literal and comes back unchanged")
    func literals() async throws {
        try await TestedStore.withDatabase { address in
            let store = try await ClickHouseStore(address)
            let special: [Unicode.Scalar] = [
                "\0", "\u{8}", "\t", "\n", "\u{c}", "\r", "'", "\\", "\"", "`", "N", "x", "0", "\u{7f}", "é",
                "\u{1F525}",
            ]
            var generator = SeededGenerator.ofThisRun()
            for _ in 0..<50 {
                let texts = (0..<50).map { _ in
                    let length = Int.random(in: 0...12, using: &generator)
                    let scalars = (0..<length).map { _ in special.randomElement(using: &generator)! }
                    return String(String.UnicodeScalarView(scalars))
                }
                let rows = try await store.ask(
                    ["hex(t)", "t"],
                    "FROM (SELECT arrayJoin(\(SQLLiteral.array(texts))) AS t)"
                )
                #expect(rows.map { $0.text(1) } == texts)
                #expect(rows.map { $0.text(0) } == texts.map { $0.utf8.map { String(format: "%02X", $0) }.joined() })
            }
        }
    }

    @Test("A reader of arrivals passes removed stalls, and misses none if collectors gave several the same number")
    func arrivals() async throws {
        try await TestedStore.withDatabase { address in
            let store = try await ClickHouseStore(address)
            let reports = (0..<3).map { _ in StoreContract.report() }
            _ = try await store.insert(reports.map { try StoreContract.arrival($0) })
            let hour = Hours.hour(reports[0].startedAt.sinceEpoch)
            var rows = TabbedRows(into: "\(store.table("feed")) (team, day, arrived, hour, id)")
            let removed = (1...5).map { (Int64($0), ULID.make()) }
            for (number, id) in removed + reports.map({ (1000, $0.id) }) {
                rows.add("a")
                rows.add(0)
                rows.add(number)
                rows.add(hour)
                rows.add(id.description)
                rows.endRow()
            }
            try await store.insert(rows)
            let found = try await store.arrivals(team: "a", after: 0, limit: 2)
            #expect(found.map(\.place) == [1000, 1000, 1000])
            #expect(Set(found.map(\.stall.id)) == Set(reports.map(\.id)))
        }
    }

    @Test("Today is kept whatever its size, even if a sender's clock is a day ahead")
    func today() async throws {
        try await TestedStore.withDatabase { address in
            let store = try await ClickHouseStore(address)
            let now = Timestamp.now()
            let reports = [Int64(0), 1].map { day in
                var report = StoreContract.report()
                report.startedAt = now.advanced(byNanoseconds: day * Hours.dayNs)
                return report
            }
            let later = now.advanced(byNanoseconds: 2 * Hours.dayNs)
            _ = try await store.insert(reports.map { try Arrival(json: $0.json(), team: "a", now: later) })
            _ = try await store.removeOld(before: Timestamp(seconds: 0), maximumBytes: 1)
            let query = StallQuery(
                team: "a",
                since: Timestamp(seconds: 0),
                until: now.advanced(byNanoseconds: 3 * Hours.dayNs)
            )
            let left = try await store.stalls(query, of: nil, longestFirst: false, limit: 10)
            let isStillToday = Hours.day(Timestamp.now().sinceEpoch) == Hours.day(now.sinceEpoch)
            #expect(Set(left.map(\.id)) == Set(reports.map(\.id)) || !isStillToday)
        }
    }

    @Test("Of very many fingerprints that belong to other faults the latest count")
    func manyAliases() async throws {
        try await TestedStore.withDatabase { address in
            let store = try await ClickHouseStore(address)
            // The earliest has the greatest rank.
            let insert = """
                INSERT INTO \(store.table("alias")) (team, alias, fingerprint, rank)
                SELECT 'a', concat('old', toString(number)), 'new', toUInt64(60000 - number) FROM numbers(60000)
                """
            _ = try await store.client.send(.init(insert))
            let aliases = try await store.aliases("a")
            #expect(aliases.names.count == 50_000)
            #expect(["old0", "old59999"].map(aliases.root) == ["old0", "new"])
        }
    }

    @Test("A change of an alert counts even if an earlier collector's clock was ahead")
    func alertVersions() async throws {
        try await TestedStore.withDatabase { address in
            let ahead = try await ClickHouseStore(address)
            ahead.state.withLock { $0.lastVersion = ClickHouseStore.microseconds() + 3_600_000_000 }
            var alert = Alert(team: "a", rule: "r", subject: "s", text: "t", beganAt: .now())
            try await ahead.change(alerts: [alert], removing: [])
            let store = try await ClickHouseStore(address)
            alert.toldBegin = ["told"]
            try await store.change(alerts: [alert], removing: [])
            #expect(try await store.alerts().map(\.toldBegin) == [["told"]])
            try await store.change(alerts: [], removing: [alert])
            #expect(try await store.alerts().isEmpty)
        }
    }

    @Test("An hour with a late write is counted from its stalls until its sums are computed again")
    func lateStalls() async throws {
        try await TestedStore.withDatabase { address in
            let store = try await ClickHouseStore(address)
            let report = StoreContract.report(milliseconds: 400, state: .ongoing)
            func sums() async throws -> [Int64] {
                try await store.faults(StoreContract.query(), by: .total, limit: 10).faults.map(\.totalNs)
            }
            _ = try await store.insert([StoreContract.arrival(report), StoreContract.arrival(StoreContract.report())])
            // Not long enough ago for writes that may be under way.
            try await store.settle()
            #expect(try await store.hourStates("a", 0..<Int64.max).generations.isEmpty)
            try await TestedStore.clickHouse.settle(store)
            #expect(try await store.hourStates("a", 0..<Int64.max).raw.isEmpty)
            #expect(try await sums() == [900_000_000])
            let over = StoreContract.report(id: report.id, milliseconds: 600)
            _ = try await store.insert([StoreContract.arrival(over)])
            #expect(try await store.hourStates("a", 0..<Int64.max).generations.isEmpty)
            #expect(try await sums() == [1_100_000_000])
            try await TestedStore.clickHouse.settle(store)
            #expect(try await sums() == [1_100_000_000])
            // A repeated stall is announced as well: the first attempt may have failed.
            _ = try await store.insert([StoreContract.arrival(over)])
            #expect(try await store.hourStates("a", 0..<Int64.max).generations.isEmpty)
            #expect(try await sums() == [1_100_000_000])
        }
    }
}

/// The same numbers for the same seed (Knuth's MMIX).
struct SeededGenerator: RandomNumberGenerator {
    private var state: UInt64

    init(seed: UInt64) { state = seed }

    /// Different numbers in each run. The printed seed repeats them.
    static func ofThisRun(for test: String = #function) -> SeededGenerator {
        let seed =
            ProcessInfo.processInfo.environment["TEST_SEED"].flatMap { UInt64($0) } ?? .random(in: 1...1_000_000_000)
        print("seed: \(test): TEST_SEED=\(seed)")
        return SeededGenerator(seed: seed)
    }

    mutating func next() -> UInt64 {
        var word: UInt64 = 0
        for _ in 0..<2 {
            state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
            word = word << 32 | state >> 32
        }
        return word
    }
}
