extension StallReport {
    /// The composition of a stall that consists of several turns or callouts.
    public struct BusyTime: Codable, Hashable, Sendable {
        /// The number of turns in the stall: all long ones of a `repeated` stall; 1 for a `congested` one.
        public var turns: Int
        /// The total nanoseconds of these turns: the stall without the pauses in it.
        public var totalNs: Int64
        /// The longest of these turns.
        public var longestNs: Int64
        /// The number of callouts that the loop made in the meantime: blocks, handlers, jobs. Nil if the loop does not count
        /// them.
        public var callouts: UInt64?

        /// Creates one, by default without callouts.
        public init(turns: Int, totalNs: Int64, longestNs: Int64, callouts: UInt64? = nil) {
            (self.turns, self.totalNs) = (turns, totalNs)
            (self.longestNs, self.callouts) = (longestNs, callouts)
        }

        private enum CodingKeys: String, CodingKey {
            case turns
            case totalNs = "total_ns"
            case longestNs = "longest_ns"
            case callouts
        }
    }
}

/// The durations of a loop's turns, whether stalled or not.
///
/// A turn counts from the departure from rest to the next rest; a turn that no rest precedes, from its own beginning. Each was
/// timed by the loop's own thread, however short it was.
public struct TurnDurations: Codable, Hashable, Sendable {
    /// The number of turns timed.
    public var count: UInt64
    /// Half of the turns were not longer, to within an eighth.
    public var p50Ns: Int64
    /// 99 of 100 turns were not longer, to within an eighth.
    public var p99Ns: Int64
    /// The longest one, exactly; of a task pool that had a longer job before its watch, to within an eighth.
    public var maxNs: Int64

    /// Creates one from these values, which are not checked.
    public init(count: UInt64, p50Ns: Int64, p99Ns: Int64, maxNs: Int64) {
        (self.count, self.p50Ns, self.p99Ns, self.maxNs) = (count, p50Ns, p99Ns, maxNs)
    }

    private enum CodingKeys: String, CodingKey {
        case count
        case p50Ns = "p50_ns"
        case p99Ns = "p99_ns"
        case maxNs = "max_ns"
    }
}

extension StallReport {
    /// Stalls of one fault that were counted, and not reported individually.
    public struct Repeats: Codable, Hashable, Sendable {
        /// The number of these stalls.
        public var count: Int
        /// The report that they repeat. Nil if there was none yet, because too many others were written.
        public var report: ULID?
        /// When the first of them started.
        public var firstAt: Timestamp
        /// When the last of them ended, or was last sampled.
        public var lastAt: Timestamp
        /// Their total duration, in nanoseconds.
        public var totalNs: Int64
        /// The duration of the longest, in nanoseconds.
        public var longestNs: Int64

        /// Creates one from these values, which are not checked.
        public init(
            count: Int,
            report: ULID?,
            firstAt: Timestamp,
            lastAt: Timestamp,
            totalNs: Int64,
            longestNs: Int64
        ) {
            (self.count, self.report, self.firstAt, self.lastAt) = (count, report, firstAt, lastAt)
            (self.totalNs, self.longestNs) = (totalNs, longestNs)
        }

        /// The sum of both, as repeats of the later one's report.
        public func joined(by later: Repeats) -> Repeats {
            Repeats(
                count: count.addingSaturated(later.count),
                report: later.report ?? report,
                firstAt: min(firstAt, later.firstAt),
                lastAt: max(lastAt, later.lastAt),
                totalNs: totalNs.addingSaturated(later.totalNs),
                longestNs: max(longestNs, later.longestNs)
            )
        }

        private enum CodingKeys: String, CodingKey {
            case count, report
            case firstAt = "first_at"
            case lastAt = "last_at"
            case totalNs = "total_ns"
            case longestNs = "longest_ns"
        }
    }
}

/// Why a stall was counted but not reported.
public struct SuppressionReason: OpenName {
    /// As in JSON; unknown names are kept.
    public let rawValue: String
    /// Accepts unknown names too.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// The same fault was reported recently.
    public static let repeated = SuppressionReason(rawValue: "repeat")
    /// The limit on reports begun per time was reached.
    public static let reportRate = SuppressionReason(rawValue: "report_rate")
    /// The limit on bytes written per time was reached.
    public static let byteRate = SuppressionReason(rawValue: "byte_rate")
}
