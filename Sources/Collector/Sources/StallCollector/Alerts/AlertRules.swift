import Foundation
import StallReports
import StallStore
import Yams

/// The rules for alerts and their receivers: a YAML file that an operator maintains. The collector's README.md shows every key.
struct AlertRules: Sendable {
    /// The collector's address for users, without a final slash. Messages link to it.
    var address: String?
    var rules: [AlertRule]
    var receivers: [AlertReceiver]
    var silences: [AlertSilence]

    /// - Throws: The first mistake, with its position.
    init(path: String) throws(CollectorError) {
        do {
            let text = try String(contentsOfFile: path, encoding: .utf8)
            self = try YAMLDecoder().decode(Self.self, from: text)
        } catch let error as DecodingError {
            throw CollectorError("the rules for alerts, \(path): \(Self.text(error))")
        } catch {
            throw CollectorError("the rules for alerts, \(path), cannot be read")
        }
    }

    private static func text(_ error: DecodingError) -> String {
        let context: DecodingError.Context
        switch error {
        case .dataCorrupted(let found), .typeMismatch(_, let found), .valueNotFound(_, let found): context = found
        case .keyNotFound(let key, let found):
            return "\(place(found.codingPath)) has no '\(key.stringValue)'"
        @unknown default: return "\(error)"
        }
        return "\(place(context.codingPath)): \(context.debugDescription)"
    }

    private static func place(_ path: [any CodingKey]) -> String {
        path.isEmpty
            ? "the file"
            : path.map { $0.intValue.map { "[\($0 + 1)]" } ?? ".\($0.stringValue)" }.joined().trimmingPrefix(".")
                .description
    }
}

/// The condition under which an alert begins and ends.
struct AlertRule: Sendable, Hashable {
    var name: String
    var team: String
    /// Empty: all services.
    var services: [String]
    var releases: [String]
    var hosts: [String]
    var verdicts: [String]
    var condition: Condition

    enum Condition: Sendable, Hashable {
        /// A fault that the service did not have before the last `within` nanoseconds.
        case newFault(withinNs: Int64)
        /// A fault that the service has had in a release for at most this time, and did not have in the previous release.
        case newInRelease(withinNs: Int64)
        /// A service has more stalls, or is stalled longer in total. It ends when both are half of that or less.
        case rate(stalls: Int64?, blockedNs: Int64?, withinNs: Int64)
        /// A running monitor has sent nothing for this time.
        case silence(afterNs: Int64)
    }
}

/// Suppresses alerts for a while.
struct AlertSilence: Sendable, Hashable {
    var rule: String
    /// Nil: all alerts of the rule.
    var subject: String?
    var until: Timestamp

    func covers(_ rule: String, _ subject: String, at now: Timestamp) -> Bool {
        guard self.rule == rule, now < until else { return false }
        guard let own = self.subject, own != subject else { return true }
        // A fingerprint alone is that fault in any service.
        return AlertSubject.fault(of: subject).map { $0.rawValue == own } ?? false
    }
}

extension AlertRules: Decodable {
    private enum Key: String, CodingKey, CaseIterable { case url, rules, receivers, silences }

    init(from decoder: any Decoder) throws {
        let values = try decoder.values(Key.self)
        address = try values.decodeIfPresent(String.self, forKey: .url).map {
            $0.hasSuffix("/") ? String($0.dropLast()) : $0
        }
        rules = try values.decode([AlertRule].self, forKey: .rules)
        receivers = try values.decode([AlertReceiver].self, forKey: .receivers)
        silences = try values.decodeIfPresent([AlertSilence].self, forKey: .silences) ?? []
        let names = rules.map(\.name)
        if Set(names).count < names.count {
            throw values.mistake(.rules, "two have the same name")
        }
        if let silence = silences.first(where: { !names.contains($0.rule) }) {
            throw values.mistake(.silences, "there is no rule '\(silence.rule)'")
        }
    }
}

extension AlertRule: Decodable {
    private enum Key: String, CodingKey, CaseIterable {
        case name, team, when, services, releases, hosts, verdicts, within, after, stalls, blocked
    }

