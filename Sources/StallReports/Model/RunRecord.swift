/// One run of the monitor in one process: what tells "no stalls" from "nobody looked". JSON Schema:
/// `config/stall-run.schema.json`.
public struct RunRecord: Codable, Hashable, Sendable {
    /// The schema this version writes.
    public static let currentSchema = "stall-run/1"

    public var schema: String
    public var id: ULID
    public var state: State
    public var startedAt: Timestamp
    /// When the numbers below were last true.
    public var updatedAt: Timestamp
    public var stoppedAt: Timestamp?
    public var host: HostIdentity
    public var service: ServiceIdentity?
    public var process: ProcessIdentity
    /// The monitor's version.
    public var monitorVersion: String
    public var watched: [Watched]
    /// Looks at the watched things.
    public var ticks: Int64
    /// Ticks at which the watchdog itself woke late, and which therefore prove nothing.
    public var lateTicks: Int64
    /// Suspends, stops and frozen cgroups noticed.
    public var pauses: Int64
    /// Stalls by kind.
    public var stalls: [String: Int64]
    /// Stalls counted and not reported.
    public var suppressed: Int64
    /// Suspicions dropped because the thread was found inside its wait.
    public var raced: Int64
    public var captureFailures: Int64
    public var lostWrites: Int64
    public var cost: Cost
    /// Why the monitor has switched itself off; nil while it watches.
    public var disarmed: String?

    public init(
        id: ULID = .make(),
        state: State = .running,
        startedAt: Timestamp,
        updatedAt: Timestamp,
        stoppedAt: Timestamp? = nil,
        host: HostIdentity,
        service: ServiceIdentity? = nil,
        process: ProcessIdentity,
        monitorVersion: String,
        watched: [Watched] = [],
        ticks: Int64 = 0,
        lateTicks: Int64 = 0,
        pauses: Int64 = 0,
        stalls: [String: Int64] = [:],
        suppressed: Int64 = 0,
        raced: Int64 = 0,
        captureFailures: Int64 = 0,
        lostWrites: Int64 = 0,
        cost: Cost = Cost(),
        disarmed: String? = nil
    ) {
        schema = Self.currentSchema
        (self.id, self.state) = (id, state)
        (self.startedAt, self.updatedAt, self.stoppedAt) = (startedAt, updatedAt, stoppedAt)
        (self.host, self.service, self.process) = (host, service, process)
        (self.monitorVersion, self.watched) = (monitorVersion, watched)
        (self.ticks, self.lateTicks, self.pauses) = (ticks, lateTicks, pauses)
        (self.stalls, self.suppressed, self.raced) = (stalls, suppressed, raced)
        (self.captureFailures, self.lostWrites) = (captureFailures, lostWrites)
        (self.cost, self.disarmed) = (cost, disarmed)
    }

    private enum CodingKeys: String, CodingKey {
        case schema, id, state
        case startedAt = "started_at"
        case updatedAt = "updated_at"
        case stoppedAt = "stopped_at"
        case host, service, process
        case monitorVersion = "monitor_version"
        case watched, ticks
        case lateTicks = "late_ticks"
        case pauses, stalls, suppressed, raced
        case captureFailures = "capture_failures"
        case lostWrites = "lost_writes"
        case cost, disarmed
    }
}

extension RunRecord {
    public struct State: OpenName {
        public let rawValue: String
        public init(rawValue: String) { self.rawValue = rawValue }

        public static let running = State(rawValue: "running")
        public static let stopped = State(rawValue: "stopped")
        /// The process ended without stopping its monitor; only a reader or the next start writes this.
        public static let terminated = State(rawValue: "terminated")
    }

    /// One watched thing over the whole run.
    public struct Watched: Codable, Hashable, Sendable {
        public var type: WatchedType
        public var label: String
        /// How long it was under watch: without pauses, grace and suspended watching.
        public var watchedNs: Int64
        /// Turns it made; nil where the thing does not count them.
        public var turns: UInt64?

        public init(type: WatchedType = .runLoop, label: String, watchedNs: Int64 = 0, turns: UInt64? = nil) {
            (self.type, self.label, self.watchedNs, self.turns) = (type, label, watchedNs, turns)
        }

        private enum CodingKeys: String, CodingKey {
            case type, label
            case watchedNs = "watched_ns"
            case turns
        }
    }

    /// What the monitor cost its host over the run.
    public struct Cost: Codable, Hashable, Sendable {
        /// Processor time of the watchdog thread.
        public var watchdogCPUNs: Int64
        /// Time that watched threads were held, all captures together.
        public var heldNs: Int64
        public var captures: Int64
        public var bytesWritten: Int64

        public init(watchdogCPUNs: Int64 = 0, heldNs: Int64 = 0, captures: Int64 = 0, bytesWritten: Int64 = 0) {
            (self.watchdogCPUNs, self.heldNs) = (watchdogCPUNs, heldNs)
            (self.captures, self.bytesWritten) = (captures, bytesWritten)
        }

        private enum CodingKeys: String, CodingKey {
            case watchdogCPUNs = "watchdog_cpu_ns"
            case heldNs = "held_ns"
            case captures
            case bytesWritten = "bytes_written"
        }
    }
}
