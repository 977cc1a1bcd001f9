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
