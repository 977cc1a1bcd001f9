import Foundation
import GRDB
import StallReading
import StallReports
import Synchronization
import Testing

@testable import StallStore

/// What an SQLite store removes, and the space that becomes free.
@Suite("Removal from a store in SQLite")
struct SQLiteRemovalTests {
    private typealias Samples = SQLiteSamples

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

    @Test(
        "Stalls whose reports are missing, as in a recovered file, are removed like others",
        .timeLimit(.minutes(1)),
        arguments: [true, false]
    )
    func recovered(byAge: Bool) async throws {
        try await Samples.withStore { store in
            let reports = (0..<20).map { Samples.report(minutesAgo: 600 + $0) }
            _ = try await Samples.insert(reports, into: store)
            try await store.database.write { try $0.execute(sql: "DELETE FROM body") }
            // By size it went on for ever: it found the oldest one again and again, and could not remove it.
            let moment = byAge ? Samples.now : Timestamp(seconds: 0)
            #expect(try await store.removeOld(before: moment, maximumBytes: byAge ? nil : 1) == reports.count)
            #expect(try await store.size().stalls == 0)
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
}
