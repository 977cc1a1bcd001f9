/// One run of the monitor in one process. It shows whether there were no stalls or whether nothing was watched. JSON Schema:
/// `config/stall-run.schema.json`.
public struct RunRecord: Codable, Hashable, Sendable {
    /// The schema that this version writes.
    public static let currentSchema = "stall-run/1"

    /// A file with another schema than ``currentSchema`` is rejected.
    public var schema: String
    /// Part of the file's name. Each report of this run contains it as `run`.
    public var id: ULID
    /// `running` in the file of a dead process is read as `terminated`.
    public var state: State
    /// When the monitor was started. The process may be older.
    public var startedAt: Timestamp
    /// When the numbers below were updated.
    public var updatedAt: Timestamp
    /// `updatedAt` by `CLOCK_MONOTONIC`, in nanoseconds, because the wall clock may be set. Nil in records of older monitors.
    public var updatedMonotonicNs: UInt64?
    /// When the monitor was stopped. Nil if it is running, or its process ended without stopping it.
    public var stoppedAt: Timestamp?
    /// The host. With `process`, it shows whether the run can still be alive.
    public var host: HostIdentity
    /// The monitor always writes it. By default its name is the executable's file name.
    public var service: ServiceIdentity?
    /// The process in which the monitor ran.
    public var process: ProcessIdentity
    /// Other processes that it watched, the latest last, 100 at most. Nil for a monitor that watches its own process.
    public var targets: [ProcessIdentity]?
    /// The monitor's version.
    public var monitorVersion: String
    /// Everything that was watched in this run, including what is no longer watched.
    public var watched: [Watched]
    /// The number of ticks at which the watchdog looked at the watched loops.
    public var ticks: Int64
    /// The number of ticks at which the watchdog itself woke late. They prove nothing.
    public var lateTicks: Int64
    /// The number of pauses that were noticed: suspended, stopped, frozen, traced, or the monitoring was paused.
    public var pauses: Int64
    /// These pauses, and other excluded times. Nil in records of older monitors.
    public var pauseLog: PauseLog?
    /// The number of candidates that were not stalls, by reason (``PauseKind``). If there were several reasons, by the one that took most of the
    /// time. Nil in records of older monitors.
    public var dismissed: [String: Int64]?
    /// The number of stalls by kind.
    public var stalls: [String: Int64]
    /// The number of stalls that were only counted.
    public var suppressed: Int64
    /// The same by reason. Nil if there are none.
    public var suppressedBy: [String: Int64]?
    /// The stalls that were only counted and are in no report yet, by fault, loop and kind, the latest first: 100 entries at most.
    /// Nil if there are none.
    public var repeated: [Repeated]?
    /// The number of captures that were discarded because the loop had moved on, and of stalls that were over before a capture.
    public var raced: Int64
    /// The number of captures that failed, or could not be tried. Does not include `raced`.
    public var captureFailures: Int64
    /// The number of reports that will not be written, or only in an old version. Reports that wait for the disk are in `writing`, unless the
    /// run has ended.
    public var lostWrites: Int64
    /// What the monitor has cost until `updatedAt`.
    public var cost: Cost
    /// Why the monitor has switched itself off. Nil if it has not.
    public var disarmed: String?
    /// How writing the reports went. Nil in records of older monitors.
    public var writing: Writing?
    /// The state of the monitor's budget. Nil before the first look, and in records of older monitors.
    public var budget: Budget?
    /// How the process ended. Only for a `terminated` run whose process kept a live record.
    public var processEnd: ProcessEnd?

    /// Creates a record. By default it is running, with a new id and with all counts zero. `schema` is always ``currentSchema``.
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
    /// The state of a run. A run starts once and ends once.
    public struct State: OpenName {
        /// As in JSON; unknown names are kept.
        public let rawValue: String
        /// Accepts unknown names, too.
        public init(rawValue: String) { self.rawValue = rawValue }

        /// The monitor was not stopped. ``ProcessLiveness`` determines whether its process is alive.
        public static let running = State(rawValue: "running")
        /// The monitor was stopped. The counts are final.
        public static let stopped = State(rawValue: "stopped")
        /// The process ended without stopping its monitor. Written by the next start of a monitor; readers show it, too.
        public static let terminated = State(rawValue: "terminated")
    }

    /// One watched loop, queue or pool over the whole run.
    public struct Watched: Codable, Hashable, Sendable {
        /// The type of the loop, queue or pool.
        public var type: WatchedType
        /// Its name. Several may have the same name.
        public var label: String
        /// For a watcher of other processes: the service whose loop it is, as in its reports. Nil for a monitor that watches its own process, and
        /// in records of older watchers.
        public var service: String?
        /// How long it was watched, including its rest, in nanoseconds; 0 for a run loop that has never run. If the process is alive, readers
        /// return the present value; if it died, that of the last sample in its live record. Time in which the process was stopped or frozen
        /// is part of it, and in ``RunRecord/pauseLog`` as far as it was noticed; time in which the monitor was paused is not.
        public var watchedNs: Int64
        /// How many with this name were watched, and not paused, at `updated_at`. Nil: not known.
        public var watching: Int?
        /// The number of turns, or for a task pool of jobs that began. Nil if they are not counted.
        public var turns: UInt64?
        /// The durations of all turns that ended while it was watched; for a task pool, of its jobs. Nil if there were none.
        public var turnDurations: TurnDurations?
        /// For a task pool: the number of jobs by duration, shortest first, while it was watched. Nil if there were none.
        public var jobLengths: [LengthCount]?
        /// For a task pool: the function in which its longest job began, or continued after an `await`. Nil if it is not known, or no job was
        /// long.
        public var longestJob: String?

        /// Creates an entry, by default for a run loop that was not watched yet, without turns.
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
            case type, label, service
            case watchedNs = "watched_ns"
            case watching, turns
            case turnDurations = "turn_durations"
            case jobLengths = "job_lengths"
            case longestJob = "longest_job"
        }
    }

    /// The number of jobs of about one duration.
    public struct LengthCount: Codable, Hashable, Sendable {
        /// The upper bound of the duration, in nanoseconds, exact to one eighth. The lower bound is that of the class before. Nil: no upper bound.
        public var upToNs: Int64?
        /// The number of jobs.
        public var count: UInt64

        /// Creates one from these values, which are not checked.
        public init(upToNs: Int64?, count: UInt64) { (self.upToNs, self.count) = (upToNs, count) }

        private enum CodingKeys: String, CodingKey {
            case upToNs = "up_to_ns"
            case count
        }
    }

    /// What the monitor cost its process over the run. Times are in nanoseconds.
    public struct Cost: Codable, Hashable, Sendable {
        /// Processor time of the watchdog's thread.
        public var watchdogCPUNs: Int64
        /// The time for which watched threads were held, in all captures together.
        public var heldNs: Int64
        /// The number of captured stacks, without those in `raced`. Not all of them are in a report.
        public var captures: Int64
        /// Bytes written: all versions of all reports and of this record.
        public var bytesWritten: Int64
        /// Processor time of the reporter's thread, without the server's handler. This and the following are nil in records of older monitors.
        public var reporterCPUNs: Int64?
        /// Processor time of the writer's thread.
        public var writerCPUNs: Int64?
        /// Processor time of captures, which is part of the watchdog's.
        public var captureCPUNs: Int64?
        /// Time for unwinding, while the watched thread runs on.
        public var unwindNs: Int64?
        /// Time for finding names.
        public var symbolicationNs: Int64?
        /// Bytes of stacks that were copied.
        public var copiedBytes: Int64?

        /// Creates a cost, by default zero.
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
