import Foundation

/// The options of a collector. The defaults suit one machine.
public struct CollectorOptions: Sendable {
    /// The address to listen on: a host name or an IP address. By default only this machine can connect.
    public var host = "127.0.0.1"
    /// The TCP port. 0: any free port.
    public var port = 4319
    /// The certificate for TLS. Nil: plain HTTP.
    public var certificate: CertificateFiles?
    /// Addresses of proxies in front of the collector. Their `X-Forwarded-For` is trusted, and they may open any number of
    /// connections.
    public var proxies: Set<String> = []
    /// The accepted tokens. Nil: there is one team, no token is needed, and only this machine is answered.
    public var tokens: Tokens?
    /// How long stalls are kept, from their beginning.
    public var keep = Duration.seconds(30 * 86400)
    /// In bytes. If the store is larger, the oldest reports of the team that uses the most space are removed. Nil: no limit.
    public var maximumBytes: Int64?
    /// The path of a YAML file with rules for alerts. Nil: no alerts.
    public var alerts: String?
    /// The time between two evaluations of the rules.
    public var alertEvery = Duration.seconds(30)
    /// After its start, after its store did not answer, or after it or its machine stood still, the collector evaluates no rule about silent
    /// monitors for this time. Senders that could not reach it try again within a minute.
    public var silencePatience = Duration.seconds(120)
    /// Limits for requests that send reports.
    public var limits = IngestLimits()
    /// The path of a file that gets a line for each request with reports and for each action of the collector. Nil: no file.
    public var audit: String?
    /// The time between two looks at the token file.
    public var tokensEvery = Duration.seconds(2)
    /// The largest number of connections at a time. More wait until one ends.
    public var maximumConnections = 4096
    /// The largest number of connections from one IPv4 address, or one IPv6 network of 64 bits, at a time, except those of ``proxies``.
    public var maximumPeerConnections = 512
    /// The largest number of clients, of all teams together, that get records, exports, flame graphs, or other answers of more than
    /// 256 KiB at a time.
    public var maximumReaders = 16
    /// A connection is closed if nothing arrives on it for this long.
    public var idleTime = Duration.seconds(60)
    /// The time limit for sending a request, from its head to its end. The connection is then closed.
    public var requestTime = Duration.seconds(120)
    /// The time limit for the peer to accept a piece of an answer, which has at most 256 KiB. The connection is then closed.
    public var writeTime = Duration.seconds(30)
    /// How long requests in progress may continue after the signal to end.
    public var shutdownTime = Duration.seconds(30)

    /// Creates the default options.
    public init() {}
}

/// Limits for requests that send reports: what one request may contain, and what all of them may use together.
public struct IngestLimits: Sendable {
    /// The size of a body as sent, in bytes.
    public var bytes = 16 << 20
    /// The size of a decompressed body of lines, in bytes.
    public var unpackedBytes = 64 << 20
    /// The size of a decompressed body of OpenTelemetry log records, in bytes. It is smaller because such a body is parsed as a
    /// whole.
    public var unpackedTelemetryBytes = 16 << 20
    /// The size of one line, in bytes.
    public var recordBytes = 8 << 20
    /// The number of records in one request.
    public var records = 10_000
    /// How many records per second each token may send, unless the token file gives another rate. Nil: no limit.
    public var recordsPerSecond: Double?
    /// The time limit for receiving a body.
    public var patience = Duration.seconds(30)
    /// The memory of all requests together, from their heads until their records are on the disk. In bytes.
    public var waitingBytes = 128 << 20
    /// The number of requests that are decompressed and parsed at a time.
    public var parsers = max(2, ProcessInfo.processInfo.activeProcessorCount)
    /// The number of requests that may wait for that. More are refused.
    public var waitingParsers = 256

    /// Creates the default limits.
    public init() {}
}