    init(from decoder: any Decoder) throws {
        let values = try decoder.values(Key.self)
        // Names in the form in which the store has them.
        func names(_ key: Key) throws -> [String] {
            try (values.decodeIfPresent([String].self, forKey: key) ?? []).map { VisibleText.of($0, limit: 256) }
        }
        name = Self.shown(try values.decode(String.self, forKey: .name))
        team = try values.decodeIfPresent(String.self, forKey: .team) ?? "default"
        (services, releases) = (try names(.services), try names(.releases))
        hosts = try names(.hosts)
        verdicts = try names(.verdicts).map { Verdict(rawValue: $0).canonical.rawValue }
        condition = try Self.condition(values)
    }

    /// Every rule may have these. The others belong to some conditions only.
    private static let common: Set<Key> = [.name, .team, .when, .services, .releases, .hosts]

    /// The keys of a condition besides the common ones. Nil for an unknown condition.
    private static func keys(ofCondition name: String) -> Set<Key>? {
        switch name {
        case "new-fault", "new-in-release": [.verdicts, .within]
        case "rate": [.verdicts, .stalls, .blocked, .within]
        case "silence": [.after]
        default: nil
        }
    }

    private static func condition(_ values: KeyedDecodingContainer<Key>) throws -> Condition {
        let name = try values.decode(String.self, forKey: .when)
        let given = Key.allCases.filter { !common.contains($0) && values.contains($0) }
        if let own = keys(ofCondition: name), let foreign = given.first(where: { !own.contains($0) }) {
            throw values.mistake(foreign, "a rule of '\(name)' has no such key")
        }
        func length(_ key: Key) throws -> Int64? {
            guard let text = try values.decodeIfPresent(String.self, forKey: key) else { return nil }
            guard let length = DurationText(text), length.nanoseconds > 0 else {
                throw values.mistake(key, "a length is a number and a unit, like 30s, 10m or 1h")
            }
            return min(length.nanoseconds, 31 * Hours.dayNs)
        }
        switch name {
        case "new-fault": return .newFault(withinNs: try length(.within) ?? Hours.hourNs)
        case "new-in-release": return .newInRelease(withinNs: try length(.within) ?? Hours.hourNs)
        case "rate":
            let stalls = try values.decodeIfPresent(Int64.self, forKey: .stalls)
            let blocked = try length(.blocked)
            guard stalls.map({ $0 > 0 }) ?? (blocked != nil) else {
                throw values.mistake(.when, "a rate has 'stalls', a number from 1, or 'blocked', a length")
            }
            return .rate(stalls: stalls, blockedNs: blocked, withinNs: try length(.within) ?? Hours.hourNs)
        case "silence": return .silence(afterNs: try length(.after) ?? Hours.hourNs / 4)
        default:
            throw values.mistake(.when, "this is 'new-fault', 'new-in-release', 'rate' or 'silence'")
        }
    }
}

extension AlertRule {
    /// A rule's name as in messages.
    fileprivate static func shown(_ name: String) -> String { VisibleText.of(name, limit: 100) }
}

extension AlertSilence: Decodable {
    private enum Key: String, CodingKey, CaseIterable { case rule, subject, until, reason }

    init(from decoder: any Decoder) throws {
        let values = try decoder.values(Key.self)
        rule = AlertRule.shown(try values.decode(String.self, forKey: .rule))
        subject = try values.decodeIfPresent(String.self, forKey: .subject)
        guard let until = Timestamp(rfc3339: try values.decode(String.self, forKey: .until)) else {
            throw values.mistake(.until, "this is a time like 2026-01-31T12:00:00Z")
        }
        self.until = until
    }
}

extension Decoder {
    /// - Throws: For an unknown key too. It would otherwise be ignored silently.
    func values<Key: CodingKey & CaseIterable>(_: Key.Type) throws -> KeyedDecodingContainer<Key> {
        for key in try container(keyedBy: AnyKey.self).allKeys where Key(stringValue: key.stringValue) == nil {
            let known = Key.allCases.map(\.stringValue).joined(separator: ", ")
            throw DecodingError.dataCorrupted(
                .init(codingPath: codingPath + [key], debugDescription: "there is no such key; there are \(known)")
            )
        }
        return try container(keyedBy: Key.self)
    }
}

extension KeyedDecodingContainer {
    func mistake(_ key: Key, _ text: String) -> DecodingError {
        .dataCorruptedError(forKey: key, in: self, debugDescription: text)
    }
}

private struct AnyKey: CodingKey {
    let stringValue: String
    let intValue: Int? = nil
    init(stringValue: String) { self.stringValue = stringValue }
    init?(intValue: Int) { nil }
}
