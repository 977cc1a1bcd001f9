extension StallMonitor {
    /// What the monitor may cost the process it watches. Over it, it takes fewer samples, then no stacks at all, until the cost has
    /// fallen. Stalls are found and reported all the same.
    ///
    /// What is counted: the processor time of captures, of naming and of writing; and the time for which watched threads were held.
    /// The looks themselves are not: they are at most one a tick, and without them nothing is found.
    public struct CostLimits: Hashable, Sendable {
        /// The share of one processor that may be used for long: 0.01 is 1 %.
        public var processorShare: Double
        /// Processor time that may be used at once, after a time of rest. A first stall's names can take a second or two.
        public var processorBurst: Duration
        /// The share of the time for which a watched thread may be held, all of them together.
        public var heldShare: Double
        /// Time for which threads may be held at once, after a time of rest.
        public var heldBurst: Duration

        /// - Parameters:
        ///   - processorShare: 1 % unless given; 0.000001 to 1.
        ///   - processorBurst: 3 s unless given; 1 µs to 10 min.
        ///   - heldShare: 0.1 % unless given; 0.000001 to 1.
        ///   - heldBurst: 50 ms unless given; 1 µs to 10 min.
        public init(
            processorShare: Double = 0.01,
            processorBurst: Duration = .seconds(3),
            heldShare: Double = 0.001,
            heldBurst: Duration = .milliseconds(50)
        ) {
            (self.processorShare, self.heldShare) = (processorShare, heldShare)
            (self.processorBurst, self.heldBurst) = (processorBurst, heldBurst)
        }
    }
}
