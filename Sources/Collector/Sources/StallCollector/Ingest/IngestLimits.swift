import Foundation

/// What one request may bring, and what all of them may use together.
public struct IngestLimits: Sendable {
    /// Of a body as it is sent, in bytes.
    public var bytes = 16 << 20
    /// Of a body of lines, unpacked.
    public var unpackedBytes = 64 << 20
    /// Of a body of OpenTelemetry log records, unpacked: it is parsed as a whole.
    public var unpackedTelemetryBytes = 16 << 20
    /// Of one line.
    public var recordBytes = 8 << 20
    public var records = 10_000
    /// Records a second that each token may send, unless its line says otherwise. Nil: any number.
    public var recordsPerSecond: Double?
    /// How long a body may take to arrive.
    public var patience = Duration.seconds(30)
    /// Memory of all requests together, from their heads until they are on the disk.
    public var waitingBytes = 128 << 20
    /// Requests that are unpacked and parsed at a time.
    public var parsers = max(2, ProcessInfo.processInfo.activeProcessorCount)
    /// Requests that may wait for that.
    public var waitingParsers = 256

    public init() {}
}
