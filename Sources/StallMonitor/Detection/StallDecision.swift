import RunLoopKit
import StallReports

/// What the watchdog saw of one loop at one look.
struct Look: Hashable, Sendable {
    var time: MonotonicInstant
    var pulse: LoopHeartbeat.Pulse
    /// When the loop's current turn began or last left its wait, as stamped by the loop. Nil when it stamped nothing.
    var turnStart: MonotonicInstant?
    /// When the first transition after the previous look happened. Nil when there was none, or nobody asked for it.
    var firstTransition: MonotonicInstant?
    /// The watchdog itself woke more than a tick too late: what passed since the previous look proves nothing.
    var late = false
    /// How much of what passed since the previous look counts towards no stall.
    var discount: Discount?
    /// Callouts that the loop has begun so far: a loop in one phase moves by them.
    var callouts: UInt64 = 0
    /// How many of them had begun at `turnStart`.
    var calloutsAtTurn: UInt64 = 0
    /// Since when the loop has been busy without a rest, or a turn that looked for what is new. Nil at rest, and if not stamped.
    var busySince: MonotonicInstant?
    /// The long turns that have ended since the previous look, the oldest first.
    var turns: [BusyTurn] = []

    /// Whether part of what passed since the previous look counts towards no stall.
    var isDiscounted: Bool { late || discount != nil }
}

/// The rules by which a loop is stalled, the strongest first. No time is told of twice: of two that apply, the first one has it.
enum StallCategory: Int, CaseIterable, Hashable, Sendable {
    case blocked
    case congested
    case repeated
}

/// What a look means by one of the rules.
struct StallFinding: Hashable, Sendable {
    var category: StallCategory
    var decision: StallDecision
}

/// A time span whose ends are known exactly or between bounds, part of which nobody may have been there to prove. The true
/// length lies in `shortest ... longest`.
struct StallSpan: Hashable, Sendable {
    var earliestStart: MonotonicInstant
    var latestStart: MonotonicInstant
    var earliestEnd: MonotonicInstant
    var latestEnd: MonotonicInstant
    /// How much of it a late watchdog cannot vouch for.
    var unproven: Duration = .zero

    var isExact: Bool { hasExactEnds && unproven == .zero }
    var hasExactEnds: Bool { earliestStart == latestStart && earliestEnd == latestEnd }
    var longest: Duration { latestEnd - earliestStart }
    var shortest: Duration { max(.zero, earliestEnd - latestStart - unproven) }
    /// The length to be told: the longest that is proven.
    var length: Duration { longest - unproven }
}

/// What a look means for one watched loop.
enum StallDecision: Hashable, Sendable {
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
