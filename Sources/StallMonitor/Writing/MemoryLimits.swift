extension StallMonitor {
    /// How much is kept in memory for a disk that is full, read-only or slow. Over it, the oldest goes, and is counted as lost.
    public struct MemoryLimits: Hashable, Sendable {
        /// Reports; at least 1.
        public let reports: Int
        /// Reports and run record together, in bytes. The newest report is kept even if it alone has more.
        public let bytes: Int

        /// 256 reports and 8 MiB unless given; a number below 1 counts as 1.
        public init(reports: Int = 256, bytes: Int = 8 << 20) {
            (self.reports, self.bytes) = (max(1, reports), max(1, bytes))
        }
    }
}
