package import RunLoopKit

/// When a watched loop counts as stalled: it is busy, and for this many consecutive ticks makes no transition and begins no
/// callout. Two more rules find loops that never stop for so long: many short stalls in a row, and one turn that does not end.
public struct StallRule: Hashable, Sendable {
    /// The time between two looks at a busy loop.
    public var tick: Duration

    /// The number of consecutive ticks that make a stall.
    public var ticks: Int

    /// The rule for `repeated` stalls. Nil: they are not detected.
    public var repeated: Repeated?

    /// The rule for `congested` stalls. Nil: they are not detected.
    public var congested: Congested?

    /// Creates a rule with a threshold of `ticks` ticks.
    ///
    /// - Parameters:
    ///   - tick: 1 ms to 1 min.
    ///   - ticks: 1 to 10,000.
    ///   - repeated: By default five turns in a row, each longer than a tick.
    ///   - congested: By default a turn of `ticks` ticks.
    public init(
        tick: Duration = .milliseconds(50),
        ticks: Int = 5,
        repeated: Repeated? = Repeated(),
        congested: Congested? = Congested()
    ) {
        (self.tick, self.ticks, self.repeated, self.congested) = (tick, ticks, repeated, congested)
    }

    /// The shortest stall: `tick × ticks`, 250 ms by default.
    public var threshold: Duration { tick * ticks }

    /// Short stalls, none of which reaches the threshold: several turns in a row, each longer than a number of ticks.
    ///
    /// A turn counts from the loop's departure from rest to its next rest, or from its own beginning if no rest precedes it. Two
    /// long turns are in a row if the time between them (rest and short turns) is not longer than the first of them, or than two
    /// ticks. So the loop is held up for about half of the time or more. Short turns alone do not end the row.
    public struct Repeated: Hashable, Sendable {
        /// The number of consecutive turns that make a stall.
        public var turns: Int
        /// Each of them is longer than this many ticks.
        public var ticks: Int

        /// - Parameters:
        ///   - turns: 2 to 1,000.
        ///   - ticks: 1 to 10,000.
        public init(turns: Int = 5, ticks: Int = 1) {
            (self.turns, self.ticks) = (turns, ticks)
        }
    }

    /// One turn with so many short callouts that the loop neither sleeps nor polls for new events.
    ///
    /// A loop that is busy in turn after turn, but polls for new events in each, is not congested: it serves every client.
    public struct Congested: Hashable, Sendable {
        /// The number of ticks that such a turn lasts. Nil: as many as for a blocked stall.
        public var ticks: Int?

        /// - Parameter ticks: 1 to 10,000.
        public init(ticks: Int? = nil) {
            self.ticks = ticks
        }
    }

    /// Turns longer than this count for the `repeated` rule.
    package var longTurn: Duration { tick * (repeated?.ticks ?? 1) }

    /// The shortest turn that is congested. Nil if the rule is off.
    package var congestion: Duration? { congested.map { tick * ($0.ticks ?? ticks) } }

    /// The longest pause between a turn and the next long one of the same row.
    package func pause(after turn: BusyTurn) -> Duration { max(tick * 2, turn.end - turn.start) }
}

extension StallRule {
    /// The same for a task pool: for a pool in which jobs begin and end, their lengths do not matter.
    package var forPools: StallRule { StallRule(tick: tick, ticks: ticks, repeated: nil, congested: nil) }

    /// The rule for the single jobs of a pool. The tick is longer if the most ticks that are allowed would be less than `length`.
    package func forJobs(longerThan length: Duration) -> StallRule {
        let tick = max(tick, length / 10_000)
        let ticks = Int(min(max((length / tick).rounded(.up), 1), 10_000))
        return StallRule(tick: tick, ticks: ticks, repeated: nil, congested: nil)
    }
}
