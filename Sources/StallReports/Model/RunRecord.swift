/// One run of the monitor in one process: what tells "no stalls" from "nobody looked". JSON Schema:
/// `config/stall-run.schema.json`.
public struct RunRecord: Codable, Hashable, Sendable {
    /// The schema this version writes.
    public static let currentSchema = "stall-run/1"

    /// A file with another one than ``currentSchema`` is not read.
    public var schema: String
    /// Also in the file's name, and in each report of this run as `run`.
    public var id: ULID
    /// `running` in the file of a dead process is read as `terminated`.
    public var state: State
    /// The wall clock when the monitor was started; the process may be older.
    public var startedAt: Timestamp
    /// When the numbers below were last true.
    public var updatedAt: Timestamp
    /// `updatedAt` in nanoseconds of `CLOCK_MONOTONIC`: wall clocks step. Nil in records of older monitors.
    public var updatedMonotonicNs: UInt64?
    /// Nil unless the monitor was stopped in order.
    public var stoppedAt: Timestamp?
    /// With `process`, what tells whether the run can still be alive.
    public var host: HostIdentity
    /// The monitor always writes one; unless configured, its name is the executable's file name.
    public var service: ServiceIdentity?
    /// The one that the monitor ran in.
    public var process: ProcessIdentity
    /// The processes that it watched from outside, the latest last, 100 at most. Nil for a monitor that watches its own.
    public var targets: [ProcessIdentity]?
    /// The monitor's version.
    public var monitorVersion: String
    /// All that was ever watched in this run, also what no longer is.
    public var watched: [Watched]
    /// Looks at the watched things.
    public var ticks: Int64
    /// Ticks at which the watchdog itself woke late, and which therefore prove nothing.
    public var lateTicks: Int64
    /// Suspends, stops, frozen cgroups, debuggers and pauses of the monitoring, as far as they were noticed.
    public var pauses: Int64
    /// Those pauses, and other times that count towards no stall. Nil in records of older monitors.
    public var pauseLog: PauseLog?
    /// What looked like stalls and was none, by kind of what it was (``PauseKind``), of several that which took most of the time. Nil in records of older monitors.
    public var dismissed: [String: Int64]?
    /// Stalls by kind.
    public var stalls: [String: Int64]
    /// Stalls counted and not reported.
    public var suppressed: Int64
    /// These by reason. Nil if there are none.
    public var suppressedBy: [String: Int64]?
    /// Those that stand in no report yet, by their faults, the latest first: 100 faults at most. Nil if there are none.
    public var repeated: [Repeated]?
    /// Captures thrown away because the loop had moved on, and stalls that were over before one was taken.
    public var raced: Int64
    /// Captures that failed, or could not be tried. Those in `raced` are not among them.
    public var captureFailures: Int64
    /// Reports that will not come to the disk, or in an old version only. Those that wait for it are in `writing`, unless the run has
    /// ended.
    public var lostWrites: Int64
    /// Up to `updatedAt`.
    public var cost: Cost
    /// Why the monitor has switched itself off; nil while it watches.
    public var disarmed: String?
    /// Nil in a record of a version that did not tell.
    public var writing: Writing?
    /// Nil before the first look, and in a record of a version that did not tell.
    public var budget: Budget?
    /// How the process ended. Only of a `terminated` run, where its process kept a live record.
    public var processEnd: ProcessEnd?

    /// Running, with a new id and all counts zero, unless said otherwise. `schema` is always ``currentSchema``.
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
        suppressedBy: [String: Int64]? = nil,
        repeated: [Repeated]? = nil,
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
        (self.suppressedBy, self.repeated) = (suppressedBy, repeated)
        (self.captureFailures, self.lostWrites) = (captureFailures, lostWrites)
        (self.cost, self.disarmed) = (cost, disarmed)
    }

    private enum CodingKeys: String, CodingKey {
        case schema, id, state
        case startedAt = "started_at"
        case updatedAt = "updated_at"
        case updatedMonotonicNs = "updated_monotonic_ns"
        case stoppedAt = "stopped_at"
        case host, service, process, targets
        case monitorVersion = "monitor_version"
        case watched, ticks
        case lateTicks = "late_ticks"
        case pauses, stalls, suppressed, repeated, raced, dismissed
        case suppressedBy = "suppressed_by"
        case pauseLog = "pause_log"
        case captureFailures = "capture_failures"
        case lostWrites = "lost_writes"
        case cost, disarmed, writing, budget
        case processEnd = "process_end"
    }
}

extension RunRecord {
    /// How far a run has come: it starts once and ends once.
    public struct State: OpenName {
        /// As in JSON; unknown names are kept.
        public let rawValue: String
        /// Takes unknown names too.
        public init(rawValue: String) { self.rawValue = rawValue }

