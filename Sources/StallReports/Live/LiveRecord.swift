/// What a process that watches its loops keeps beside its reports while it lives: the ongoing stalls. It is the only source that
/// shows, to a tick, how long a stall had lasted when its process died.
///
/// In the report directory it is `live-ULID.bin`, named after the run. `LiveRecordLayout` describes the file's contents.
public struct LiveRecord: Codable, Hashable, Sendable {
    /// The run record of the same monitor.
    public var run: ULID
    /// The process that writes it.
    public var writer: Writer
    /// The part that changes, except for the stalls.
    public var status: Status
    /// The stalls that have begun and whose reports are not finished, unsorted.
    public var stalls: [LiveStall]
    /// The number of places for stalls whose contents are invalid.
    public var tornStalls = 0

    /// Creates one from these values, which are not checked.
    package init(run: ULID, writer: Writer, status: Status, stalls: [LiveStall] = []) {
        (self.run, self.writer, self.status, self.stalls) = (run, writer, status, stalls)
    }

    private enum CodingKeys: String, CodingKey {
        case run, writer, status, stalls
        case tornStalls = "torn_stalls"
    }

    /// The part that does not change from the start of the monitor to its end.
    public struct Writer: Codable, Hashable, Sendable {
        /// Where the process runs.
        public var host: HostIdentity
        /// As in the reports.
        public var service: ServiceIdentity?
        /// The process that watches itself.
        public var process: ProcessIdentity
        /// The wall clock when the monitor was started.
        public var startedAt: Timestamp
        /// The monitor's version.
        public var monitorVersion: String
        /// Whether the file is locked for as long as the process lives (flock(2)). False if the file system has no locks.
        public var isLocked = true
        /// Where the kernel counts the processes that it kills for lack of memory.
        public var memory: MemoryCounter?

        /// Creates a writer, by default with a locked file.
        package init(
            host: HostIdentity,
            service: ServiceIdentity?,
            process: ProcessIdentity,
            startedAt: Timestamp,
            monitorVersion: String,
            memory: MemoryCounter?
        ) {
            (self.host, self.service, self.process) = (host, service, process)
            (self.startedAt, self.monitorVersion, self.memory) = (startedAt, monitorVersion, memory)
        }

        private enum CodingKeys: String, CodingKey {
            case host, service, process
            case startedAt = "started_at"
            case monitorVersion = "monitor_version"
            case isLocked = "locked"
            case memory
        }
    }

    /// The state of the monitor.
    public struct Status: Codable, Hashable, Sendable {
        /// When this was last current. While every loop is at rest nothing samples, and it is not updated.
        public var updatedAt: Timestamp
        /// The watchdog's last sample, in nanoseconds of `CLOCK_MONOTONIC`; 0 before the first one.
        public var lastLookMonotonicNs: UInt64
        /// The number of watched loops.
        public var watched: Int
        /// The number of present stalls for which there is no place left.
        public var unplaced: Int
        /// The status passed to exit(3), once it was called.
        public var exitStatus: Int32?
        /// The number of processes of the cgroup that the kernel killed for lack of memory, up to a second before `updatedAt`.
        /// Nil if it is not known.
        public var memoryKills: UInt64?
        /// The number of reports that the disk refused and that wait in memory. The live record, whose disk space is allocated,
        /// can report them.
        public var waitingReports: Int

        /// Nothing is watched yet by default.
        package init(
            updatedAt: Timestamp,
            lastLookMonotonicNs: UInt64 = 0,
            watched: Int = 0,
            unplaced: Int = 0,
            exitStatus: Int32? = nil,
            memoryKills: UInt64? = nil,
            waitingReports: Int = 0
        ) {
            (self.updatedAt, self.lastLookMonotonicNs) = (updatedAt, lastLookMonotonicNs)
            (self.watched, self.unplaced) = (watched, unplaced)
            (self.exitStatus, self.memoryKills) = (exitStatus, memoryKills)
            self.waitingReports = waitingReports
        }

        private enum CodingKeys: String, CodingKey {
            case updatedAt = "updated_at"
            case lastLookMonotonicNs = "last_look_monotonic_ns"
            case watched, unplaced
            case exitStatus = "exit_status"
            case memoryKills = "memory_kills"
            case waitingReports = "waiting_reports"
        }
    }
}

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

    /// Creates one from these values, which are not checked.
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
