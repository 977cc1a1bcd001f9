extension RunRecord {
    /// What became of the monitor's budget for its own cost.
    public struct Budget: Codable, Hashable, Sendable {
        /// How freely stacks are taken at `updated_at`: `full`, `thinned` (fewer samples), `stopped` (none), `trial` (one, to see
        /// what it costs).
        public var state: String
        /// When that began.
        public var since: Timestamp
        /// How often captures were stopped.
        public var stops: Int64
        /// For how long there were fewer samples.
        public var thinnedNs: Int64
        /// For how long there were no stacks, trials included.
        public var stoppedNs: Int64
        /// Samples left out for the cost.
        public var skippedSamples: Int64
        /// Stalls reported without a stack of their detection, for the cost.
        public var skippedStacks: Int64

        /// Nothing was ever left out unless given.
        public init(
            state: String,
            since: Timestamp,
            stops: Int64 = 0,
            thinnedNs: Int64 = 0,
            stoppedNs: Int64 = 0,
            skippedSamples: Int64 = 0,
            skippedStacks: Int64 = 0
        ) {
            (self.state, self.since, self.stops) = (state, since, stops)
            (self.thinnedNs, self.stoppedNs) = (thinnedNs, stoppedNs)
            (self.skippedSamples, self.skippedStacks) = (skippedSamples, skippedStacks)
        }

        private enum CodingKeys: String, CodingKey {
            case state, since, stops
            case thinnedNs = "thinned_ns"
            case stoppedNs = "stopped_ns"
            case skippedSamples = "skipped_samples"
            case skippedStacks = "skipped_stacks"
        }
    }
}

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

extension RunRecord {
    /// Stalls of one fault that were counted since its last report: those of one watched thing, and of one kind.
    public struct Repeated: Codable, Hashable, Sendable {
        /// Of the stalls, as far as they were looked at.
        public var fingerprint: Fingerprint
        /// Those that no report holds yet. The next report of the fault, the thing and the kind takes them over.
        public var repeats: StallReport.Repeats
        /// The watched thing's label. Nil in older records, and where the stalls are of more things than are kept apart.
        public var label: String?
        /// The watched thing's type. Nil where `label` is.
        public var type: WatchedType?
        /// By which rule they were stalls. Nil where `label` is.
        public var kind: StallKind?

        /// Nothing is checked.
        public init(
            fingerprint: Fingerprint,
            repeats: StallReport.Repeats,
            label: String? = nil,
            type: WatchedType? = nil,
            kind: StallKind? = nil
        ) {
            (self.fingerprint, self.repeats) = (fingerprint, repeats)
            (self.label, self.type, self.kind) = (label, type, kind)
        }
    }
}

extension RunRecord {
    /// How writing to the report directory went.
    public struct Writing: Codable, Hashable, Sendable {
        /// Reports that wait in memory for the disk. When the run ends in order they are in `lost_writes` instead.
        public var waiting: Int64
        /// With those of this record, if it waits, too.
        public var waitingBytes: Int64
        /// Tries that the system refused.
        public var failures: Int64
        /// The longest that one write took.
        public var longestNs: Int64
        /// Why the last try failed, in the words of ``ReportError/Code/name``. Nil when nothing waits.
        public var problem: String?
        /// The most that ever waited for the disk.
        public var peakBytes: Int64
        /// What the monitor dropped because its reporter was too far behind, by what it was: `stalls` that nobody else counts,
        /// `stall_stacks`, `samples`.
        public var dropped: [String: Int64]
        /// The most that ever waited for the reporter.
        public var noticePeakBytes: Int64

        /// What is wrong with the report directory: `link` (it is a symbolic link), `open_to_others` (others can write there), `filled` (by
        /// what the run may not remove). Nil when nothing is.
        public var concerns: [String]?

        /// Nothing waits and nothing failed, unless given.
        public init(
            waiting: Int64 = 0,
            waitingBytes: Int64 = 0,
            failures: Int64 = 0,
            longestNs: Int64 = 0,
            problem: String? = nil,
            peakBytes: Int64 = 0,
            dropped: [String: Int64] = [:],
            noticePeakBytes: Int64 = 0,
            concerns: [String]? = nil
        ) {
            (self.waiting, self.waitingBytes, self.failures) = (waiting, waitingBytes, failures)
            (self.longestNs, self.problem, self.peakBytes) = (longestNs, problem, peakBytes)
            (self.dropped, self.noticePeakBytes, self.concerns) = (dropped, noticePeakBytes, concerns)
        }

        private enum CodingKeys: String, CodingKey {
            case waiting
            case waitingBytes = "waiting_bytes"
            case failures
            case longestNs = "longest_ns"
            case problem
            case peakBytes = "peak_bytes"
            case dropped
            case noticePeakBytes = "notice_peak_bytes"
            case concerns
        }
    }
}
