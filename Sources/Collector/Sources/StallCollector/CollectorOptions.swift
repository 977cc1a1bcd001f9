/// How a collector runs. Everything has a default that suits one machine.
public struct CollectorOptions: Sendable {
    public var host = "127.0.0.1"
    /// 0: any free port.
    public var port = 4319
    /// The certificate for TLS. Nil: plain HTTP.
    public var certificate: CertificateFiles?
    /// Addresses of proxies in front of the collector. What they say in `X-Forwarded-For` is trusted, and they may have any number of connections.
    public var proxies: Set<String> = []
    /// Nil: there is one team, no token is needed, and only this machine is answered.
    public var tokens: Tokens?
    /// Stalls that began longer ago are removed.
    public var keep = Duration.seconds(30 * 86400)
    /// If the store is larger, the oldest reports of the team that has most are removed. In bytes; nil: no limit.
    public var maximumBytes: Int64?
    /// A YAML file with rules for alerts. Nil: there are no alerts.
    public var alerts: String?
    /// The time between two evaluations of these rules.
    public var alertEvery = Duration.seconds(30)
    public var limits = IngestLimits()
    /// A file that gets a line for each request with reports and for each action on the collector. Nil: no file.
    public var audit: String?
    /// The time between two looks at the tokens' file.
    public var tokensEvery = Duration.seconds(2)
    public var maximumConnections = 4096
    /// Connections of one address.
    public var maximumPeerConnections = 512
    /// Readers of `/api/v1/records` at a time.
    public var maximumReaders = 16
    /// A connection on which nothing arrives for this long is closed.
    public var idleTime = Duration.seconds(60)
    /// How long a request may take from its head to its end. Otherwise the connection is closed.
    public var requestTime = Duration.seconds(120)
    /// How long the peer may take to accept a piece of an answer, which has 256 KiB at most. Otherwise the connection is closed.
    public var writeTime = Duration.seconds(30)
    /// How long requests may go on after the signal to end.
    public var shutdownTime = Duration.seconds(30)

    public init() {}
}
