import Foundation
import StallReports
import StallStore
import Synchronization
import Testing

@testable import StallCollector

@Suite("What receivers of alerts are told")
struct AlertDeliveryTests: AlertFixture {
    let directory = FileManager.default.temporaryDirectory.path + "/stall-alerts-\(UUID().uuidString)"

    @Test("A silenced alert is sent when the silence ends; unusable rules leave the previous ones")
    func silenced() async throws {
        let rules = "  - {name: gone, when: silence, after: 15m}"
        try await withStore(rules) { store in
            try write(rules, silences: "silences: [{rule: gone, until: 2026-06-15T12:30:00Z, reason: a move}]")
            let watch = try watch(store)
            _ = try await store.insert([Self.record(.running, minutesAgo: 20)])
            await watch.round(now: Self.now)
            #expect(try messages().isEmpty)
            try write("  - {name: gone, when: nonsense}")
            await watch.round(now: Self.now)
            #expect(try messages().isEmpty)
            await watch.round(now: Self.now.advanced(byNanoseconds: 1_900_000_000_000))
            #expect(try messages().flatMap(\.alerts).map(\.state) == ["firing"])
        }
    }

    @Test("An alert that ends, begins and ends again during a silence is told to be over when the silence ends")
    func endsInSilence() async throws {
        let rules = "  - {name: gone, when: silence, after: 15m}"
        try await withStore(rules) { store in
            let watch = try watch(store)
            func round(_ minutes: Int64) async throws -> [String] {
                await watch.round(now: Self.now.advanced(byNanoseconds: minutes * 60_000_000_000))
                return try messages().flatMap(\.alerts).map(\.state)
            }
            _ = try await store.insert([Self.record(.running, minutesAgo: 20)])
            #expect(try await round(0) == ["firing"])
            try write(rules, silences: "silences: [{rule: gone, until: 2026-06-15T12:30:00Z}]")
            let successor = ULID.make()
            _ = try await store.insert([Self.record(.running, id: successor, startedMinutesAgo: 5, minutesAgo: 1)])
            #expect(try await round(0) == ["firing"])
            #expect(try await store.alerts().map { $0.endedAt == nil } == [false])
            #expect(try await round(20) == ["firing"])
            #expect(try await store.alerts().map { $0.endedAt == nil } == [true])
            _ = try await store.insert([
                Self.record(.terminated, id: successor, startedMinutesAgo: 5, minutesAgo: -21)
            ])
            #expect(try await round(21) == ["firing"])
            #expect(try await round(31) == ["firing", "resolved"])
            #expect(try await store.alerts().isEmpty)
        }
    }

    @Test("A failed receiver gets the alert at the next look; the others do not get it twice")
    func failing() async throws {
        let rules = "  - {name: gone, when: silence, after: 15m}"
        try await withStore(rules) { store in
            try FileManager.default.createDirectory(atPath: directory + "/late", withIntermediateDirectories: true)
            try write(rules, receivers: ["told", "late/there/x"])
            let metrics = CollectorMetrics()
            let watch = try watch(store, metrics: metrics)
            _ = try await store.insert([Self.record(.running, minutesAgo: 20)])
            for _ in 0..<2 { await watch.round(now: Self.now) }
            #expect((metrics.alertsTold.count, metrics.alertFailures.count) == (1, 2))
            try FileManager.default.createDirectory(
                atPath: directory + "/late/there",
                withIntermediateDirectories: true
            )
            for _ in 0..<2 { await watch.round(now: Self.now) }
            #expect(try messages().count == 1)
            #expect(try messages("late/there/x").count == 1)
        }
    }

    @Test("A receiver that does not answer delays no other")
    func slow() async throws {
        let rules = "  - {name: gone, when: silence, after: 15m}"
        try await withStore(rules) { store in
            // It ends when the other one was told.
            let slow = "  - exec: [/bin/sh, -c, 'until test -s \(directory)/told; do sleep 0.01; done']"
            let text = try String(contentsOfFile: rulesFile, encoding: .utf8)
            try text.replacing("receivers:", with: "receivers:\n\(slow)")
                .write(toFile: rulesFile, atomically: true, encoding: .utf8)
            let metrics = CollectorMetrics()
            let watch = try watch(store, metrics: metrics)
            _ = try await store.insert([Self.record(.running, minutesAgo: 20)])
            for _ in 0..<2 { await watch.round(now: Self.now) }
            #expect((metrics.alertsTold.count, metrics.alertFailures.count) == (2, 0))
        }
    }

