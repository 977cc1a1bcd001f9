/// When a watched loop counts as stalled: so many ticks in a row without a transition while it is busy.
public struct StallRule: Hashable, Sendable {
    /// The distance between two looks at a busy loop.
    public let tick: Duration

    /// How many ticks in a row make a stall.
    public let ticks: Int

    /// A rule of `ticks` ticks.
    ///
    /// - Parameters:
    ///   - tick: 1 ms to 1 min; a value outside is brought to the nearer end.
    ///   - ticks: 1 to 10,000; likewise.
    public init(tick: Duration = .milliseconds(50), ticks: Int = 5) {
        self.tick = min(max(tick, .milliseconds(1)), .seconds(60))
        self.ticks = min(max(ticks, 1), 10_000)
    }

    /// The shortest stall: `tick × ticks`, 250 ms unless set otherwise.
    public var threshold: Duration { tick * ticks }
}
