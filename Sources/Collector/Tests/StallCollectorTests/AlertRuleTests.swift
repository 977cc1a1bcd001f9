import Foundation
import HTTPTypes
import Logging
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
                #expect(text.contains(">and 4 more alerts</a>"), "\(text)")
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

    private struct Warnings: LogHandler {
        let kept: Kept
        var metadata = Logger.Metadata()
        var logLevel = Logger.Level.warning
        subscript(metadataKey key: String) -> Logger.Metadata.Value? {
            get { metadata[key] }
            set { metadata[key] = newValue }
        }
        func log(event: LogEvent) { kept.all.withLock { $0.append(event.metadata ?? [:]) } }

        final class Kept: Sendable {
            let all = Mutex<[Logger.Metadata]>([])
        }
    }

    @Test("A rule about a team that has no token is named in the log")
    func teamWithoutToken() async throws {
        let rules = ["{name: a, when: new-fault, team: red}", "{name: b, when: new-fault}"]
        try await withStore(rules.map { "  - \($0)" }.joined(separator: "\n")) { store in
            let path = directory + "/tokens"
            try "red read red-token-0123456789\n".write(toFile: path, atomically: true, encoding: .utf8)
            try FileManager.default.setAttributes([.posixPermissions: 0o600], ofItemAtPath: path)
            let kept = Warnings.Kept()
            let logger = Logger(label: "test") { _ in Warnings(kept: kept) }
            let tokens = TokenFile(try Tokens(path: path), every: .seconds(3600), audit: nil, logger: logger)
            let watch = try AlertWatch(
                rulesFile,
                store,
                every: .seconds(3600),
                tokens: tokens,
                metrics: CollectorMetrics(),
                logger: logger
            )
            await watch.checkTeams()
            #expect(kept.all.withLock { $0 } == [["rule": "b", "team": "default"]])
        }
    }

    @Test("The README's example is usable")
    func example() throws {
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: directory) }
        let package = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "../..")
        let readme = try String(contentsOf: package.appending(path: "README.md"), encoding: .utf8)
        let block = try #require(readme.split(separator: "```yaml\n").dropFirst().first?.split(separator: "```").first)
        try "https://hooks.example.com/x\n".write(toFile: directory + "/url", atomically: true, encoding: .utf8)
        // The files that it names must exist.
        try block.replacing("/etc/stall-collector/slack-url", with: directory + "/url")
            .replacing("/etc/stall-collector/mail-password", with: directory + "/url")
            .replacing("/usr/local/bin/page", with: "/bin/true")
            .write(toFile: rulesFile, atomically: true, encoding: .utf8)
        let rules = try AlertRules(path: rulesFile)
        #expect(rules.rules.map(\.name) == ["new faults", "stalls too often", "silent monitors"])
        #expect(
            rules.receivers.map(\.name) == [
                "webhook hooks.example.com of \(directory)/url", "exec /bin/true",
                "mail oncall@example.com by mail.example.com",
            ]
        )
        #expect(rules.silences.count == 1)
    }

    @Test("A silence names its rule, and a rule its services, also by characters that are made visible")
    func shownNames() throws {
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: directory) }
        let (rule, service) = ("\u{26A0}\u{FE0F} slow", "shop\u{A0}1")
        let text = """
            rules: [{name: '\(rule)', when: silence, services: ['\(service)']}]
            receivers: []
            silences: [{rule: '\(rule)', until: 2026-06-15T12:30:00Z}]
            """
        try text.write(toFile: rulesFile, atomically: true, encoding: .utf8)
        let rules = try AlertRules(path: rulesFile)
        #expect(rules.rules.map(\.services) == [["shop\\u{A0}1"]])
        let name = try #require(rules.rules.first?.name)
        #expect(rules.silences.first?.covers(name, "any", at: Self.now) == true)
    }

    @Test(
        "Rules with a mistake are not used, and the mistake is named",
        arguments: [
            ("rules: [", "not valid YAML"), ("rules: []", "no 'receivers'"),
            ("rules: [{name: a, when: never}]\nreceivers: []", "rules[1].when: this is"),
            ("rules: [{name: a, when: rate}]\nreceivers: []", "a rate has"),
            ("rules: [{name: a, when: rate, stalls: 0}]\nreceivers: []", "a rate has"),
            ("rules: [{name: a, when: silence, after: 5}]\nreceivers: []", "a length is"),
            ("rules: [{name: a, when: silence, afther: 5m}]\nreceivers: []", "rules[1].afther: there is no such key"),
            ("rules: [{name: a, when: silence}, {name: a, when: silence}]\nreceivers: []", "the same name"),
            ("rules: []\nreceivers: [{exec: [curl]}]", "the whole path"),
            ("rules: []\nreceivers: [{webhook: 'ftp://x'}]", "begins with https"),
            ("rules: []\nreceivers: [{mail: 'a@b.example, c@d.example'}]", "one mail address"),
            ("rules: []\nreceivers: [{mail: \"a@b.example>\"}]", "one mail address"),
            ("rules: []\nreceivers: [{mail: \"a@b.example\\r\\nDATA\"}]", "one mail address"),
            ("rules: []\nreceivers: [{mail: a@b.example, webhook: 'http://x'}]", "a receiver is one of"),
            ("rules: []\nreceivers: [{webhook: 'http://x', from: a@b.example}]", "this belongs to 'mail'"),
            ("rules: []\nreceivers: [{mail: a@b.example, tls: false}]", "this belongs to 'server'"),
            ("rules: []\nreceivers: [{mail: a@b.example, server: 'mail.example'}]", "a server is like smtps://"),
            ("rules: []\nreceivers: [{mail: a@b.example, server: 'smtps://u:p@m'}]", "belongs into 'passwordFile'"),
            ("rules: []\nreceivers: [{mail: a@b.example, server: 'smtps://u@m'}]", "belong together"),
            ("rules: []\nreceivers: [{mail: a@b.example, server: 'smtps://m', tls: false}]", "smtps is TLS"),
            (
                "rules: []\nreceivers: [{mail: a@b.example, server: 'smtp://u@m', passwordFile: /etc/passwd, tls: false}]",
                "not sent without TLS"
            ),
            ("rules: []\nreceivers: []\nsilences: [{rule: x, until: 2026-06-15T12:30:00Z}]", "no rule 'x'"),
        ]
    )
    func mistakes(text: String, reason: String) throws {
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: directory) }
        try text.write(toFile: rulesFile, atomically: true, encoding: .utf8)
        let error = #expect(throws: CollectorError.self) { _ = try AlertRules(path: rulesFile) }
        #expect(error?.description.contains(reason) == true, "\(error?.description ?? "")")
    }
}