        /// The monitor has not been stopped. Whether its process lives is for ``ProcessLiveness`` to say.
        public static let running = State(rawValue: "running")
        /// The monitor was stopped in order, and the counts are final.
        public static let stopped = State(rawValue: "stopped")
        /// The process ended without stopping its monitor; only a reader or the next start writes this.
        public static let terminated = State(rawValue: "terminated")
    }

    /// One watched thing over the whole run.
    public struct Watched: Codable, Hashable, Sendable {
        /// `runLoop` for every loop, whoever made it.
        public var type: WatchedType
        /// The name it was registered under. Two may have the same.
        public var label: String
        /// How long it was under watch, rest included. Of a process that lives, ``ReportReader`` tells it as of now.
        public var watchedNs: Int64
        /// How many of that name were under watch at `updated_at`, and not paused. Nil: not known.
        public var watching: Int?
        /// Turns it made, or jobs that a task pool began; nil where the thing does not count them.
        public var turns: UInt64?
        /// Of all turns that ended under watch; of a task pool its jobs, since it began. Nil when there was none.
        public var turnDurations: TurnDurations?
        /// Of a task pool: how many of its jobs took how long, the shortest first, since it began. Nil when there was none.
        public var jobLengths: [LengthCount]?
        /// Of a task pool: where the longest of its jobs began, or went on after an `await`: a function of the source. Nil where that is not
        /// known, and for jobs that were none too long.
        public var longestJob: String?

        /// A run loop, watched for no time, its turns neither counted nor timed, unless said otherwise.
        public init(
            type: WatchedType = .runLoop,
            label: String,
            watchedNs: Int64 = 0,
            turns: UInt64? = nil,
            turnDurations: TurnDurations? = nil
        ) {
            (self.type, self.label, self.watchedNs, self.turns) = (type, label, watchedNs, turns)
            self.turnDurations = turnDurations
        }

        private enum CodingKeys: String, CodingKey {
            case type, label
            case watchedNs = "watched_ns"
            case watching, turns
            case turnDurations = "turn_durations"
            case jobLengths = "job_lengths"
            case longestJob = "longest_job"
        }
    }

    /// Jobs of about one length.
    public struct LengthCount: Codable, Hashable, Sendable {
        /// They were not longer than this, give or take an eighth, and longer than what the class before holds. Nil: longer than all others.
        public var upToNs: Int64?
        /// How many there were.
        public var count: UInt64

        /// Nothing is checked.
        public init(upToNs: Int64?, count: UInt64) { (self.upToNs, self.count) = (upToNs, count) }

        private enum CodingKeys: String, CodingKey {
            case upToNs = "up_to_ns"
            case count
        }
    }

    /// What the monitor cost its host over the run.
    public struct Cost: Codable, Hashable, Sendable {
        /// Processor time of the watchdog thread.
        public var watchdogCPUNs: Int64
        /// Time that watched threads were held, all captures together.
        public var heldNs: Int64
        /// Stacks taken, those in `raced` left out. Not all of them come into a report.
        public var captures: Int64
        /// Bytes of reports and of this record, every version written so far counted.
        public var bytesWritten: Int64
        /// Processor time of the reporter thread, without the server's handler. This and what follows is nil in a record of a version
        /// that did not tell.
        public var reporterCPUNs: Int64?
        /// Processor time of the thread that writes.
        public var writerCPUNs: Int64?
        /// Processor time of captures, on the watchdog thread.
        public var captureCPUNs: Int64?
        /// Time spent on unwinding, while the watched thread ran on.
        public var unwindNs: Int64?
        /// Time spent on finding names.
        public var symbolicationNs: Int64?
        /// Bytes of stack copied.
        public var copiedBytes: Int64?

        /// All zero unless given.
        public init(watchdogCPUNs: Int64 = 0, heldNs: Int64 = 0, captures: Int64 = 0, bytesWritten: Int64 = 0) {
            (self.watchdogCPUNs, self.heldNs) = (watchdogCPUNs, heldNs)
            (self.captures, self.bytesWritten) = (captures, bytesWritten)
        }

        private enum CodingKeys: String, CodingKey {
            case watchdogCPUNs = "watchdog_cpu_ns"
            case heldNs = "held_ns"
            case captures
            case bytesWritten = "bytes_written"
            case reporterCPUNs = "reporter_cpu_ns"
            case writerCPUNs = "writer_cpu_ns"
            case captureCPUNs = "capture_cpu_ns"
            case unwindNs = "unwind_ns"
            case symbolicationNs = "symbolication_ns"
            case copiedBytes = "copied_bytes"
        }
    }
}
