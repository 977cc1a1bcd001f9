extension StallReport {
    /// What a stall of several turns or callouts is made of.
    public struct BusyTime: Codable, Hashable, Sendable {
        /// Turns of the stall: all long ones of a `repeated` one; 1 for a `congested` one.
        public var turns: Int
        /// Nanoseconds that these took together: the stall without the pauses in it.
        public var totalNs: Int64
        /// The longest of them.
        public var longestNs: Int64
        /// Callouts that the loop made meanwhile: blocks, handlers, jobs. Nil where it does not count them.
        public var callouts: UInt64?

        /// Without callouts unless given.
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
