import Foundation
import HTTPTypes
import StallReports
import StallStore
import Synchronization
import Testing

@testable import StallCollector

// Monitors from which nothing comes any more.

extension AlertRuleTests {
    @Test(
        "A silent monitor is reported, and so is its return; one that ended cleanly or was replaced is not"
    )
    func silence() async throws {
        try await withStore("  - {name: gone, when: silence, after: 15m}") { store in
            let (watch, id) = (try watch(store), ULID.make())
            _ = try await store.insert([Self.record(.running, id: id, minutesAgo: 20)])
            await watch.round(now: Self.now)
            #expect(try messages().flatMap(\.alerts).map(\.subject) == ["shop on web1"])
            // A process that began before is no successor.
            _ = try await store.insert([Self.record(.running, minutesAgo: 1)])
            await watch.round(now: Self.now)
            #expect(try messages().count == 1)
            // Restarted.
            let successor = ULID.make()
            _ = try await store.insert([Self.record(.running, id: successor, startedMinutesAgo: 5, minutesAgo: 1)])
            await watch.round(now: Self.now)
            #expect(try messages().flatMap(\.alerts).map(\.state) == ["firing", "resolved"])
            _ = try await store.insert([Self.record(.terminated, id: successor, startedMinutesAgo: 5, minutesAgo: 0)])
            await watch.round(now: Self.now.advanced(byNanoseconds: 600_000_000_000))
            #expect(try messages().count == 2)
        }
    }

    @Test("A silence of more than a week is reported, and is over after one week more")
    func longSilence() async throws {
        try await withStore("  - {name: gone, when: silence, after: 8d}") { store in
            let (watch, day) = (try watch(store), Int64(24 * 60))
            _ = try await store.insert([Self.record(.running, startedMinutesAgo: 10 * day, minutesAgo: 9 * day)])
            await watch.round(now: Self.now)
            #expect(try messages().flatMap(\.alerts).map(\.state) == ["firing"])
            await watch.round(now: Self.now.advanced(byNanoseconds: 7 * day * 60_000_000_000))
            #expect(try messages().flatMap(\.alerts).map(\.state) == ["firing", "resolved"])
        }
    }

    @Test("After a start no monitor counts as silent, or as heard again, before its sender must have tried again")
    func start() async throws {
        let rules = ["name: gone, when: silence, after: 15m", "name: often, when: rate, stalls: 10, within: 10m"]
        try await withStore(rules.map { "  - {\($0)}" }.joined(separator: "\n")) { store in
            // Nothing came while the collector was down.
            let id = ULID.make()
            _ = try await store.insert([Self.record(.running, id: id, minutesAgo: 20)])
            try await Self.insert("f()", minutesAgo: 2, count: 11, into: store)
            let started = try watch(store, patience: .seconds(3600))
            await started.awaitSenders()
            await started.round(now: Self.now)
            #expect(try messages().flatMap(\.alerts).map(\.rule) == ["often"])
            try await watch(store).round(now: Self.now)
            #expect(try messages().flatMap(\.alerts).map(\.rule) == ["often", "gone"])
            _ = try await store.insert([Self.record(.running, id: id, minutesAgo: 0)])
            await started.round(now: Self.now)
            #expect(try messages().count == 2)
        }
    }

    @Test(
        "After the store did not answer, no monitor counts as silent before its sender must have tried again",
        arguments: [true, false]
    )
    func outage(isWhole: Bool) async throws {
        try await withStore("  - {name: gone, when: silence, after: 15m}") { _ in
            let isDown = Mutex(true)
            let began = Mutex<[String]>([])
            let run = SilentRun(
                service: "shop",
                release: "",
                host: "web1",
                updatedAt: Self.now.advanced(byNanoseconds: -1_200_000_000_000)
            )
            var store = StubStore()
            store.knowing = { if isWhole, isDown.withLock({ $0 }) { throw StubStore.Failure() } }
            store.silent = {
                guard !isDown.withLock({ $0 }) else { throw StubStore.Failure() }
                return [run]
            }
            store.changing = { alerts in began.withLock { $0 += alerts.map(\.subject) } }
            let patient = try watch(store, patience: .seconds(3600))
            let other = try watch(store)
            for watch in [patient, other] { await watch.round(now: Self.now) }
            isDown.withLock { $0 = false }
            await patient.round(now: Self.now)
            #expect(began.withLock { $0 }.isEmpty)
            await other.round(now: Self.now)
            #expect(began.withLock { $0 }.contains("shop on web1"))
        }
    }

    @Test(
        "After the collector or its machine stood still, no monitor counts as silent before its sender must have tried again",
        arguments: [(wall: 120, other: 120), (wall: 120, other: 0), (wall: 0, other: 120), (wall: 20, other: 20)]
    )
    func standstill(minutes: (wall: Int, other: Int)) async throws {
        try await withStore("  - {name: gone, when: silence, after: 15m}") { store in
            _ = try await store.insert([Self.record(.running, minutesAgo: 14)])
            // The time between two evaluations is an hour here.
            let watch = try watch(store, patience: .seconds(36_000))
            let start = ContinuousClock.now
            await watch.round(now: Self.now, at: start)
            #expect(try messages().isEmpty)
            let now = Self.now.advanced(byNanoseconds: Int64(max(2, minutes.wall)) * 60_000_000_000)
            await watch.round(now: now, at: start + .seconds(60 * minutes.other))
            #expect(try messages().count == (minutes.wall > 60 || minutes.other > 60 ? 0 : 1))
        }
    }
}
