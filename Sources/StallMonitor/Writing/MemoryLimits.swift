extension StallMonitor {
    /// How much is kept in memory for a disk that is full, read-only or slow. Over it, the oldest goes, and is counted as lost.
    public struct MemoryLimits: Hashable, Sendable {
        /// Reports: 1 to 1,000,000.
        public var reports: Int
        /// Reports and run record together, in bytes: 1 to 1 TiB. The newest report is kept even if it alone has more.
        public var bytes: Int

        /// 256 reports and 8 MiB unless given.
        public init(reports: Int = 256, bytes: Int = 8 << 20) {
            (self.reports, self.bytes) = (reports, bytes)
        }
    }
}
