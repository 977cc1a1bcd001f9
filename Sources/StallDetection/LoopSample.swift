package import RunLoopKit
package import StallReports

/// What the watchdog saw of one loop at one look.
package struct LoopSample: Hashable, Sendable {
    package var time: MonotonicInstant
    package var pulse: LoopHeartbeat.Pulse
    /// When the loop's current turn began or last left its wait, as stamped by the loop. Nil when it stamped nothing.
    package var turnStart: MonotonicInstant?
    /// When the first transition after the previous look happened. Nil when there was none, or nobody asked for it.
    package var firstTransition: MonotonicInstant?
    /// The watchdog itself woke more than a tick too late: what passed since the previous look proves nothing.
    package var late = false
    /// How much of what passed since the previous look counts towards no stall.
    package var excluded: ExcludedTime?
    /// Callouts that the loop has begun so far: a loop in one phase moves by them.
    package var callouts: UInt64 = 0
    /// How many of them had begun at `turnStart`.
    package var calloutsAtTurn: UInt64 = 0
    /// Since when the loop has been busy without a rest, or a turn that looked for what is new. Nil at rest, and if not stamped.
    package var busySince: MonotonicInstant?
    /// The long turns that have ended since the previous look, the oldest first.
    package var turns: [BusyTurn] = []

    /// Whether part of what passed since the previous look counts towards no stall.
    package var hasExcludedTime: Bool { late || excluded != nil }

    package init(
        time: MonotonicInstant,
        pulse: LoopHeartbeat.Pulse,
        turnStart: MonotonicInstant? = nil,
        firstTransition: MonotonicInstant? = nil,
        late: Bool = false,
        excluded: ExcludedTime? = nil,
        callouts: UInt64 = 0,
        calloutsAtTurn: UInt64 = 0,
        busySince: MonotonicInstant? = nil,
        turns: [BusyTurn] = []
    ) {
        self.time = time
        self.pulse = pulse
        self.turnStart = turnStart
        self.firstTransition = firstTransition
        self.late = late
        self.excluded = excluded
        self.callouts = callouts
        self.calloutsAtTurn = calloutsAtTurn
        self.busySince = busySince
        self.turns = turns
    }
}

/// Time that counts towards no stall.
package struct ExcludedTime: Hashable, Sendable {
    package var length: Duration
    package var reason: PauseKind
    /// Since when it was not told, if that is longer ago than the previous look.
    package var since: MonotonicInstant?

    package init(length: Duration, reason: PauseKind, since: MonotonicInstant? = nil) {
        self.length = length
        self.reason = reason
        self.since = since
    }
}

/// The rules by which a loop is stalled, the strongest first. No time is told of twice: of two that apply, the first one has it.
package enum StallCategory: Int, CaseIterable, Hashable, Sendable {
    case blocked
    case congested
    case repeated
}

/// What a look means by one of the rules.
package struct StallFinding: Hashable, Sendable {
    package var category: StallCategory
    package var decision: StallDecision

    package init(category: StallCategory, decision: StallDecision) {
        self.category = category
        self.decision = decision
    }
}

/// A time span whose ends are known exactly or between bounds, part of which nobody may have been there to prove. The true
/// length lies in `shortest ... longest`.
package struct StallSpan: Hashable, Sendable {
    package var earliestStart: MonotonicInstant
    package var latestStart: MonotonicInstant
    package var earliestEnd: MonotonicInstant
    package var latestEnd: MonotonicInstant
    /// How much of it a late watchdog cannot vouch for.
    package var unproven: Duration = .zero

    package var isExact: Bool { hasExactEnds && unproven == .zero }
    package var hasExactEnds: Bool { earliestStart == latestStart && earliestEnd == latestEnd }
    package var longest: Duration { latestEnd - earliestStart }
    package var shortest: Duration { max(.zero, earliestEnd - latestStart - unproven) }
    /// The length to be told: the longest that is proven.
    package var length: Duration { longest - unproven }

    package init(
        earliestStart: MonotonicInstant,
        latestStart: MonotonicInstant,
        earliestEnd: MonotonicInstant,
        latestEnd: MonotonicInstant,
        unproven: Duration = .zero
    ) {
        self.earliestStart = earliestStart
        self.latestStart = latestStart
        self.earliestEnd = earliestEnd
        self.latestEnd = latestEnd
        self.unproven = unproven
    }
}

/// What a look means for one watched loop.
package enum StallDecision: Hashable, Sendable {
    /// Nothing to say.
    case none
    /// A stall is now proven, and goes on: capture it.
    case began(StallSpan)
    /// The stall goes on and has grown by enough to say so again.
    case grew(StallSpan)
    /// The stall announced by `began` is over.
    case ended(StallSpan)
    /// A stall at this pulse came and went between two looks. Its stamps prove it, but there is nothing left to capture.
    case passed(StallSpan, LoopHeartbeat.Pulse)
}
