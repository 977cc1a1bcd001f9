import Foundation
import HTTPTypes
import Logging
import StallReports
import StallStore
import Synchronization
import Testing

@testable import StallCollector

// The file of rules: what may stand in it, and what it says of a mistake.

extension AlertRuleTests {
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
            (
                "rules: [{name: a, when: silence, within: 5m}]\nreceivers: []",
                "rules[1].within: a rule of 'silence' has no such key"
            ),
            ("rules: [{name: a, when: rate, stalls: 1, after: 5m}]\nreceivers: []", "rules[1].after: a rule of"),
            ("rules: [{name: a, when: silence, verdicts: [waiting]}]\nreceivers: []", "rules[1].verdicts: a rule of"),
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
