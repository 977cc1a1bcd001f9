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
