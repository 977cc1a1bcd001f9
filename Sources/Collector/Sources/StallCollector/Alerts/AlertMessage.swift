import Foundation
import StallReports
import StallStore

/// What receivers get: all changes since the last message.
///
/// Slack and compatible receivers show `text`. Its `&`, `<` and `>` are escaped for them, so that no name in it can mention a
/// channel.
struct AlertMessage: Encodable, Sendable {
    let text: String
    let alerts: [Entry]
    /// The text without escapes.
    let plainText: String

    private enum CodingKeys: String, CodingKey { case text, alerts }

    struct Entry: Encodable, Sendable {
        /// `firing` or `resolved`.
        var state: String
        var team: String
        var rule: String
        var subject: String
        var text: String
        var beganAt: Timestamp
        var endedAt: Timestamp?
        /// The address of its page.
        var url: String?

        private enum CodingKeys: String, CodingKey {
            case state, team, rule, subject, text, url
            case beganAt = "began_at"
            case endedAt = "ended_at"
        }
    }

    /// The largest number of lines of the text. `alerts` contains all alerts.
    private static let lineLimit = 40

    /// - Parameter address: the collector's address.
    init(_ alerts: [Alert], _ address: String?) {
        let entries = alerts.map { Entry($0, address) }
        self.alerts = entries
        var lines = entries.prefix(Self.lineLimit).map(\.line)
        if entries.count > lines.count { lines.append("and \(entries.count - lines.count) more") }
        plainText = lines.joined(separator: "\n")
        text = Self.escaped(plainText)
    }

    private static func escaped(_ text: String) -> String {
        text.replacingScalars(["&": "&amp;", "<": "&lt;", ">": "&gt;"])
    }

    func json() throws -> Data { try JSONEncoder.plain().encode(self) }
}

extension AlertMessage.Entry {
    init(_ alert: Alert, _ address: String?) {
        state = alert.endedAt == nil ? "firing" : "resolved"
        (team, rule, subject) = (alert.team, alert.rule, alert.subject)
        (text, beganAt, endedAt) = (alert.text, alert.beganAt, alert.endedAt)
        if let address {
            url = address + (AlertSubject.fault(of: subject).map { PageLinks.alerted($0) } ?? "/")
        }
    }

    var line: String {
        let words =
            endedAt == nil ? "\(rule): \(text)" : "\(rule), over since \(moment(endedAt ?? beganAt)) UTC: \(text)"
        return url.map { "\(words) \($0)" } ?? words
    }
}