    @Test("A receiver that is put before another one is told, and the other one is not told again")
    func changedOrder() async throws {
        let rules = "  - {name: gone, when: silence, after: 15m}"
        try await withStore(rules) { store in
            let watch = try watch(store)
            _ = try await store.insert([Self.record(.running, minutesAgo: 20)])
            await watch.round(now: Self.now)
            try write(rules, receivers: ["new", "told"])
            await watch.round(now: Self.now)
            #expect(try messages().count == 1)
            #expect(try messages("new").count == 1)
        }
    }

    @Test("That a receiver was told is noted even if the collector ends at this moment")
    func endAfterMessage() async throws {
        try await withStore("  - {name: gone, when: silence}") { _ in
            let barrier = Barrier()
            let noted = Mutex<[Bool]>([])
            let alert = Alert(team: "default", rule: "gone", subject: "shop", text: "gone", beganAt: Self.now)
            var store = StubStore(known: [alert])
            store.changing = { alerts in
                guard alerts.contains(where: { !$0.toldBegin.isEmpty }) else { return }
                await barrier.pass()
                noted.withLock { $0.append(Task.isCancelled) }
            }
            let watch = try watch(store)
            let round = Task { await watch.round(now: Self.now) }
            while await barrier.arrived == 0 { try await Task.sleep(for: .milliseconds(10)) }
            round.cancel()
            await barrier.open()
            await round.value
            #expect(noted.withLock { $0 } == [false])
            #expect(try messages().count == 1)
        }
    }

    @Test("A receiver is not told again because the store cannot note that it was told")
    func fullDisk() async throws {
        try await withStore("  - {name: gone, when: silence}") { _ in
            let last = Self.now.advanced(byNanoseconds: -1_200_000_000_000)
            var store = StubStore()
            store.known = [
                Alert(team: "default", rule: "gone", subject: "shop on web1", text: "gone", beganAt: Self.now)
            ]
            store.silent = { [SilentRun(service: "shop", release: "", host: "web1", updatedAt: last)] }
            store.changing = { alerts in if !alerts.isEmpty { throw StubStore.Failure() } }
            let watch = try watch(store)
            for _ in 0..<3 { await watch.round(now: Self.now) }
            #expect(try messages().count == 1)
        }
    }

    @Test("A webhook gets JSON by POST; a refusal is a failure whose text hides its secret path")
    func webhook() async throws {
        let store = directory + "/stalls.db"
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: directory) }
        // Any server will do: this one does not know the path.
        try await Client.withServer(try SQLiteStore(path: store), CollectorOptions()) { client in
            let address = "http://127.0.0.1:\(client.port)/hooks/secret"
            let receiver = AlertReceiver(way: .webhook(try #require(URL(string: address))))
            #expect(!receiver.key.contains("secret"))
            let alert = Alert(team: "default", rule: "r", subject: "s", text: "t", beganAt: Self.now)
            let error = await #expect(throws: AlertReceiver.Failure.self) {
                try await receiver.send(AlertMessage([alert], nil))
            }
            #expect(error?.description == "it answered 404")
        }
    }

    @Test("A webhook's address is read again when its file changes, without a change of the rules")
    func rotatedSecret() async throws {
        try await withStore("  - {name: new, when: new-fault, within: 1h}") { store in
            let secret = directory + "/url"
            try "http://127.0.0.1:1/old".write(toFile: secret, atomically: true, encoding: .utf8)
            let rules = "rules: []\nreceivers: [{webhookFile: \(secret)}]"
            try rules.write(toFile: rulesFile, atomically: true, encoding: .utf8)
            let watch = try watch(store)
            await watch.round(now: Self.now)
            let keys = await watch.rules.receivers.map(\.key)
            try "http://127.0.0.1:1/newer".write(toFile: secret, atomically: true, encoding: .utf8)
            await watch.round(now: Self.now)
            let address = try #require(URL(string: "http://127.0.0.1:1/newer"))
            #expect(await watch.rules.receivers.map(\.way) == [.webhook(address)])
            #expect(await watch.rules.receivers.map(\.key) == keys)
        }
    }

    @Test("Rules that name a file which does not exist yet are used once it exists")
    func laterSecret() async throws {
        try await withStore("  - {name: new, when: new-fault, within: 1h}") { store in
            let watch = try watch(store)
            let before = await watch.rules.receivers
            let secret = directory + "/url"
            let rules = "rules: []\nreceivers: [{webhookFile: \(secret)}]"
            try rules.write(toFile: rulesFile, atomically: true, encoding: .utf8)
            for _ in 0..<2 { await watch.round(now: Self.now) }
            #expect(await watch.rules.receivers == before)
            try "http://127.0.0.1:1/later".write(toFile: secret, atomically: true, encoding: .utf8)
            await watch.round(now: Self.now)
            let address = try #require(URL(string: "http://127.0.0.1:1/later"))
            #expect(await watch.rules.receivers.map(\.way) == [.webhook(address)])
        }
    }
}
