/// What a process that watches its loops keeps beside its reports while it lives: the stalls that are under way. It is the
/// one thing that knows, to a tick, how long a stall had lasted that its process did not survive.
///
/// In the report directory it is `live-ULID.bin`, named by the run. `LiveRecordLayout` says what is in the file.
public struct LiveRecord: Codable, Hashable, Sendable {
    /// The run record of the same monitor.
    public var run: ULID
    /// Who writes it.
    public var writer: Writer
    /// What of it changes, but for the stalls.
    public var status: Status
    /// Those that have begun and whose reports are not finished, in no order.
    public var stalls: [LiveStall]
    /// Places for stalls that hold nothing that makes sense.
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

    /// What stays the same from the start of the monitor to its end.
    public struct Writer: Codable, Hashable, Sendable {
        /// Where the process runs.
        public var host: HostIdentity
        /// As in the reports.
        public var service: ServiceIdentity?
        /// The one that watches itself.
        public var process: ProcessIdentity
        /// The wall clock when the monitor was started.
        public var startedAt: Timestamp
        /// The monitor's version.
        public var monitorVersion: String
        /// Whether the file is locked for as long as the process lives (flock(2)). False where the file system has no locks.
        public var isLocked = true
        /// Where the kernel counts what it kills for want of memory.
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

    /// How the monitor stands.
    public struct Status: Codable, Hashable, Sendable {
        /// When this was last true. While every loop is at rest nobody looks, and it grows old.
        public var updatedAt: Timestamp
        /// The watchdog's last look, in nanoseconds of `CLOCK_MONOTONIC`; 0 before the first one.
        public var lastLookMonotonicNs: UInt64
        /// Loops under watch.
        public var watched: Int
        /// Stalls for which there was no place left.
        public var unplaced: Int
        /// The status that exit(3) was called with, once it was.
        public var exitStatus: Int32?
        /// Processes of the cgroup that the kernel killed for want of memory, up to a second before. Nil where it does not tell.
        public var memoryKills: UInt64?
        /// Reports that the disk refused, and that wait in memory: the live record, whose place on the disk is there, can tell of them.
        public var waitingReports: Int

        /// Nothing watched yet, unless given.
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
