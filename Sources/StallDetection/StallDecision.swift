package import RunLoopKit

/// The rules by which a loop is stalled, strongest first. No time is reported twice: if two rules apply, the stronger one gets
/// the time.
package enum StallCategory: Int, CaseIterable, Hashable, Sendable {
    case blocked
    case congested
    case repeated
}

/// What one of the rules decided at a look.
package struct StallFinding: Hashable, Sendable {
    package var category: StallCategory
    package var decision: StallDecision

    /// Whether it ends a confirmed stall.
    package var endsStall: Bool { if case .ended = decision { true } else { false } }

    /// Whether its stall is over.
    package var isOver: Bool { if case .passed = decision { true } else { endsStall } }
}

/// The decision of a policy at a look.
package enum StallDecision: Hashable, Sendable {
    /// No change.
    case none
    /// Long enough to be a stall. It begins when the caller confirms it. The caller can dismiss it instead, if other evidence
    /// shows that the thread is not stalled.
    case candidate(StallSpan)
    /// The confirmed stall continues, and has grown enough for a new report.
    case grew(StallSpan)
    /// The confirmed stall is over.
    case ended(StallSpan)
    /// A stall at this pulse began and ended between two looks. The loop's stamps prove it; no stack is left to capture.
    case passed(StallSpan, LoopHeartbeat.Pulse)
}

/// A span of time. Each end is exact or lies between two bounds, and part of the span may be excluded. The true length lies in
/// `shortest ... longest`.
package struct StallSpan: Hashable, Sendable {
    package var earliestStart: MonotonicInstant
    package var latestStart: MonotonicInstant
    package var earliestEnd: MonotonicInstant
    package var latestEnd: MonotonicInstant
    /// The part that does not count: excluded, or not observed because the watchdog was late.
    package var excluded: Duration = .zero
    /// The part of `excluded` that a watcher from outside did not observe. The stalled process may have gone on meanwhile.
    package var unobserved: Duration = .zero

    package var isExact: Bool { hasExactEnds && excluded == .zero }
    package var hasExactEnds: Bool { earliestStart == latestStart && earliestEnd == latestEnd }
    package var longest: Duration { latestEnd - earliestStart }
    package var shortest: Duration { max(.zero, earliestEnd - latestStart - excluded) }
    /// The length to report: the longest one that is proven.
    package var length: Duration { max(.zero, longest - excluded) }

    package init(
        earliestStart: MonotonicInstant,
        latestStart: MonotonicInstant,
        earliestEnd: MonotonicInstant,
        latestEnd: MonotonicInstant,
        excluded: Duration = .zero
    ) {
        (self.earliestStart, self.latestStart, self.earliestEnd) = (earliestStart, latestStart, earliestEnd)
        (self.latestEnd, self.excluded) = (latestEnd, excluded)
    }
}

extension StallSpan {
    /// A span whose ends are the loop's own stamps.
    package static func exact(from start: MonotonicInstant, to end: MonotonicInstant) -> StallSpan {
        StallSpan(earliestStart: start, latestStart: start, earliestEnd: end, latestEnd: end)
    }

    /// A span whose end was not stamped.
    package init(from start: MonotonicInstant, between earliestEnd: MonotonicInstant, and latestEnd: MonotonicInstant) {
        self.init(
            earliestStart: start,
            latestStart: start,
            earliestEnd: max(start, earliestEnd),
            latestEnd: max(start, latestEnd)
        )
    }
}

extension Duration {
    /// Whether a stall has grown enough for a new report: to twice the length of the last one, or by 10 s. So a short stall is
    /// updated often, and an endless one every 10 s.
    package func isWorthReporting(after announced: Duration) -> Bool {
        self >= min(announced * 2, announced + .seconds(10))
    }
}
