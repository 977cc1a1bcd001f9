/// One stall: which loop was stalled, since when, where in the code, and why. JSON Schema: `config/stall-report.schema.json`.
///
/// Every property that is not optional is always written, so a reader may rely on it.
public struct StallReport: Codable, Hashable, Sendable {
    /// The schema that this version writes.
    public static let currentSchema = "stall-report/1"

    /// A file with another schema than ``currentSchema`` is not read.
    public var schema: String
    /// Also in the file's name. It is the same in all versions of the report.
    public var id: ULID
    /// The same as `rule.name`.
    public var kind: StallKind
    /// `ongoing` in the file of a dead process is read as `terminated`.
    public var state: StallState
    /// According to the duration so far: it can rise while the stall lasts.
    public var severity: Severity

    /// The last transition before the loop stalled.
    public var startedAt: Timestamp
    /// When the rule fired. Never before `startedAt`.
    public var detectedAt: Timestamp
    /// Nil while ongoing, and if the process died without this being recorded.
    public var endedAt: Timestamp?
    /// How long it lasted, or has lasted so far. Not negative.
    public var durationNs: Int64
    /// Present, with `durationMaxNs`, if the duration is not exact.
    public var durationMinNs: Int64?
    /// The longest possible duration, as far as the monitor saw. Nil if the duration is exact.
    public var durationMaxNs: Int64?
    /// The time from start to end that does not count and is not in `durationNs`: the process was stopped, the watchdog
    /// woke late, the server had announced slow work. Nil: none.
    public var excludedNs: Int64?

    /// The rule as set for this loop.
    public var rule: Rule
    /// Where the process ran. Together with `process` it determines whether the stall can still last.
    public var host: HostIdentity
    /// The monitor always writes one; by default its name is the executable's file name.
    public var service: ServiceIdentity?
    /// The process of `thread`.
    public var process: ProcessIdentity
    /// The watching process, if that was another one: the report was made from outside, without any part of `process`. Nil: the
    /// monitor is in `process`.
    public var watcher: ProcessIdentity?
    /// The run record of the same monitor.
    public var run: ULID?
    /// The loop or the queue that was stalled, or the task pool that had no free worker.
    public var watched: Watched
    /// Nil for a stall that is one turn without progress.
    public var busy: BusyTime?
    /// The workers of a task pool; nil for anything else.
    public var pool: Pool?
    /// Who waited for the loop when the stall was detected. Nil if it is not known.
    public var victims: Victims?
    /// The stalled thread. For a task pool, a worker that was in the culprit.
    public var thread: Thread
    /// Determined at detection, and again at the end if the thread could still be measured.
    public var cause: Cause
    /// The stalled thread's stacks come first.
    public var stacks: [Stack]
    /// Nil if nothing was captured, or no frame is own or has a name.
    public var culprit: Culprit?
    /// The modules to which the frames' `module` refers.
    public var modules: [Module]
    /// Made from `kind` alone if there is no culprit. Can change at the stall's end, when later samples are included.
    public var fingerprint: Fingerprint
    /// Whether the fingerprint is based on code addresses of one build, because names are missing: it is equal wherever that
    /// build runs, and different for the next build. It is replaced when names are found. Nil means no.
    public var isProvisional: Bool?
    /// Fingerprints that the report had before its functions had names. Each of them identifies the same fault.
    public var aliases: [Fingerprint]?
    /// The number of stalls with the same fingerprint since its last report that were counted and not reported.
    public var suppressed: Int
    /// The sums of these stalls. Nil if there are none.
    public var repeats: Repeats?
    /// The server's names for the stalled work, the outermost first: see `withStallLabel` of StallMonitor. For a task pool, the names of all
    /// its workers' work. Nil if it has no name.
    public var labels: [String]?
    /// From the server: see `StallDetails` of StallMonitor, and `withStallContext` of StallMonitorService. Nil without them.
    public var trace: Trace?
    /// Data that the server adds.
    public var metadata: [String: String]
    /// The cost of this report.
    public var monitor: MonitorCost
    /// How the process ended. Only for a `terminated` stall whose process kept a live record.
    public var processEnd: ProcessEnd?

    /// Creates a report: by default ongoing, a `warning`, and with a new id. `schema` is always ``currentSchema``.
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
        case labels, trace, metadata, monitor
        case processEnd = "process_end"
    }
}
