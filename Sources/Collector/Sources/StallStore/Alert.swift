public import StallReports

/// An alert, kept from its beginning until all receivers were told of its end.
public struct Alert: Hashable, Sendable {
    public var team: String
    /// The rule's name.
    public var rule: String
    /// What the rule found: a fingerprint, a service, or a service on a host.
    public var subject: String
    /// For people. Names from reports are in it as visible text.
    public var text: String
    public var beganAt: Timestamp
    /// Nil while it lasts.
    public var endedAt: Timestamp?
    /// Receivers that were told of its beginning, and those of them that were told of its end.
    public var toldBegin: Set<String> = []
    public var toldEnd: Set<String> = []

    public init(team: String, rule: String, subject: String, text: String, beganAt: Timestamp) {
        (self.team, self.rule, self.subject, self.text) = (team, rule, subject, text)
        self.beganAt = beganAt
    }
}

/// The latest run record of a service's monitor on a host.
public struct LatestRun: Hashable, Sendable {
    public var service: String
    public var release: String
    public var host: String
    public var updatedAt: Timestamp
    /// Whether the record says that the monitor is running.
    public var isRunning: Bool

    package init(service: String, release: String, host: String, updatedAt: Timestamp, isRunning: Bool) {
        (self.service, self.release, self.host) = (service, release, host)
        (self.updatedAt, self.isRunning) = (updatedAt, isRunning)
    }
}
