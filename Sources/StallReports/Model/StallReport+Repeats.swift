extension StallReport {
    /// Stalls of one fault that were counted, and not reported one by one.
    public struct Repeats: Codable, Hashable, Sendable {
        /// How many there were.
        public var count: Int
        /// The report that they repeat. Nil if there was none yet, because too many others were written.
        public var report: ULID?
        /// When the first of them started.
        public var firstAt: Timestamp
        /// When the last of them ended, or was last looked at.
        public var lastAt: Timestamp
        /// How long they lasted, together, in nanoseconds.
        public var totalNs: Int64
        /// How long the longest lasted, in nanoseconds.
        public var longestNs: Int64

        /// Nothing is defaulted or checked.
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

        /// Both together, as repeats of the later one's report.
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

/// Why a stall was counted, and not reported.
public struct SuppressionReason: OpenName {
    /// As in JSON; unknown names are kept.
    public let rawValue: String
    /// Takes unknown names too.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// The same fault was reported not long ago.
    public static let repeated = SuppressionReason(rawValue: "repeat")
    /// So many reports were begun lately that there was no room for one more.
    public static let reportRate = SuppressionReason(rawValue: "report_rate")
    /// So many bytes were written lately that there was no room for more.
    public static let byteRate = SuppressionReason(rawValue: "byte_rate")
}
