public import StallReports

/// An alert. It is kept from its beginning until all receivers have been told of its end.
public struct Alert: Hashable, Sendable {
    /// The team whose reports caused it.
    public var team: String
    /// The rule's name.
    public var rule: String
    /// What the rule found: a fingerprint, a service, or a service on a host.
    public var subject: String
    /// The message for users. Names from reports are in it with control characters made visible.
    public var text: String
    /// When an evaluation of the rules first found it.
    public var beganAt: Timestamp
    /// Nil while it lasts.
    public var endedAt: Timestamp?
    /// The keys of the receivers that were told of its beginning. A key has no line breaks.
    public var toldBegin: Set<String> = []
    /// Those of them that were told of its end too.
    public var toldEnd: Set<String> = []

    /// Creates an ongoing alert of which no receiver was told yet. `team`, `rule` and `subject` identify it.
    public init(team: String, rule: String, subject: String, text: String, beganAt: Timestamp) {
        (self.team, self.rule, self.subject, self.text) = (team, rule, subject, text)
        self.beganAt = beganAt
    }

    /// The form in which stores keep the keys of receivers: a line each.
    package static func text(_ keys: Set<String>) -> String { keys.sorted().joined(separator: "\n") }
    package static func keys(_ text: String) -> Set<String> { Set(text.split(separator: "\n").map(String.init)) }
}
