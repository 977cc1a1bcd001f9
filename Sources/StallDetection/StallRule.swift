package import RunLoopKit

/// When a watched loop counts as stalled: so many ticks in a row without a transition or callout while it is busy. And when it
/// does though it is never still for so long: many short stalls in a row, or one turn that does not end.
public struct StallRule: Hashable, Sendable {
    /// The distance between two looks at a busy loop.
    public var tick: Duration

    /// How many ticks in a row make a stall.
    public var ticks: Int

    /// What makes a `repeated` stall. Nil: none are looked for.
    public var repeated: Repeated?

    /// What makes a `congested` stall. Nil: none are looked for.
    public var congested: Congested?

    /// A rule of `ticks` ticks.
    ///
    /// - Parameters:
    ///   - tick: 1 ms to 1 min.
    ///   - ticks: 1 to 10,000.
    ///   - repeated: five turns in a row of more than a tick each unless said otherwise.
    ///   - congested: a turn as long as `ticks` ticks unless said otherwise.
    public init(
        tick: Duration = .milliseconds(50),
        ticks: Int = 5,
        repeated: Repeated? = Repeated(),
        congested: Congested? = Congested()
    ) {
        self.tick = tick
        self.ticks = ticks
        self.repeated = repeated
        self.congested = congested
    }

    /// The shortest stall: `tick × ticks`, 250 ms unless set otherwise.
    public var threshold: Duration { tick * ticks }

    /// Short stalls that no single threshold shows: several turns in a row, each longer than so many ticks.
    ///
    /// A turn counts from the loop's departure from rest to its next rest; one that no rest precedes, from its own beginning. Two
    /// long turns are in a row when what lies between them, rest and short turns, is no longer than the first of them, or than
    /// two ticks: the loop is held up for at least about half of the time. Short turns alone do not end the row.
    public struct Repeated: Hashable, Sendable {
        /// How many turns in a row make a stall.
        public var turns: Int
        /// How many ticks each of them is longer than.
        public var ticks: Int

        /// - Parameters:
        ///   - turns: 2 to 1,000.
        ///   - ticks: 1 to 10,000.
        public init(turns: Int = 5, ticks: Int = 1) {
            (self.turns, self.ticks) = (turns, ticks)
        }
    }

    /// One turn so full of short callouts that the loop comes neither to its sleep nor to a look at what is new.
    ///
    /// A loop that is busy in turn after turn, each of which looks for what is new, is not congested: it serves everybody.
    public struct Congested: Hashable, Sendable {
        /// How many ticks such a turn lasts. Nil: as many as make a stall of the blocked kind.
        public var ticks: Int?

        /// - Parameter ticks: 1 to 10,000.
        public init(ticks: Int? = nil) {
            self.ticks = ticks
        }
    }

    /// From which length on a turn is of interest to the rules for several.
    package var longTurn: Duration { tick * (repeated?.ticks ?? 1) }

    /// How long a turn lasts at least that is congested.
    package var congestion: Duration? { congested.map { tick * ($0.ticks ?? ticks) } }

    /// The longest pause after a turn that another long one still follows in a row.
    package func pause(after turn: BusyTurn) -> Duration { max(tick * 2, turn.end - turn.start) }
}
