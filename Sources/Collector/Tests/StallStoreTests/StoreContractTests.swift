import Foundation
import GzipCompression
import StallReading
import StallReports
import StallStore
import Testing

/// What the store in a file does beyond the contract (``StoreContract``), and checks that need no store.
@Suite("The store in a file")
struct StoreContractTests {
    private let directory = FileManager.default.temporaryDirectory.path + "/stall-store-\(UUID().uuidString)"

    @Test("A store of the first version is migrated, with everything in it")
    func migration() async throws {
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: directory) }
        let path = directory + "/stalls.db"
        do {
            let store = try SQLiteStore(path: path)
            _ = try await store.insert([StoreContract.arrival(StoreContract.report())])
        }
        let back = Process()
        back.executableURL = URL(filePath: "/usr/bin/python3")
        back.arguments = [
            "-c",
            """
            import sqlite3
            database = sqlite3.connect("\(path)")
            database.executescript(\"\"\"
                DROP TABLE alert; ALTER TABLE run DROP COLUMN running; DELETE FROM grdb_migrations WHERE identifier = '2';
            \"\"\")
            """,
        ]
        try back.run()
        back.waitUntilExit()
        try #require(back.terminationStatus == 0)
        let store = try SQLiteStore(path: path)
        #expect(try await store.faults(StoreContract.query(), by: .total, limit: 10).faults.map(\.count) == [1])
        #expect(try await store.alerts().isEmpty)
    }

    @Test("A document comes back as it was sent, also one that an earlier version stored; a damaged one is an error")
    func packing() throws {
        let json = try StoreContract.report().json()
        let gzip = try #require(Gzip.compressed(json, level: 1))
        guard case .stall(let stall) = try Arrival(json: json, team: "a", now: StoreContract.now) else {
            Issue.record("it is a stall")
            return
        }
        #expect(stall.body.count < json.count)
        for body in [stall.body, gzip] {
            #expect(try ArrivedDocument.unpacked(body) == json)
            #expect(throws: Gzip.Failure.damaged) { try ArrivedDocument.unpacked(body.dropLast(9)) }
        }
    }

    @Test("Impossible times and documents that are no report are refused")
    func refused() throws {
        var report = StoreContract.report(hoursAgo: -48)
        #expect(throws: RefusedArrival.self) { try StoreContract.arrival(report) }
        report = StoreContract.report()
        report.startedAt = Timestamp(seconds: 5)
        #expect(throws: RefusedArrival.self) { try StoreContract.arrival(report) }
        report = StoreContract.report(milliseconds: -1)
        #expect(throws: RefusedArrival.self) { try StoreContract.arrival(report) }
        let bounds: [WritableKeyPath<StallReport, Int64?>] = [\.durationMinNs, \.durationMaxNs]
        for bound in bounds {
            report = StoreContract.report()
            report[keyPath: bound] = 0
            _ = try StoreContract.arrival(report)
            report[keyPath: bound] = -1
            #expect(throws: RefusedArrival.self) { try StoreContract.arrival(report) }
            // One without a culprit's name is read in another way.
            report.culprit = nil
            #expect(throws: RefusedArrival.self) { try StoreContract.arrival(report) }
        }
        var run = RunRecord(
            startedAt: report.startedAt,
            updatedAt: report.startedAt,
            host: .init(name: "web1"),
            process: .init(pid: 7),
            monitorVersion: "1"
        )
        run.watched = [.init(label: "main", watchedNs: -1)]
        #expect(throws: RefusedArrival.self) {
            try Arrival(json: run.json(), team: "a", now: StoreContract.now)
        }
        for text in ["", "{", "[]", "{}", "null", "{\"schema\":\"stall-report/1\"}", "{\"schema\":\"other/1\"}"] {
            #expect(throws: RefusedArrival.self) {
                try Arrival(json: Array(text.utf8), team: "a", now: StoreContract.now)
            }
        }
    }

    @Test("A run record is accepted without the counts whose times are impossible")
    func wrongCounts() throws {
        let now = StoreContract.now
        var run = RunRecord(
            startedAt: now.advanced(byNanoseconds: -1_000_000_000),
            updatedAt: now,
            host: .init(name: "web1"),
            process: .init(pid: 7),
            monitorVersion: "1"
        )
        let times = [now, Timestamp(seconds: 5), now.advanced(byNanoseconds: 30 * 86_400_000_000_000)]
        let faults = (0..<times.count).map { StoreContract.report(function: "f\($0)()").fingerprint }
        run.repeated = zip(faults, times).map { fault, time in
            .init(
                fingerprint: fault,
                repeats: .init(count: 3, report: nil, firstAt: time, lastAt: time, totalNs: 900, longestNs: 400)
            )
        }
        guard case .run(let arrived) = try Arrival(json: run.json(), team: "a", now: now) else {
            Issue.record("it is no run")
            return
        }
        #expect(arrived.counted.map(\.fingerprint) == [faults[0].rawValue])
    }

    @Test("A file that is no database, or in a missing directory, is an error")
    func unusable() throws {
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: directory) }
        try Data(repeating: 7, count: 8192).write(to: URL(fileURLWithPath: directory + "/x"))
        for name in ["/x", "/none/stalls.db"] {
            #expect(throws: StoreError.self) { _ = try SQLiteStore(path: directory + name) }
        }
    }
}
