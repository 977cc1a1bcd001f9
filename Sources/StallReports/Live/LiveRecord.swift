/// What a process that watches its loops keeps beside its reports while it lives: the stalls in progress. It is the
/// only source that knows, to a tick, how long a stall had lasted when its process died.
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
    public var tornStalls: Int

    /// Nothing is checked.
    package init(run: ULID, writer: Writer, status: Status, stalls: [LiveStall] = [], tornStalls: Int = 0) {
        (self.run, self.writer, self.status) = (run, writer, status)
        (self.stalls, self.tornStalls) = (stalls, tornStalls)
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

        /// Locked.
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
        /// The number of stalls for which there was no place left.
        public var unplaced: Int
        /// The status passed to exit(3), once it was called.
        public var exitStatus: Int32?
        /// The number of processes of the cgroup that the kernel killed for lack of memory, up to a second ago. Nil if it is
        /// not known.
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
