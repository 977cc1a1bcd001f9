import RunLoopKit

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
}

/// A time span whose ends are known exactly or between bounds. The true length lies in `shortest ... longest`.
struct StallSpan: Hashable, Sendable {
    var earliestStart: MonotonicInstant
    var latestStart: MonotonicInstant
    var earliestEnd: MonotonicInstant
    var latestEnd: MonotonicInstant

    var isExact: Bool { earliestStart == latestStart && earliestEnd == latestEnd }
    var longest: Duration { latestEnd - earliestStart }
    var shortest: Duration { max(.zero, earliestEnd - latestStart) }
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
    /// A stall came and went between two looks; its stamps prove it, but there is nothing left to capture.
    case passed(StallSpan)
}
