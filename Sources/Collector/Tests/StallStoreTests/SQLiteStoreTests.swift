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

    @Test("Acknowledged reports are on the disk: the writing connection waits for it")
    func synchronous() async throws {
        try await Samples.withStore { store in
            let mode = try await store.database.writeWithoutTransaction { database in
                try Int.fetchOne(database, sql: "PRAGMA synchronous")
            }
            // 2 is FULL (sqlite.org/pragma.html#pragma_synchronous).
            #expect(mode == 2)
        }
    }

    @Test(
        "A new file has pages of 8 KiB; one that exists keeps its own. Limits are of bytes in both",
        arguments: [nil, 4096]
    )
    func pages(existing: Int?) async throws {
        try await Samples.withDirectory { directory in
            let path = directory + "/stalls.db"
            if let existing {
                let queue = try DatabaseQueue(path: path)
                try await queue.writeWithoutTransaction { try $0.execute(sql: "PRAGMA page_size = \(existing)") }
                try SQLiteSchema.migrator.migrate(queue)
                try queue.close()
            }
            let store = try SQLiteStore(path: path, maximumBytes: 100 << 20)
            let (size, log, most) = try await store.database.writeWithoutTransaction { database in
                func value(_ name: String) throws -> Int? { try Int.fetchOne(database, sql: "PRAGMA \(name)") }
                return (try value("page_size"), try value("wal_autocheckpoint"), try value("max_page_count"))
            }
            let page = existing ?? 8192
            #expect(size == page)
            #expect(log == (32 << 20) / page)
            #expect(most == (125 << 20) / page)
        }
    }

    @Test("Removed rows are overwritten in their pages; pages that become free are not, because they are given back")
    func overwriting() async throws {
        try await Samples.withStore { store in
            let mode = try await store.database.writeWithoutTransaction { database in
                try Int.fetchOne(database, sql: "PRAGMA secure_delete")
            }
            // 2 is FAST (sqlite.org/pragma.html#pragma_secure_delete).
            #expect(mode == 2)
        }
    }

    @Test("Only its owner can read the file, which has all teams' reports, and its log")
    func mode() async throws {
        try await Samples.withDirectory { directory in
            let path = directory + "/stalls.db"
            let store = try SQLiteStore(path: path)
            _ = try await Samples.insert([Samples.report()], into: store)
            for file in [path, path + "-wal", path + "-shm"] {
                let mode = try FileManager.default.attributesOfItem(atPath: file)[.posixPermissions] as? Int
                #expect(mode == 0o600, "\(file)")
            }
        }
    }

    @Test("A file that is damaged or no database is refused with what to do; a full disk is named, whatever it refused")
    func unusable() async throws {
        try await Samples.withDirectory { directory in
            let path = directory + "/stalls.db"
            func reason() -> String {
                do {
                    _ = try SQLiteStore(path: path)
                    return "none"
                } catch {
                    return error.description
                }
            }
            #expect(reason() == "none")
            let whole = try Data(contentsOf: URL(filePath: path))
            for end in ["-wal", "-shm"] { try? FileManager.default.removeItem(atPath: path + end) }
            try whole.prefix(whole.count / 2).write(to: URL(filePath: path))
            #expect(reason().contains("damaged") && reason().contains(".recover"), "\(reason())")
            try Data(repeating: 7, count: 9000).write(to: URL(filePath: path))
            #expect(reason().contains("is not an SQLite database"), "\(reason())")
            let noRoom = StoreError.reason(DatabaseError(resultCode: .SQLITE_IOERR_SHMSIZE))
            #expect(noRoom.contains("the disk is full"), "\(noRoom)")
        }
    }

    @Test("Nothing is accepted into a file that was removed or replaced: it would be lost", arguments: [true, false])
    func removed(isReplaced: Bool) async throws {
        try await Samples.withDirectory { directory in
            let path = directory + "/stalls.db"
            let store = try SQLiteStore(path: path)
            let arrivals = [try Arrival(json: Samples.report().json(), team: "a", now: Samples.now)]
            #expect(try await store.insert(arrivals) == 1)
            try FileManager.default.moveItem(atPath: path, toPath: path + ".old")
            if isReplaced { try FileManager.default.copyItem(atPath: path + ".old", toPath: path) }
            await #expect(throws: StoreError.self) { try await store.insert(arrivals) }
            await #expect(throws: StoreError.self) { try await store.check() }
            if isReplaced { try FileManager.default.removeItem(atPath: path) }
            try FileManager.default.moveItem(atPath: path + ".old", toPath: path)
            #expect(try await store.insert(arrivals) == 0)
            try await store.check()
        }
    }

    @Test("Nothing is accepted if the file is removed while it is written")
    func removedMeanwhile() async throws {
        try await Samples.withDirectory { directory in
            let path = directory + "/stalls.db"
            let store = try SQLiteStore(path: path)
            try await store.database.writeWithoutTransaction { database in
                database.add(
                    function: DatabaseFunction("lose", argumentCount: 0) { _ in
                        try FileManager.default.removeItem(atPath: path)
                        return nil
                    }
                )
                try database.execute(
                    sql: "CREATE TEMP TRIGGER losing AFTER INSERT ON main.body BEGIN SELECT lose(); END"
                )
            }
            let arrivals = [try Arrival(json: Samples.report().json(), team: "a", now: Samples.now)]
            await #expect(throws: StoreError.self) { try await store.insert(arrivals) }
        }
    }

    @Test("Users other than its owner and group can no longer read a file that an earlier version created")
    func earlierMode() async throws {
        try await Samples.withDirectory { directory in
            let path = directory + "/stalls.db"
            func mode(_ file: String) throws -> Int {
                try #require(try FileManager.default.attributesOfItem(atPath: file)[.posixPermissions] as? Int)
            }
            for (before, after) in [(0o644, 0o640), (0o664, 0o660), (0o640, 0o640), (0o600, 0o600)] {
                do {
                    let store = try SQLiteStore(path: path)
                    _ = try await Samples.insert([Samples.report()], into: store)
                }
                try FileManager.default.setAttributes([.posixPermissions: before], ofItemAtPath: path)
                let store = try SQLiteStore(path: path)
                _ = try await Samples.insert([Samples.report()], into: store)
                #expect(try mode(path) == after)
                for file in [path + "-wal", path + "-shm"] { #expect(try mode(file) & 0o007 == 0, "\(file)") }
            }
        }
    }

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

    @Test("One team's excess is removed from that team only; run records count as well")
    func fairness() async throws {
        try await Samples.withStore { store in
            let quiet = (0..<20).map { Samples.report(minutesAgo: 600 + $0) }
            _ = try await Samples.insert(quiet, team: "quiet", into: store)
            for hour in 0..<8 {
                let label = Samples.noise(20_000)
                _ = try await Samples.insert(
                    (0..<20).map { _ in Samples.run(updatedMinutesAgo: Int64(hour * 60), label: label) },
                    team: "loud",
                    into: store
                )
            }
            let before = try await store.size()
            _ = try await store.removeOld(before: Timestamp(seconds: 0), maximumBytes: before.bytes / 2)
            let after = try await store.size()
            #expect(after.bytes <= before.bytes / 2)
            #expect(after.stalls == 20)
            #expect(after.runs > 0 && after.runs < 160)
            #expect(try await store.runs(Samples.query(team: "loud"), after: nil, limit: 1000).count == Int(after.runs))
        }
    }

    @Test("Freed space is given back completely, in steps between which inserts have their turn")
    func smallSteps() async throws {
        try await Samples.withStore { store in
            let noise = Samples.noise(200_000)
            let reports = (0..<150).map { _ in
                var report = Samples.report()
                report.metadata = ["noise": noise]
                return report
            }
            _ = try await Samples.insert(reports, into: store)
            // More than a step gives back.
            #expect(try await store.size().bytes > 9_000_000)
            let steps = Mutex(0)
            try await store.database.writeWithoutTransaction { database in
                database.trace { event in
                    if "\(event)".contains("incremental_vacuum") { steps.withLock { $0 += 1 } }
                }
            }
            #expect(try await store.removeOld(before: Samples.now, maximumBytes: nil) == reports.count)
            #expect(steps.withLock { $0 } > 1)
            let free = try await store.database.read { try Int.fetchOne($0, sql: "PRAGMA freelist_count") }
            #expect(free == 0)
        }
    }

    @Test("A full store accepts nothing, and accepts again when there is room")
    func full() async throws {
        try await Samples.withStore(10_000_000) { store in
            let (sent, error) = await Self.fill(store)
            #expect(error != nil)
            let size = try await store.size()
            #expect(size.bytes <= 12_500_000)
            #expect(size.stalls == Int64(sent))
            #expect(try await store.removeOld(before: Timestamp(seconds: 0), maximumBytes: 10_000_000) > 0)
            #expect(try await Samples.insert([Samples.report()], into: store) == 1)
        }
    }

    /// - Returns: how many reports it accepted, and why no more. Nil if it accepted all, which are many times as
    ///   large.
    private static func fill(_ store: SQLiteStore) async -> (sent: Int, error: (any Error)?) {
        var sent = 0
        while sent < 4000 {
            let reports = (0..<20).map { Samples.report(minutesAgo: Int64(60 + sent + $0), noise: 20_000) }
            do { _ = try await Samples.insert(reports, into: store) } catch { return (sent, error) }
            sent += 20
        }
        return (sent, nil)
    }

    @Test("Looking for what is old costs the same however many younger stalls there are")
    func removalSteps() async throws {
        try await Samples.withStore { store in
            func steps() async throws -> Int {
                try await Samples.steps(in: store) { database in
                    let removal = SQLiteRemoval(database: database, team: "a")
                    let before = Hours.hour(Samples.now.sinceEpoch) - 30 * 24
                    let (stalls, isDone) = try removal.remove(beforeHour: before, limit: 10)
                    #expect(stalls == 0 && isDone)
                }
            }
            func insert(_ count: Int) async throws {
                let reports = (0..<count).map { Samples.report(minutesAgo: Int64($0) * 60, host: "web\($0)") }
                _ = try await Samples.insert(reports, into: store)
            }
            try await insert(1)
            let few = try await steps()
            try await insert(300)
            #expect(try await steps() == few)
        }
    }

    @Test("Names of faults without any records left are removed")
    func names() async throws {
        try await Samples.withStore { store in
            var (old, young) = (
                Samples.report(minutesAgo: 3000, function: "old()"), Samples.report(function: "young()")
            )
            old.aliases = [Samples.report(function: "1").fingerprint]
            young.aliases = [Samples.report(function: "2").fingerprint]
            _ = try await Samples.insert([old, young], into: store)
            _ = try await store.removeOld(
                before: Samples.now.advanced(byNanoseconds: -24 * Samples.hourNs),
                maximumBytes: nil
            )
            let left = try await store.database.read { database in
                try ["fault", "alias", "seen"].map { try Int.fetchOne(database, sql: "SELECT count(*) FROM \($0)") }
            }
            #expect(left == [1, 1, 1])
        }
    }

    @Test("A store of the second version keeps its stalls, their order of arrival and its sizes")
    func migration() async throws {
        try await Samples.withDirectory { directory in
            let path = directory + "/stalls.db"
            do {
                let queue = try DatabaseQueue(path: path)
                try SQLiteSchema.migrator.migrate(queue, upTo: "2")
                try await queue.write { database in
                    try database.execute(
                        sql: """
                            INSERT INTO stall VALUES (41, 'a', '01HZZZZZZZZZZZZZZZZZZZZZZZ', 5, 1781000000000000000, 1781000000000000000, 5, 1, 5, 5,
                                'shop', '1', 'web1', 'main', 'on_cpu', 'v2:0000000000000001', 'f()');
                            INSERT INTO body VALUES (41, zeroblob(100));
                            INSERT INTO fault_hour VALUES ('a', 'shop', 494722, 'v2:0000000000000001', '1', 'on_cpu', 1, 1, 5, 5, 1781000000000000000, 1781000000000000000);
                            INSERT INTO run VALUES ('a', '01HZZZZZZZZZZZZZZZZZZZZZZY', 1781000000000000000, 1781000000000000000, 1, 'shop', '1', 'web1', zeroblob(50), 1);
                            """
                    )
                }
                try queue.close()
            }
            var migrations = 0
            let store = try SQLiteStore(path: path) { migrations += 1 }
            _ = try SQLiteStore(path: path) { migrations += 1 }
            #expect(migrations == 1)
            // Rows are removed team by team.
            let indexes = try await store.database.read { database in
                try String.fetchAll(
                    database,
                    sql: "SELECT name FROM sqlite_master WHERE type = 'index' AND name LIKE '%age'"
                )
            }
            #expect(indexes.isEmpty)
            #expect(try await store.arrivals(team: "a", after: 40, limit: 10).map(\.place) == [41])
            #expect(try await store.lastPlace() == 41)
            let size = try await store.size()
            #expect((size.stalls, size.runs) == (1, 1))
            _ = try await Samples.insert([Samples.report()], into: store)
            #expect(try await store.lastPlace() == 42)
            #expect(try await store.removeOld(before: Samples.now, maximumBytes: nil) == 2)
            #expect(try await store.size().stalls == 0)
        }
    }

    @Test("Counted stalls of every earlier version stay, and the next record has them by service", arguments: 1...6)
    func countedMigration(version: Int) async throws {
        try await Samples.withDirectory { directory in
            let (path, fault) = (directory + "/stalls.db", Samples.report().fingerprint)
            var run = Samples.run(updatedMinutesAgo: 30)
            let moment = run.updatedAt
            do {
                let queue = try DatabaseQueue(path: path)
                try SQLiteSchema.migrator.migrate(queue, upTo: "\(version)")
                try await queue.write { [id = run.id] database in
                    try database.execute(
                        sql: "INSERT INTO counted VALUES ('a', ?, ?, 'watcher', '1', 'web1', 3, 900, 400, ?, ?)",
                        arguments: [id.description, fault.rawValue, moment.sinceEpoch, moment.sinceEpoch]
                    )
                }
                try queue.close()
            }
            let store = try SQLiteStore(path: path)
            func counts() async throws -> Set<String> {
                Set(try await store.services(Samples.query()).services.map { "\($0.name) \($0.count)" })
            }
            #expect(try await counts() == ["watcher 3"])
            run.service = .init(name: "watcher", version: "1")
            run.targets = [.init(pid: 8)]
            run.repeated = ["redis", "mill"].map { service in
                var counted = RunRecord.Repeated(
                    fingerprint: fault,
                    repeats: .init(
                        count: 2,
                        report: nil,
                        firstAt: moment,
                        lastAt: moment,
                        totalNs: 600,
                        longestNs: 400
                    )
                )
                counted.service = service
                return counted
            }
            _ = try await Samples.insert([run], into: store)
            #expect(try await counts() == ["redis 2", "mill 2"])
        }
    }
}
