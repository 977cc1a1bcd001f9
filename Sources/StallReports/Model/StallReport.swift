/// One stall: what stood still, since when, where in the code, and why. JSON Schema: `config/stall-report.schema.json`.
///
/// Every property that is not optional is always written; a reader may rely on it.
public struct StallReport: Codable, Hashable, Sendable {
    /// The schema this version writes.
    public static let currentSchema = "stall-report/1"

    public var schema: String
    public var id: ULID
    public var kind: StallKind
    public var state: StallState
    public var severity: Severity

    /// The last transition seen before the loop stood.
    public var startedAt: Timestamp
    /// When the rule fired. Never before `startedAt`.
    public var detectedAt: Timestamp
    /// Nil while ongoing, and when the process died unseen.
    public var endedAt: Timestamp?
    /// How long it lasted, or has lasted so far. Not negative.
    public var durationNs: Int64
    /// With `durationMaxNs`, there when the length is not exact.
    public var durationMinNs: Int64?
    public var durationMaxNs: Int64?

    public var rule: Rule
    public var host: HostIdentity
    public var service: ServiceIdentity?
    public var process: ProcessIdentity
    /// The run record of the same monitor.
    public var run: ULID?
    public var watched: Watched
    /// The thread that stood.
    public var thread: Thread
    public var cause: Cause
    /// The stalled thread's come first.
    public var stacks: [Stack]
    public var culprit: Culprit?
    /// What the frames' `module` counts in.
    public var modules: [Module]
    public var fingerprint: Fingerprint
    /// Stalls with the same fingerprint since its last report that were counted, and not reported.
    public var suppressed: Int
    public var trace: Trace?
    /// What the server adds for itself.
    public var metadata: [String: String]
    /// What taking this report cost.
    public var monitor: MonitorCost

    public init(
        id: ULID = .make(),
        kind: StallKind,
        state: StallState = .ongoing,
        severity: Severity = .warning,
        startedAt: Timestamp,
        detectedAt: Timestamp,
        endedAt: Timestamp? = nil,
        durationNs: Int64,
        durationMinNs: Int64? = nil,
        durationMaxNs: Int64? = nil,
        rule: Rule,
        host: HostIdentity,
        service: ServiceIdentity? = nil,
        process: ProcessIdentity,
        run: ULID? = nil,
        watched: Watched,
        thread: Thread,
        cause: Cause = Cause(),
        stacks: [Stack] = [],
        culprit: Culprit? = nil,
        modules: [Module] = [],
        fingerprint: Fingerprint,
        suppressed: Int = 0,
        trace: Trace? = nil,
        metadata: [String: String] = [:],
        monitor: MonitorCost = MonitorCost()
    ) {
        schema = Self.currentSchema
        (self.id, self.kind, self.state, self.severity) = (id, kind, state, severity)
        (self.startedAt, self.detectedAt, self.endedAt) = (startedAt, detectedAt, endedAt)
        (self.durationNs, self.durationMinNs, self.durationMaxNs) = (durationNs, durationMinNs, durationMaxNs)
        (self.rule, self.host, self.service, self.process, self.run) = (rule, host, service, process, run)
        (self.watched, self.thread, self.cause) = (watched, thread, cause)
        (self.stacks, self.culprit, self.modules) = (stacks, culprit, modules)
        (self.fingerprint, self.suppressed, self.trace) = (fingerprint, suppressed, trace)
        (self.metadata, self.monitor) = (metadata, monitor)
    }

    private enum CodingKeys: String, CodingKey {
        case schema, id, kind, state, severity
        case startedAt = "started_at"
        case detectedAt = "detected_at"
        case endedAt = "ended_at"
        case durationNs = "duration_ns"
        case durationMinNs = "duration_min_ns"
        case durationMaxNs = "duration_max_ns"
        case rule, host, service, process, run, watched, thread, cause, stacks, culprit, modules, fingerprint,
            suppressed
        case trace, metadata, monitor
    }
}
