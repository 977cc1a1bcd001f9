package import RunLoopKit
package import StallReports

/// What the watchdog read of one loop at one look.
package struct LoopSample: Hashable, Sendable {
    package var time: MonotonicInstant
    package var pulse: LoopHeartbeat.Pulse
    /// When the loop's current turn began or last left its wait, by the loop's own stamp. Nil without a stamp.
    package var turnStart: MonotonicInstant?
    /// When the first transition after the previous look happened. Nil when there was none, or no stamp was requested.
    package var firstTransition: MonotonicInstant?
    /// The watchdog woke more than a tick too late, so the time since the previous look proves nothing.
    package var late = false
    /// How much of what passed since the previous look counts towards no stall.
    package var excluded: ExcludedTime?
    /// Callouts that the loop has begun so far. A new one shows that the loop moves, though its phase is the same.
    package var callouts: UInt64 = 0
    /// How many of them had begun at `turnStart`.
    package var calloutsAtTurn: UInt64 = 0
    /// Since when the loop has been busy: the end of its last rest, or of the last turn that polled for new events. Nil at rest, and without
    /// a stamp.
    package var busySince: MonotonicInstant?
    /// The long turns that ended since the previous look, oldest first.
    package var turns: [BusyTurn] = []

    /// Whether part of the time since the previous look is excluded.
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
    /// When the unknown time began, if that was before the previous look: the amount could not be read at some looks.
    package var since: MonotonicInstant?

    package init(length: Duration, reason: PauseKind, since: MonotonicInstant? = nil) {
        self.length = length
        self.reason = reason
        self.since = since
    }
}

/// The rules by which a loop is stalled, strongest first. No time is reported twice: where two rules apply, the stronger one gets the time.
package enum StallCategory: Int, CaseIterable, Hashable, Sendable {
    case blocked
    case congested
    case repeated
}

/// What one of the rules decided at a look.
package struct StallFinding: Hashable, Sendable {
    package var category: StallCategory
    package var decision: StallDecision

    package init(category: StallCategory, decision: StallDecision) {
        self.category = category
        self.decision = decision
    }
}

/// A span of time. Each end is exact or lies between two bounds, and part of the span may be unproven. The true length lies in
/// `shortest ... longest`.
package struct StallSpan: Hashable, Sendable {
    package var earliestStart: MonotonicInstant
    package var latestStart: MonotonicInstant
    package var earliestEnd: MonotonicInstant
    package var latestEnd: MonotonicInstant
    /// How much of it is not counted: excluded, or not observed because the watchdog was late.
    package var unproven: Duration = .zero

    package var isExact: Bool { hasExactEnds && unproven == .zero }
    package var hasExactEnds: Bool { earliestStart == latestStart && earliestEnd == latestEnd }
    package var longest: Duration { latestEnd - earliestStart }
    package var shortest: Duration { max(.zero, earliestEnd - latestStart - unproven) }
    /// The length to report: the longest that is proven.
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

/// What a policy decides at a look.
package enum StallDecision: Hashable, Sendable {
    /// No change.
    case none
    /// By its length this is a stall. Nothing begins until the caller confirms it; the caller can dismiss it instead, if other evidence
    /// shows that the thread is not stalled.
    case candidate(StallSpan)
    /// The confirmed stall goes on, and has grown enough for a new report.
    case grew(StallSpan)
    /// The confirmed stall is over.
    case ended(StallSpan)
    /// A stall at this pulse began and ended between two looks. The loop's stamps prove it; there is no stack left to capture.
    case passed(StallSpan, LoopHeartbeat.Pulse)
}
