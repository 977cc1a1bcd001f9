extension RunRecord {
    /// The history of the monitor's budget for its own cost.
    public struct Budget: Codable, Hashable, Sendable {
        /// How freely stacks are taken at `updated_at`: `full`, `thinned` (fewer samples), `stopped` (none), `trial` (one, to see
        /// what it costs).
        public var state: String
        /// Since when.
        public var since: Timestamp
        /// How often captures were stopped.
        public var stops: Int64
        /// For how long fewer samples were taken, in nanoseconds.
        public var thinnedNs: Int64
        /// For how long no stacks were taken, including trials, in nanoseconds.
        public var stoppedNs: Int64
        /// The number of samples that were not taken because of the cost.
        public var skippedSamples: Int64
        /// The number of stalls that were reported without a stack because of the cost.
        public var skippedStacks: Int64

        /// Creates a history, by default with all counts zero.
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

extension RunRecord {
    /// The service whose loop it is. Nil if that is not known.
    package func service(of loop: Watched) -> String? { targets == nil ? service?.name : loop.service }

    /// The service whose stalls these are. Nil if that is not known.
    package func service(of fault: Repeated) -> String? { fault.service ?? service(ofLoop: fault.label, fault.type) }

    /// The service whose loops have this name and type. Nil if that is not known, or if there are several.
    package func service(ofLoop label: String?, _ type: WatchedType?) -> String? {
        guard targets != nil else { return service?.name }
        let named = watched.filter { $0.label == label && $0.type == type }
        let services = Set(named.map(\.service))
        return services.count == 1 ? services.first ?? nil : nil
    }
}

/// Why a time does not count towards a stall.
public struct PauseKind: OpenName {
    /// As in JSON; unknown names are kept.
    public let rawValue: String
    /// Accepts unknown names, too.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// The machine was suspended: boot time advanced, and monotonic time did not (clock_gettime(2)).
    public static let suspended = PauseKind(rawValue: "suspended")
    /// The process's control group was frozen (cgroups(7), `cgroup.freeze`).
    public static let frozen = PauseKind(rawValue: "frozen")
    /// A debugger, or another tracer, was attached (ptrace(2)).
    public static let traced = PauseKind(rawValue: "traced")
    /// The whole process stopped, and did not wait for a processor: it was stopped by a signal, or its virtual machine was stopped. Also a freeze
    /// that the kernel does not count.
    public static let stopped = PauseKind(rawValue: "stopped")
    /// The watchdog woke late, and the reason is not known.
    public static let late = PauseKind(rawValue: "late")
    /// The server had announced that it would be slow.
    public static let expectedSlow = PauseKind(rawValue: "expected_slow")
    /// The start-up grace.
    public static let startup = PauseKind(rawValue: "startup")
    /// The server paused the monitoring.
    public static let monitoringPaused = PauseKind(rawValue: "monitoring_paused")
    /// The wall clock was set. Nothing stopped, but times before and after cannot be compared.
    public static let clockStep = PauseKind(rawValue: "clock_step")
    /// The loop's thread was found in the loop's own wait, or had closed the epoll set that the loop waits for.
    public static let inWait = PauseKind(rawValue: "in_wait")
}

extension RunRecord {
    /// The pauses of a run: the latest ones individually, all of them as sums.
    public struct PauseLog: Codable, Hashable, Sendable {
        /// The latest, oldest first; at most ``recordLimit``. Expected slowness is in the sums only.
        public var latest: [Pause]
        /// All, by kind.
        public var totals: [String: PauseTotal]

        /// The largest number of pauses in ``latest``. Older ones are only in the sums.
        public static let recordLimit = 64

        /// Creates a log, by default empty.
        public init(latest: [Pause] = [], totals: [String: PauseTotal] = [:]) {
            (self.latest, self.totals) = (latest, totals)
        }
    }

    /// A time that counts towards no stall.
    public struct Pause: Codable, Hashable, Sendable {
        /// The reason.
        public var kind: PauseKind
        /// The latest time at which it can have begun. For a clock step: when it was noticed, by the new time.
        public var startedAt: Timestamp
        /// The least duration, in nanoseconds. For a clock step: by how much the clock was set, in either direction.
        public var durationNs: Int64
        /// The label of the watched loop. Nil: the whole process.
        public var watch: String?

        /// Creates a pause, by default of the whole process.
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

    /// The sum of all pauses of one kind.
    public struct PauseTotal: Codable, Hashable, Sendable {
        /// The number of pauses.
        public var count: Int64
        /// Their total duration, in nanoseconds.
        public var durationNs: Int64

        /// Creates a sum, by default zero.
        public init(count: Int64 = 0, durationNs: Int64 = 0) {
            (self.count, self.durationNs) = (count, durationNs)
        }

        private enum CodingKeys: String, CodingKey {
            case count
            case durationNs = "duration_ns"
        }
    }

    /// Stalls of one fault that were only counted since its last report: of one watched loop, queue or pool, and of one kind.
    public struct Repeated: Codable, Hashable, Sendable {
        /// The fault, as far as the stalls were examined.
        public var fingerprint: Fingerprint
        /// The stalls that are in no report yet. The next report of the same fault, loop and kind contains them.
        public var repeats: StallReport.Repeats
        /// The label of the loop, queue or pool. Nil in older records, and if the stalls are of more loops than are counted separately.
        public var label: String?
        /// Its type. Nil if `label` is nil.
        public var type: WatchedType?
        /// The kind of the stalls. Nil if `label` is nil.
        public var kind: StallKind?
        /// For a watcher of other processes: the service whose loop it is. Nil for a monitor that watches its own process, in records of older
        /// watchers, and if `label` is nil.
        public var service: String?

        /// Creates one from these values, which are not checked.
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

    /// The state of writing to the report directory.
    public struct Writing: Codable, Hashable, Sendable {
        /// The number of reports that wait in memory for the disk. When the monitor is stopped they are in `lost_writes` instead.
        public var waiting: Int64
        /// Their size in bytes, including that of this record if it waits, too.
        public var waitingBytes: Int64
        /// The number of failed writes.
        public var failures: Int64
        /// The duration of the longest write, in nanoseconds.
        public var longestNs: Int64
        /// Why the last write failed: ``ReportError/Code/name``. Nil if nothing waits.
        public var problem: String?
        /// The largest size that ever waited for the disk, in bytes.
        public var peakBytes: Int64
        /// What the monitor dropped because its reporter was too slow, by kind: `stalls` that are counted nowhere else, `stall_stacks`, `samples`.
        public var dropped: [String: Int64]
        /// The largest size that ever waited for the reporter, in bytes.
        public var noticePeakBytes: Int64

        /// The problems of the report directory: `link` (it is a symbolic link), `open_to_others` (others can write there), `filled` (with files
        /// that the run may not remove). Nil if there are none.
        public var concerns: [String]?

        /// Creates a state: by default nothing is waiting, and nothing has failed.
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
