/// One stall: what stood still, since when, where in the code, and why. JSON Schema: `config/stall-report.schema.json`.
///
/// Every property that is not optional is always written; a reader may rely on it.
public struct StallReport: Codable, Hashable, Sendable {
    /// The schema this version writes.
    public static let currentSchema = "stall-report/1"

    /// A file with another one than ``currentSchema`` is not read.
    public var schema: String
    /// Also in the file's name. Stays the same from the first version to the last.
    public var id: ULID
    /// The same as `rule.name`.
    public var kind: StallKind
    /// `ongoing` in the file of a dead process is read as `terminated`.
    public var state: StallState
    /// By the length so far: it can rise while the stall lasts.
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
    /// The longest it can have been, as far as the monitor saw. Nil when the length is exact.
    public var durationMaxNs: Int64?
    /// How much of the time from start to end does not count, and is not in `durationNs`: the process was stopped, the watchdog
    /// woke late, the server had said that it would be slow. Nil: nothing.
    public var excludedNs: Int64?

    /// As it was set for this loop.
    public var rule: Rule
    /// Where the process ran. With `process`, what tells whether the stall can still last.
    public var host: HostIdentity
    /// The monitor always writes one; unless configured, its name is the executable's file name.
    public var service: ServiceIdentity?
    /// The one that `thread` belongs to.
    public var process: ProcessIdentity
    /// Who looked, where that was another process: the report was taken from outside, and `process` had no part in it. Nil: the monitor is
    /// part of `process`.
    public var watcher: ProcessIdentity?
    /// The run record of the same monitor.
    public var run: ULID?
    /// The loop that stood, or the task pool that had no worker free.
    public var watched: Watched
    /// Nil for a stall that is one standstill.
    public var busy: BusyTime?
    /// The workers of a task pool; nil for anything else.
    public var pool: Pool?
    /// Who waited for the loop when the stall was detected. Nil where that is not known.
    public var victims: Victims?
    /// The thread that stood. Of a task pool, a worker that stood at the culprit.
    public var thread: Thread
    /// Decided at detection, and again at the end if the thread could still be measured.
    public var cause: Cause
    /// The stalled thread's come first.
    public var stacks: [Stack]
    /// Nil when nothing was captured, or no frame has a name.
    public var culprit: Culprit?
    /// What the frames' `module` counts in.
    public var modules: [Module]
    /// Of `kind` alone without a culprit. Can change at the stall's end, when later samples are taken into account.
    public var fingerprint: Fingerprint
    /// Whether the fingerprint stands for places of one build, for want of names: equal wherever that build runs, and another one for the
    /// next. It is replaced when names are found. Nil is no.
    public var isProvisional: Bool?
    /// Fingerprints that the report had before its functions had names. Whatever goes by one of these means the same fault.
    public var aliases: [Fingerprint]?
    /// Stalls with the same fingerprint since its last report that were counted, and not reported.
    public var suppressed: Int
    /// What these add up to. Nil if there are none.
    public var repeats: Repeats?
    /// Known to the server only: the monitor leaves it nil.
    public var trace: Trace?
    /// What the server adds for itself.
    public var metadata: [String: String]
    /// What taking this report cost.
    public var monitor: MonitorCost
    /// How the process ended. Only of a `terminated` stall, where its process kept a live record.
    public var processEnd: ProcessEnd?

    /// Ongoing and a `warning`, with a new id, unless said otherwise. `schema` is always ``currentSchema``.
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
        excludedNs: Int64? = nil,
        rule: Rule,
        host: HostIdentity,
        service: ServiceIdentity? = nil,
        process: ProcessIdentity,
        watcher: ProcessIdentity? = nil,
        run: ULID? = nil,
        watched: Watched,
        busy: BusyTime? = nil,
        pool: Pool? = nil,
        victims: Victims? = nil,
        thread: Thread,
        cause: Cause = Cause(),
        stacks: [Stack] = [],
        culprit: Culprit? = nil,
        modules: [Module] = [],
        fingerprint: Fingerprint,
        isProvisional: Bool? = nil,
        aliases: [Fingerprint]? = nil,
        suppressed: Int = 0,
        repeats: Repeats? = nil,
        trace: Trace? = nil,
        metadata: [String: String] = [:],
        monitor: MonitorCost = MonitorCost()
    ) {
        schema = Self.currentSchema
        (self.id, self.kind, self.state, self.severity) = (id, kind, state, severity)
        (self.startedAt, self.detectedAt, self.endedAt) = (startedAt, detectedAt, endedAt)
        (self.durationNs, self.durationMinNs, self.durationMaxNs) = (durationNs, durationMinNs, durationMaxNs)
        (self.rule, self.host, self.service, self.process, self.run) = (rule, host, service, process, run)
        (self.watched, self.busy, self.pool, self.thread, self.cause) = (watched, busy, pool, thread, cause)
        (self.stacks, self.culprit, self.modules) = (stacks, culprit, modules)
        (self.fingerprint, self.suppressed, self.trace) = (fingerprint, suppressed, trace)
        (self.isProvisional, self.aliases) = (isProvisional, aliases)
        (self.repeats, self.excludedNs, self.watcher, self.victims) = (repeats, excludedNs, watcher, victims)
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
        case excludedNs = "excluded_ns"
        case rule, host, service, process, watcher, run, watched, busy, pool, victims, thread, cause, stacks, culprit,
            modules
        case fingerprint, aliases, suppressed, repeats
        case isProvisional = "provisional"
        case trace, metadata, monitor
        case processEnd = "process_end"
    }
}
