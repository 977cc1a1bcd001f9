import Foundation
import GRDB
import StallReading
import StallReports
import Synchronization
import Testing

@testable import StallStore

/// What the SQLite store does beyond the common contract.
@Suite("The store in SQLite")
struct SQLiteStoreTests {
    private typealias Samples = SQLiteSamples

    @Test(
        "A range at the ends of the calendar is answered",
        arguments: [
            ("9000-01-01T00:00:00Z", "9001-01-01T00:00:00Z"), ("0000-01-01T00:00:00Z", "9999-12-31T23:59:59Z"),
            ("1970-01-01T00:00:00Z", "2262-04-11T23:47:16Z"), ("2262-04-11T23:00:00Z", "9999-01-01T00:00:00Z"),
        ]
    )
    func ends(since: String, until: String) async throws {
        try await Samples.withStore { store in
            let reports = [Samples.report(), Samples.report(minutesAgo: 3000)]
            _ = try await Samples.insert(reports, into: store)
            var query = Samples.query()
            (query.since, query.until) = (
                try #require(Timestamp(rfc3339: since)), try #require(Timestamp(rfc3339: until))
            )
            let count = Int64(reports.count { $0.startedAt >= query.since && $0.startedAt < query.until })
            #expect(
                try await store.faults(query, by: .total, limit: 10).faults.map(\.count) == (count > 0 ? [count] : [])
            )
            let fingerprint = reports[0].fingerprint
            #expect(try await store.fault(fingerprint, query)?.count ?? 0 == count)
            #expect(try await store.days(of: fingerprint, query).map(\.count).reduce(0, +) == count)
            #expect(try await store.count(query, limit: 10) == Int(count))
            _ = try await store.choices(query)
            #expect(
                try await store.removeOld(before: query.until, maximumBytes: nil)
                    == reports.count { $0.startedAt < query.until }
            )
        }
    }

    @Test("Rows have the values that were written, of any kind and size; one that SQLite refuses is an error")
    func rows() throws {
        let queue = try DatabaseQueue()
        try queue.write { database in
            try database.execute(sql: "CREATE TABLE row (value PRIMARY KEY NOT NULL)")
            let values: [any DatabaseValueConvertible] = [
                Int64.min, Int64.max, 0.5, "", "é日本 \u{1F600}", String(repeating: "x", count: 100_000), Data(),
                Data([0, 255]), Data(count: 100_000),
            ]
            for value in values { try database.write("INSERT INTO row VALUES (?)", [value.databaseValue]) }
            #expect(
                try DatabaseValue.fetchAll(database, sql: "SELECT value FROM row ORDER BY rowid")
                    == values.map(\.databaseValue)
            )
            for value in [DatabaseValue.null, "".databaseValue] {
                let error = #expect(throws: DatabaseError.self) {
                    try database.write("INSERT INTO row VALUES (?)", [value])
                }
                #expect(error?.resultCode == .SQLITE_CONSTRAINT)
                #expect(error?.message?.isEmpty == false)
            }
            try database.write("INSERT INTO row VALUES (?)", [7.databaseValue])
            #expect(try Int.fetchOne(database, sql: "SELECT count(*) FROM row") == values.count + 1)
        }
    }

    @Test("Rows of one statement have their own values, also where one looks like that of the row before")
    func repeatedRows() throws {
        let queue = try DatabaseQueue()
        try queue.write { database in
            try database.execute(sql: "CREATE TABLE row (name NOT NULL, number UNIQUE, report)")
            let sql = "INSERT INTO row VALUES (?, ?, ?)"
            // An accented letter in both its forms is the same for Swift.
            let names = [
                "caf\u{E9}", "caf\u{E9}", "cafe\u{301}", "", "", "é日本", String(repeating: "x", count: 100_000),
            ]
            let reports: [[UInt8]] = [[0, 255], [], [UInt8](repeating: 7, count: 100_000)]
            func insert(_ name: String, _ number: Int, into row: RepeatedWrite) throws {
                try row.bind(name)
                try row.bind(Int64(number))
                try row.run(reports[number % reports.count])
            }
            let row = try RepeatedWrite(database, sql)
            for (number, name) in names.enumerated() { try insert(name, number, into: row) }
            let error = #expect(throws: DatabaseError.self) { try insert("again", 0, into: row) }
            #expect(error?.resultCode == .SQLITE_CONSTRAINT)
            #expect(error?.message?.isEmpty == false)
            try insert("after an error", names.count, into: row)
            // One that is made later knows nothing of what the first one bound.
            try insert("after an error", names.count + 1, into: try RepeatedWrite(database, sql))
            let rows = try Row.fetchAll(database, sql: "SELECT name, report FROM row ORDER BY number")
            let written = names + ["after an error", "after an error"]
            #expect(rows.map { Array(($0["name"] as String).utf8) } == written.map { Array($0.utf8) })
            #expect(rows.enumerated().allSatisfy { [UInt8]($1["report"] as Data) == reports[$0 % reports.count] })
        }
    }

    @Test("Sums are those of the stalls' present versions, whatever the versions changed", arguments: 1...6)
    func versions(seed: UInt64) async throws {
        print("seed: \(seed)")
        var random = SeededGenerator(seed: seed)
        try await Samples.withStore { store in
            var last: [ULID: StallReport] = [:]
            for round in 0..<12 {
                var batch: [StallReport] = []
                for _ in 0..<30 {
                    let known =
                        round > 0 && Int.random(in: 0..<3, using: &random) > 0
                        ? last.keys.sorted().randomElement(using: &random) : nil
                    let before = known.flatMap { last[$0] }
                    if let before, before.state != .ongoing { continue }
                    let report = Samples.report(
                        id: known ?? .make(),
                        minutesAgo: before.map { _ in Int64.random(in: 1..<240, using: &random) }
                            ?? Int64.random(in: 1..<240, using: &random),
                        milliseconds: (before.map { $0.durationNs / 1_000_000 } ?? 0)
                            + Int64.random(in: 1..<900, using: &random)
                            - (before == nil ? 0 : Int64.random(in: 0..<2, using: &random) * 400),
                        state: Bool.random(using: &random) ? .ongoing : .recovered,
                        function: "f\(Int.random(in: 0..<3, using: &random))()",
                        verdict: Bool.random(using: &random) ? .onCPU : .waiting,
                        host: "web\(Int.random(in: 0..<2, using: &random))"
                    )
                    guard report.durationNs >= 0 else { continue }
                    let isNewer = before.map { report.state != .ongoing || report.durationNs > $0.durationNs } ?? true
                    batch.append(report)
                    if isNewer { last[report.id] = report }
                }
                _ = try await Samples.insert(batch, into: store)
            }
            var query = Samples.query()
            query.until = Samples.now.advanced(byNanoseconds: 1)
            let faults = try await store.faults(query, by: .total, limit: 100).faults
            let groups = Dictionary(grouping: last.values, by: \.fingerprint)
            #expect(Set(faults.map(\.fingerprint)) == Set(groups.keys))
            for fault in faults {
                let group = groups[fault.fingerprint] ?? []
                #expect((fault.count, fault.reports) == (Int64(group.count), Int64(group.count)))
                #expect(fault.totalNs == group.map(\.durationNs).reduce(0, +))
                #expect(fault.longestNs == group.map(\.durationNs).max())
                #expect(fault.firstAt == group.map(\.startedAt).min())
                #expect(fault.lastAt == group.map { StallOutline($0).lastKnownMoment }.max())
                #expect(fault.hosts == Dictionary(group.map { ($0.host.name, 1) }, uniquingKeysWith: +))
                #expect(fault.verdicts == Dictionary(group.map { ($0.cause.verdict.rawValue, 1) }, uniquingKeysWith: +))
            }
        }
    }

    @Test("The end of a stall costs the same however many its fault has in that hour")
    func cheapVersions() async throws {
        var steps: [Int] = []
        for others in [20, 2000] {
            try await Samples.withStore { store in
                let id = ULID.make()
                _ = try await Samples.insert((0..<others).map { _ in Samples.report() }, into: store)
                _ = try await Samples.insert([Samples.report(id: id, milliseconds: 300, state: .ongoing)], into: store)
                let over = try Arrival(
                    json: Samples.report(id: id, milliseconds: 900).json(),
                    team: "a",
                    now: Samples.now
                )
                steps.append(try await Samples.steps([over], into: store))
            }
        }
        #expect(steps[1] < steps[0] * 2, "\(steps)")
    }

    @Test("Renaming a fault costs the same however many stalls it has, and unites it with them")
    func cheapNames() async throws {
        var steps: [Int] = []
        for others in [20, 2000] {
            try await Samples.withStore { store in
                let nameless = (0..<others).map {
                    Samples.report(minutesAgo: Int64(60 + $0 % 500), function: "code at 0x1")
                }
                _ = try await Samples.insert(nameless, into: store)
                var named = Samples.report(function: "named()")
                named.aliases = [nameless[0].fingerprint]
                steps.append(
                    try await Samples.steps([Arrival(json: named.json(), team: "a", now: Samples.now)], into: store)
                )
                let faults = try await store.faults(Samples.query(), by: .total, limit: 10).faults
                #expect(faults.map(\.count) == [Int64(others + 1)])
                #expect(faults.map(\.fingerprint) == [named.fingerprint])
                #expect(faults.first?.trend.counts.reduce(0, +) == Int64(others + 1))
                let stalls = try await store.stalls(
                    Samples.query(),
                    of: nameless[0].fingerprint,
                    longestFirst: false,
                    limit: 5000
                )
                #expect(stalls.count == others + 1 && Set(stalls.map(\.fingerprint)) == [named.fingerprint])
                var query = Samples.query()
                query.text = "named"
                #expect(try await store.faults(query, by: .total, limit: 10).faults.map(\.count) == [Int64(others + 1)])
            }
        }
        #expect(steps[1] < steps[0] * 2, "\(steps)")
    }

    @Test("A reader of arrivals sees a changed stall again, and misses none after old ones were removed")
    func arrivals() async throws {
        try await Samples.withStore { store in
            let id = ULID.make()
            _ = try await Samples.insert([Samples.report(id: id, milliseconds: 300, state: .ongoing)], into: store)
            let first = try await store.arrivals(team: "a", after: 0, limit: 10)
            #expect(first.map(\.stall.isOver) == [false])
            _ = try await Samples.insert([Samples.report(id: id, milliseconds: 900)], into: store)
            let place = try #require(first.last?.place)
            let second = try await store.arrivals(team: "a", after: place, limit: 10)
            #expect(second.map(\.stall.id) == [id] && second.map(\.stall.isOver) == [true])
            let last = try await store.lastPlace()
            #expect(second.last?.place == last)
            #expect(try await store.removeOld(before: Samples.now, maximumBytes: nil) == 1)
            let next = Samples.report(minutesAgo: 1)
            _ = try await Samples.insert([next], into: store)
            #expect(try await store.arrivals(team: "a", after: last, limit: 10).map(\.stall.id) == [next.id])
        }
    }

    @Test("Reading one team's arrivals does not scan those of others")
    func arrivalsByIndex() async throws {
        try await Samples.withStore { store in
            let plan = try await store.database.read { database in
                try Row.fetchAll(
                    database,
                    sql:
                        "EXPLAIN QUERY PLAN SELECT * FROM stall WHERE team = 'a' AND place > 7 ORDER BY place LIMIT 100"
                ).map { $0["detail"] as String }
            }
            #expect(plan.count == 1 && plan[0].contains("stall_place (team=? AND place>?)"), "\(plan)")
        }
    }
}
