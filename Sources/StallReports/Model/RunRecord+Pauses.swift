// What was no stall, and the times in which nobody could tell.

/// Why a time does not count towards a stall.
public struct PauseKind: OpenName {
    /// As in JSON; unknown names are kept.
    public let rawValue: String
    /// Takes unknown names too.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// The machine slept: boot time went on, monotonic time did not (clock_gettime(2)).
    public static let suspended = PauseKind(rawValue: "suspended")
    /// The process's control group was frozen (cgroups(7), `cgroup.freeze`).
    public static let frozen = PauseKind(rawValue: "frozen")
    /// A debugger, or another tracer, was attached (ptrace(2)).
    public static let traced = PauseKind(rawValue: "traced")
    /// The whole process stood, and did not wait for a processor: stopped by a signal, or its virtual machine was. Also a freeze
    /// that the kernel keeps no count of.
    public static let stopped = PauseKind(rawValue: "stopped")
    /// The watchdog woke late, and nothing says why.
    public static let late = PauseKind(rawValue: "late")
    /// The server had said that it would be slow.
    public static let expectedSlow = PauseKind(rawValue: "expected_slow")
    /// The start-up grace.
    public static let startup = PauseKind(rawValue: "startup")
    /// Monitoring was paused by the server.
    public static let monitoringPaused = PauseKind(rawValue: "monitoring_paused")
    /// The wall clock was set. Nothing stood; times before and after do not compare.
    public static let clockStep = PauseKind(rawValue: "clock_step")
    /// The loop's thread was found in the loop's own wait.
    public static let inWait = PauseKind(rawValue: "in_wait")
}

extension RunRecord {
    /// The pauses of a run: the latest one by one, all of them as sums.
    public struct PauseLog: Codable, Hashable, Sendable {
        /// The latest, oldest first; at most ``recordLimit``. Expected slowness is in the sums only.
        public var latest: [Pause]
        /// All, by kind.
        public var totals: [String: PauseTotal]

        /// Older ones are left to the sums.
        public static let recordLimit = 64

        /// Empty unless given.
        public init(latest: [Pause] = [], totals: [String: PauseTotal] = [:]) {
            (self.latest, self.totals) = (latest, totals)
        }
    }

    /// One time in which stalls could not be told, or were not to be.
    public struct Pause: Codable, Hashable, Sendable {
        /// What it was.
        public var kind: PauseKind
        /// When it began at the latest; for a clock step when it was seen, by the new time.
        public var startedAt: Timestamp
        /// How long it was at least, nanoseconds; how far the clock was set, in either direction.
        public var durationNs: Int64
        /// The watched thing's label. Nil: the whole process.
        public var watch: String?

        /// Of the whole process unless given.
        public init(kind: PauseKind, startedAt: Timestamp, durationNs: Int64, watch: String? = nil) {
            (self.kind, self.startedAt, self.durationNs, self.watch) = (kind, startedAt, durationNs, watch)
        }

        private enum CodingKeys: String, CodingKey {
            case kind
            case startedAt = "started_at"
            case durationNs = "duration_ns"
            case watch
        }
    }

    /// What pauses of one kind add up to.
    public struct PauseTotal: Codable, Hashable, Sendable {
        /// How many there were.
        public var count: Int64
        /// How long they were together, nanoseconds.
        public var durationNs: Int64

        /// Nothing unless given.
        public init(count: Int64 = 0, durationNs: Int64 = 0) {
            (self.count, self.durationNs) = (count, durationNs)
        }

        private enum CodingKeys: String, CodingKey {
            case count
            case durationNs = "duration_ns"
        }
    }
}
