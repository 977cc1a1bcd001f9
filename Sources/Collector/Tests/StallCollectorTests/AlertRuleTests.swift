import Foundation
import HTTPTypes
import StallReports
import StallStore
import Synchronization
import Testing

@testable import StallCollector

@Suite("What rules for alerts find")
struct AlertRuleTests: AlertFixture {
    let directory = FileManager.default.temporaryDirectory.path + "/stall-alerts-\(UUID().uuidString)"

    @Test("A new fault is reported once, even after a restart of the collector; an old one is not reported")
    func newFault() async throws {
        try await withStore("  - {name: new, when: new-fault, within: 1h}") { store in
            try await Self.insert("first()", minutesAgo: 5, into: store)
            try await watch(store).round(now: Self.now)
            #expect(try messages().isEmpty, "a store without a past")
            try await Self.insert("old()", minutesAgo: 300, into: store)
            try await Self.insert("old()", minutesAgo: 5, into: store)
            try await Self.insert("new<!channel>&()", minutesAgo: 4, count: 3, into: store)
            let watch = try watch(store)
            for _ in 0..<3 { await watch.round(now: Self.now) }
            try await self.watch(store).round(now: Self.now)
            let told = try messages()
            #expect(told.count == 1)
            #expect(told.first?.alerts.count == 2)
            let text = told.first?.text ?? ""
            #expect(
                text.contains("new: new in shop 1.5: new&lt;!channel&gt;&amp;(), 3 stalls, the longest 500ms"),
                "\(text)"
            )
            #expect(text.contains("https://stalls.example.com/faults/v2:") && !text.contains("old()"), "\(text)")
            // After more than an hour it is no longer new.
            await watch.round(now: Self.now.advanced(byNanoseconds: 7_200_000_000_000))
            #expect(try messages().last?.alerts.map(\.state) == ["resolved", "resolved"])
            #expect(try await store.alerts().isEmpty)
        }
    }

    @Test("A new fault is reported at once also in a service whose first stall was a moment ago")
    func youngService() async throws {
        try await withStore("  - {name: new, when: new-fault, within: 1h}") { store in
            try await Self.insert("first()", minutesAgo: 5, into: store)
            try await Self.insert("second()", minutesAgo: 4, into: store)
            try await watch(store).round(now: Self.now)
            #expect(try messages().flatMap(\.alerts).map(\.subject) == ["\(Self.fingerprint("second()")) in shop"])
        }
    }

    @Test(
        "A fault that is new in two services is reported for each; an alert or a silence of an earlier collector is of both"
    )
    func twoServices() async throws {
        let rules = "  - {name: new, when: new-fault, within: 1h}\n  - {name: known, when: new-fault, within: 1h}"
        try await withStore(rules) { store in
            let fault = Self.fingerprint("new()").rawValue
            var earlier = Alert(team: "default", rule: "known", subject: fault, text: "t", beganAt: Self.now)
            earlier.toldBegin = ["nobody"]
            try await store.change(alerts: [earlier], removing: [])
            for service in ["shop", "bakery"] {
                try await Self.insert("old()", minutesAgo: 300, service: service, into: store)
                try await Self.insert("new()", minutesAgo: 5, service: service, into: store)
            }
            let subjects = ["\(fault) in bakery", "\(fault) in shop"]
            try await watch(store).round(now: Self.now)
            let alerts = try await store.alerts()
            #expect(alerts.map { "\($0.rule) \($0.subject)" } == ["known \(fault)"] + subjects.map { "new \($0)" })
            let told = try messages().flatMap(\.alerts).filter { $0.rule == "new" }
            #expect(told.map(\.subject).sorted() == subjects)
            #expect(AlertSubject.fault(of: subjects[0])?.rawValue == fault)
            for (silenced, expected) in [(fault, [true, true]), (subjects[0], [true, false])] {
                let silence = AlertSilence(
                    rule: "new",
                    subject: silenced,
                    until: Self.now.advanced(byNanoseconds: 1)
                )
                #expect(subjects.map { silence.covers("new", $0, at: Self.now) } == expected)
            }
        }
    }

    @Test("A new fault that gets names is not reported again under its new fingerprint, and ends once")
    func names() async throws {
        try await withStore("  - {name: new, when: new-fault, within: 1h}") { store in
            try await Self.insert("old()", minutesAgo: 300, into: store)
            try await Self.insert("code at 0x1", minutesAgo: 5, into: store)
            let watch = try watch(store)
            await watch.round(now: Self.now)
            let nameless = Self.fingerprint("code at 0x1")
            try await Self.insert("named()", minutesAgo: 4, aliases: [nameless], into: store)
            for _ in 0..<2 { await watch.round(now: Self.now) }
            await watch.round(now: Self.now.advanced(byNanoseconds: 7_200_000_000_000))
            let told = try messages().flatMap(\.alerts)
            #expect(told.map(\.state) == ["firing", "resolved"])
            #expect(told.map(\.subject) == ["\(nameless) in shop", "\(nameless) in shop"])
        }
    }

    @Test(
        "A fault that returns in a release is new in it; one that the service always had is not, nor by others' faults"
    )
    func newInRelease() async throws {
        let rules = "  - {name: came, when: new-in-release}\n  - {name: new, when: new-fault}"
        try await withStore(rules) { store in
            for release in ["1.4", "1.5"] {
                try await Self.insert("old()", minutesAgo: 600, release: release, into: store)
            }
            try await Self.insert("back()", minutesAgo: 700, release: "1.4", into: store)
            try await Self.insert("old()", minutesAgo: 3, release: "1.6", into: store)
            try await Self.insert("back()", minutesAgo: 2, release: "1.6", into: store)
            // Known only to another service.
            try await Self.insert("known()", minutesAgo: 500, service: "bakery", into: store)
            try await Self.insert("known()", minutesAgo: 1, release: "1.6", into: store)
            try await watch(store).round(now: Self.now)
            let lines = try messages().flatMap { $0.text.split(separator: "\n") }.map { text in
                String(text.prefix { $0 != "," })
            }
            #expect(
                lines.sorted() == [
                    "came: new in shop 1.6: back()", "came: new in shop 1.6: known()", "new: new in shop 1.6: known()",
                ]
            )
        }
    }

    @Test("The first page shows ongoing alerts, each name as text, and only those of the team")
    func page() async throws {
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: directory) }
        let store = try SQLiteStore(path: directory + "/stalls.db")
        let fault = Fingerprint.make(
            kind: .blocked,
            frames: [.init(address: 1, function: "f()", own: true)],
            modules: []
        )
        var over = Alert(team: "default", rule: "over", subject: "s", text: "t", beganAt: Self.now)
        over.endedAt = Self.now
        let alerts = [
            Alert(team: "default", rule: "new", subject: fault.rawValue, text: "<b>", beganAt: Self.now),
            Alert(team: "default", rule: "gone", subject: "web1", text: "quiet", beganAt: Self.now),
            Alert(team: "others", rule: "theirs", subject: "s", text: "t", beganAt: Self.now), over,
        ]
        let more = (0..<22).map { Alert(team: "default", rule: "z", subject: "\($0)", text: "t", beganAt: Self.now) }
        try await store.change(alerts: alerts + more, removing: [])
        try await Client.withServer(store, CollectorOptions()) { client in
            try await client.execute(uri: "/", method: .get) {
                let text = String(decoding: $0.body, as: UTF8.self)
                #expect(text.contains("<h2>24 alerts</h2>"), "\(text)")
                #expect(text.contains("<details><summary>21 more alerts</summary>"), "\(text)")
                #expect(
                    text.contains("\">new: &lt;b&gt;</a>") && text.contains("\(fault.rawValue.suffix(16))?since="),
                    "\(text)"
                )
                #expect(text.contains("gone: quiet ") && !text.contains("theirs") && !text.contains("over: t"))
            }
            try await client.execute(uri: "/api/v1/alerts", method: .get) {
                let text = String(decoding: $0.body, as: UTF8.self)
                #expect(text.contains("quiet") && !text.contains("theirs") && !text.contains("over"), "\(text)")
            }
        }
    }

    @Test("A rate alert begins above its limit and ends at half of it, so that it does not flap")
    func rate() async throws {
        try await withStore("  - {name: often, when: rate, stalls: 10, within: 10m}") { store in
            let watch = try watch(store)
            func round(_ minutes: Int64) async throws -> [String] {
                await watch.round(now: Self.now.advanced(byNanoseconds: minutes * 60_000_000_000))
                return try messages().flatMap(\.alerts).map { "\($0.state) \($0.subject)" }
            }
            try await Self.insert("f()", minutesAgo: 9, count: 10, into: store)
            try await Self.insert("f()", minutesAgo: 2, count: 50, service: "bakery", into: store)
            #expect(try await round(0) == ["firing bakery"])
            try await Self.insert("f()", minutesAgo: 1, count: 6, into: store)
            #expect(try await round(0) == ["firing bakery", "firing shop"])
            // Ten of shop's are now too old; six are more than half.
            #expect(try await round(2) == ["firing bakery", "firing shop"])
            #expect(
                try await round(30).sorted() == ["firing bakery", "firing shop", "resolved bakery", "resolved shop"]
            )
            #expect(try await store.alerts().isEmpty)
        }
    }

    @Test("A rule selects waits by the word in their reports, and by that on pages", arguments: ["blocked", "waiting"])
    func waits(word: String) async throws {
        try await withStore("  - {name: waits, when: rate, stalls: 1, verdicts: [\(word)]}") { store in
            try await Self.insert("f()", minutesAgo: 2, count: 2, verdict: .blocked, into: store)
            try await Self.insert("f()", minutesAgo: 2, count: 2, service: "bakery", into: store)
            try await watch(store).round(now: Self.now)
            #expect(try messages().flatMap(\.alerts).map(\.subject) == ["shop"])
        }
    }

    @Test(
        "A rate alert does not end because a part of the store does not answer",
        arguments: ["", ", services: [shop]"]
    )
    func partial(services: String) async throws {
        try await withStore("  - {name: often, when: rate, stalls: 10\(services)}") { _ in
            var alert = Alert(team: "default", rule: "often", subject: "shop", text: "often", beganAt: Self.now)
            alert.toldBegin = [try #require(try AlertRules(path: rulesFile).receivers.first).key]
            for isPartial in [true, false] {
                let ended = Mutex<[Alert]>([])
                var store = StubStore(isPartial: isPartial, known: [alert])
                store.changing = { alerts in ended.withLock { $0 += alerts.filter { $0.endedAt != nil } } }
                try await watch(store).round(now: Self.now)
                #expect(ended.withLock { $0.map(\.subject) } == (isPartial ? [] : ["shop"]))
            }
        }
    }

    @Test("A rate rule looks at every service, however many there are")
    func manyServices() async throws {
        try await withStore("  - {name: often, when: rate, stalls: 10}") { _ in
            let began = Mutex<Set<String>>([])
            var store = StubStore()
            store.stalling = (0..<300).map { ServiceSum(name: "service\($0)", count: 11, totalNs: 1) }
            store.changing = { alerts in began.withLock { $0.formUnion(alerts.map(\.subject)) } }
            try await watch(store).round(now: Self.now)
            #expect(began.withLock { $0.count } == 300)
        }
    }

    @Test("A rule that cannot be evaluated does not keep others from it, and its alerts do not end")
    func failingRule() async throws {
        let rules = ["red", "blue"].map { "  - {name: \($0), team: \($0), when: rate, stalls: 10}" }
        try await withStore(rules.joined(separator: "\n")) { _ in
            let key = try #require(try AlertRules(path: rulesFile).receivers.first).key
            let ended = Mutex<[Alert]>([])
            var store = StubStore()
            store.known = ["red", "blue"].map { name in
                var alert = Alert(team: name, rule: name, subject: "shop", text: "often", beganAt: Self.now)
                alert.toldBegin = [key]
                return alert
            }
            store.failingTeams = ["red"]
            store.changing = { alerts in ended.withLock { $0 += alerts.filter { $0.endedAt != nil } } }
            try await watch(store).round(now: Self.now)
            #expect(ended.withLock { $0.map(\.rule) } == ["blue"])
        }
    }

    @Test("Stalls of processes that gave no service's name cause a rate alert too")
    func nameless() async throws {
        try await withStore("  - {name: often, when: rate, stalls: 10, within: 10m}") { store in
            try await Self.insert("f()", minutesAgo: 2, count: 11, service: "", into: store)
            try await watch(store).round(now: Self.now)
            let told = try messages().flatMap(\.alerts)
            #expect(told.map { "\($0.state) \($0.subject)" } == ["firing a service without a name"])
        }
    }
}
