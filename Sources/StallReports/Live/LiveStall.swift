/// A stall in the live record of its process: no older than the watchdog's last sample.
public struct LiveStall: Codable, Hashable, Sendable {
    /// The id of its report, which may not be written yet, or ever: the monitor counts some stalls without reporting them.
    public var report: ULID
    /// `ongoing`; or `recovered`, until the report says so.
    public var state: StallState
    /// The rule that fired, with its settings.
    public var rule: StallReport.Rule
    /// Without its mode; the label is cut after 56 bytes.
    public var watched: StallReport.Watched
    /// Which of the run's watches it belongs to: two watched loops may have the same name.
    public var watch: Int
    /// The stalled thread (gettid(2)). Nil if it is not known.
    public var threadID: Int32?
    /// The process of the stalled thread, if that is not the writer. Nil: it is the writer.
    public var processID: Int32?
    /// The kernel's number of the system call in which it was found at detection.
    public var systemCall: Int?
    /// The last transition before the loop stalled.
    public var startedAt: Timestamp
    /// The same in nanoseconds of `CLOCK_MONOTONIC`: wall clocks can be set.
    public var startedMonotonicNs: UInt64
    /// When the rule fired.
    public var detectedAt: Timestamp
    /// The time of the watchdog's last sample of it; for a recovered stall, its end.
    public var lastSeenAt: Timestamp
    /// The same in nanoseconds of `CLOCK_MONOTONIC`.
    public var lastSeenMonotonicNs: UInt64
    /// How long it had lasted then, as far as that is proven. Not negative.
    public var durationNs: Int64
    /// The shortest possible duration.
    public var durationMinNs: Int64
    /// The longest possible duration.
    public var durationMaxNs: Int64

    /// Nothing is checked.
    package init(
        report: ULID,
        state: StallState = .ongoing,
        rule: StallReport.Rule,
        watched: StallReport.Watched,
        watch: Int,
        threadID: Int32? = nil,
        processID: Int32? = nil,
        systemCall: Int? = nil,
        startedAt: Timestamp,
        startedMonotonicNs: UInt64,
        detectedAt: Timestamp,
        lastSeenAt: Timestamp,
        lastSeenMonotonicNs: UInt64,
        durationNs: Int64,
        durationMinNs: Int64,
        durationMaxNs: Int64
    ) {
        (self.report, self.state, self.rule, self.watched, self.watch) = (report, state, rule, watched, watch)
        (self.threadID, self.processID, self.systemCall) = (threadID, processID, systemCall)
        (self.startedAt, self.startedMonotonicNs) = (startedAt, startedMonotonicNs)
        (self.detectedAt, self.lastSeenAt, self.lastSeenMonotonicNs) = (detectedAt, lastSeenAt, lastSeenMonotonicNs)
        (self.durationNs, self.durationMinNs, self.durationMaxNs) = (durationNs, durationMinNs, durationMaxNs)
    }

    private enum CodingKeys: String, CodingKey {
        case report, state, rule, watched, watch
        case threadID = "thread_id"
        case processID = "process_id"
        case systemCall = "system_call"
        case startedAt = "started_at"
        case startedMonotonicNs = "started_monotonic_ns"
        case detectedAt = "detected_at"
        case lastSeenAt = "last_seen_at"
        case lastSeenMonotonicNs = "last_seen_monotonic_ns"
        case durationNs = "duration_ns"
        case durationMinNs = "duration_min_ns"
        case durationMaxNs = "duration_max_ns"
    }
}
