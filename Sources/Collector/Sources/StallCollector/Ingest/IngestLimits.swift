import Foundation

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
