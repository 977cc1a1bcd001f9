extension StallMonitor {
    /// What the monitor may cost the process it watches. Over it, it takes fewer samples, then no stacks at all, until the cost has
    /// fallen. Stalls are found and reported all the same.
    ///
    /// What is counted: the processor time of captures, of naming and of writing; and the time for which watched threads were held.
    /// The looks themselves are not: they are at most one a tick, and without them nothing is found.
    public struct CostLimits: Hashable, Sendable {
        /// The share of one processor that may be used for long: 0.01 is 1 %.
        public let processorShare: Double
        /// Processor time that may be used at once, after a time of rest. A first stall's names can take a second or two.
        public let processorBurst: Duration
        /// The share of the time for which a watched thread may be held, all of them together.
        public let heldShare: Double
        /// Time for which threads may be held at once, after a time of rest.
        public let heldBurst: Duration

        /// - Parameters:
        ///   - processorShare: 1 % unless given; brought to 0.000001 at least.
        ///   - processorBurst: 3 s unless given; at least 1 µs.
        ///   - heldShare: 0.1 % unless given; brought to 0.000001 at least.
        ///   - heldBurst: 50 ms unless given; at least 1 µs.
        public init(
            processorShare: Double = 0.01,
            processorBurst: Duration = .seconds(3),
            heldShare: Double = 0.001,
            heldBurst: Duration = .milliseconds(50)
        ) {
            (self.processorShare, self.heldShare) = (max(processorShare, 1e-6), max(heldShare, 1e-6))
            (self.processorBurst, self.heldBurst) = (
                max(processorBurst, .microseconds(1)), max(heldBurst, .microseconds(1))
            )
        }
    }
}
