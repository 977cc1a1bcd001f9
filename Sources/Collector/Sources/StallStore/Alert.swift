public import StallReports

/// Something that somebody wants to be told of, as long as it lasts and until its end has been told.
public struct Alert: Hashable, Sendable {
    public var team: String
    /// The name of the rule.
    public var rule: String
    /// What of all that the rule looks at: a fingerprint, a service, a service on a host.
    public var subject: String
    /// For people. Everything in it that came from elsewhere is visible text.
    public var text: String
    public var beganAt: Timestamp
    /// Nil as long as it lasts.
    public var endedAt: Timestamp?
    /// Receivers that know of its beginning, and those of them that know of its end.
    public var toldBegin: Set<String> = []
    public var toldEnd: Set<String> = []

    public init(team: String, rule: String, subject: String, text: String, beganAt: Timestamp) {
        (self.team, self.rule, self.subject, self.text) = (team, rule, subject, text)
        self.beganAt = beganAt
    }
}

/// What a service's monitor on a host said of itself last.
public struct LatestRun: Hashable, Sendable {
    public var service: String
    public var release: String
    public var host: String
    public var updatedAt: Timestamp
    /// It has not said that it ends.
    public var isRunning: Bool

    package init(service: String, release: String, host: String, updatedAt: Timestamp, isRunning: Bool) {
        (self.service, self.release, self.host) = (service, release, host)
        (self.updatedAt, self.isRunning) = (updatedAt, isRunning)
    }
}
