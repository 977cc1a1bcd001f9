import Foundation
import GRDB
import StallReading
import StallReports
import Synchronization
import Testing

@testable import StallStore

/// The file of an SQLite store: who can read it, what is refused, and files of earlier versions.
@Suite("The file of a store in SQLite")
struct SQLiteFileTests {
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

    @Test("Counted stalls of every earlier version stay, and the next record has them by service", arguments: 1...7)
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
