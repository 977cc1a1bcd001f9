import Foundation
import GRDB
import GRDBSQLite
import StallReports
import Testing

@testable import StallStore

/// Stalls and stores for tests specific to SQLite.
enum SQLiteSamples {
    static let now = Timestamp(rfc3339: "2026-06-15T12:34:56Z")!
    static let hourNs: Int64 = 3_600_000_000_000

    static func withStore(_ maximumBytes: Int64? = nil, _ work: (SQLiteStore) async throws -> Void) async throws {
        try await withDirectory { try await work(try SQLiteStore(path: $0 + "/stalls.db", maximumBytes: maximumBytes)) }
    }

    static func withDirectory(_ work: (String) async throws -> Void) async throws {
        let directory = FileManager.default.temporaryDirectory.path + "/stall-sqlite-\(UUID().uuidString)"
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: directory) }
        try await work(directory)
    }

    static func report(
        id: ULID = .make(),
        minutesAgo: Int64 = 60,
        milliseconds: Int64 = 500,
        state: StallState = .recovered,
        function: String = "total()",
        verdict: Verdict = .onCPU,
        service: String = "shop",
        release: String = "1.2",
        host: String = "web1",
        noise: Int = 0
    ) -> StallReport {
        let start = now.advanced(byNanoseconds: -minutesAgo * 60_000_000_000)
        var report = StallReport.sample(
            id: id,
            startedAt: start,
            milliseconds: milliseconds,
            state: state,
            function: function,
            verdict: verdict,
            service: service,
            release: release,
            host: host
        )
        if noise > 0 { report.metadata = ["noise": Self.noise(noise)] }
        return report
    }

    /// This many bytes that compression does not reduce.
    static func noise(_ bytes: Int) -> String {
        String((0..<bytes / 36 + 1).map { _ in UUID().uuidString }.joined().prefix(bytes))
    }

    static func run(
        id: ULID = .make(),
        startedMinutesAgo: Int64 = 120,
        updatedMinutesAgo: Int64 = 60,
        state: RunRecord.State = .running,
        label: String = "main",
        host: String = "web1"
    ) -> RunRecord {
        var run = RunRecord(
            id: id,
            startedAt: now.advanced(byNanoseconds: -startedMinutesAgo * 60_000_000_000),
            updatedAt: now.advanced(byNanoseconds: -updatedMinutesAgo * 60_000_000_000),
            host: .init(name: host),
            service: .init(name: "shop"),
            process: .init(pid: 7),
            monitorVersion: "1"
        )
        run.state = state
        run.watched = [.init(label: label, watchedNs: 1)]
        return run
    }

    static func insert(_ reports: [StallReport], team: String = "a", into store: SQLiteStore) async throws -> Int {
        try await store.insert(reports.map { try Arrival(json: $0.json(), team: team, now: now) })
    }

    static func insert(_ runs: [RunRecord], team: String = "a", into store: SQLiteStore) async throws -> Int {
        try await store.insert(runs.map { try Arrival(json: $0.json(), team: team, now: now) })
    }

    static func query(team: String = "a") -> StallQuery {
        StallQuery(team: team, since: now.advanced(byNanoseconds: -30 * 24 * hourNs), until: now)
    }

    /// Steps of SQLite's virtual machine for a write: the same on every computer.
    static func steps(_ arrivals: [Arrival], into store: SQLiteStore) async throws -> Int {
        try await steps(in: store) { database in
            var writer = try SQLiteWriter(database)
            for arrival in arrivals { _ = try writer.insert(arrival) }
            try writer.finish()
        }
    }

    static func steps(in store: SQLiteStore, _ work: @Sendable (Database) throws -> Void) async throws -> Int {
        try await store.database.write { database in
            let counter = Counter()
            try withExtendedLifetime(counter) {
                let pointer = unsafe Unmanaged.passUnretained(counter).toOpaque()
                unsafe sqlite3_progress_handler(
                    database.sqliteConnection,
                    1,
                    {
                        unsafe Unmanaged<Counter>.fromOpaque($0!).takeUnretainedValue().count += 1
                        return 0
                    },
                    pointer
                )
                defer { unsafe sqlite3_progress_handler(database.sqliteConnection, 0, nil, nil) }
                try work(database)
            }
            return counter.count
        }
    }

    private final class Counter { var count = 0 }
}
