package import RunLoopKit

/// Decides whether one turn goes on for too long though its callouts are short. Pure, as ``StallPolicy`` is.
///
/// It fires only at a look that saw the loop move since the one before: a loop that stands is left to the policy for that.
package struct CongestionPolicy: Sendable {
    package let threshold: Duration
    package private(set) var open: Stretch?
    private var lastLook: LoopSample?
    /// What a blocked stall has taken, or a late watchdog cannot vouch for.
    private var floor: MonotonicInstant?

    /// The congested part of a turn.
    package struct Stretch: Hashable, Sendable {
        /// Since when the loop was busy: what the turn is known by.
        package var turn: MonotonicInstant
        package var start: MonotonicInstant
        package var announced: Duration
    }

    package init(threshold: Duration) {
        self.threshold = threshold
    }

    /// When the turn under way becomes congested, if it moves until then.
    package var maturity: MonotonicInstant? {
        guard open == nil, let since = lastLook?.busySince else { return nil }
        return start(of: since) + threshold
    }

    /// - Parameter taken: What a blocked stall has of the time: it is decided first.
    package mutating func decide(_ look: LoopSample, taken: ClosedRange<MonotonicInstant>?) -> StallDecision {
        defer { lastLook = look }
        if let stretch = open { return follow(stretch, look, taken) }
        raiseFloor(to: look.hasExcludedTime ? look.time : taken?.upperBound)
        for turn in look.turns where turn.end - start(of: turn.start) >= threshold {
            defer { raiseFloor(to: turn.end) }
            return .passed(.exact(from: start(of: turn.start), to: turn.end), lastLook?.pulse ?? look.pulse)
        }
        return begin(look)
    }

    /// What has passed until `time` counts towards nothing.
    package mutating func resume(at time: MonotonicInstant) {
        (open, lastLook) = (nil, nil)
        raiseFloor(to: time)
    }

    package mutating func abandon(at time: MonotonicInstant) -> StallDecision {
        defer { open = nil }
        guard let open else { return .none }
        return .ended(.init(from: open.start, between: lastLook?.time ?? time, and: time))
    }

    private mutating func begin(_ look: LoopSample) -> StallDecision {
        guard let since = look.busySince, let lastLook, lastLook.busySince == since, lastLook.moved(to: look) else {
            return .none
        }
        let start = start(of: since)
        guard look.time - start >= threshold else { return .none }
        open = Stretch(turn: since, start: start, announced: look.time - start)
        return .began(.exact(from: start, to: look.time))
    }

    private mutating func follow(
        _ stretch: Stretch,
        _ look: LoopSample,
        _ taken: ClosedRange<MonotonicInstant>?
    ) -> StallDecision {
        raiseFloor(to: taken?.upperBound)
        if let taken {
            open = nil
            return .ended(.exact(from: stretch.start, to: max(taken.lowerBound, stretch.start)))
        }
        if let turn = look.turns.first(where: { $0.start == stretch.turn }) {
            open = nil
            raiseFloor(to: turn.end)
            return .ended(.exact(from: stretch.start, to: turn.end))
        }
        guard look.busySince != stretch.turn else { return grow(stretch, look) }
        open = nil
        raiseFloor(to: look.time)
        return .ended(.init(from: stretch.start, between: lastLook?.time ?? look.time, and: look.time))
    }

    private mutating func grow(_ stretch: Stretch, _ look: LoopSample) -> StallDecision {
        let length = look.time - stretch.start
        guard length.isWorthTelling(after: stretch.announced) else { return .none }
        open?.announced = length
        return .grew(.exact(from: stretch.start, to: look.time))
    }

    private func start(of turn: MonotonicInstant) -> MonotonicInstant { max(turn, floor ?? turn) }

    private mutating func raiseFloor(to time: MonotonicInstant?) {
        if let time { floor = max(time, floor ?? time) }
    }
}

extension LoopSample {
    fileprivate func moved(to next: LoopSample) -> Bool { pulse != next.pulse || callouts != next.callouts }
}

extension StallSpan {
    /// By the loop's own stamps.
    package static func exact(from start: MonotonicInstant, to end: MonotonicInstant) -> StallSpan {
        StallSpan(earliestStart: start, latestStart: start, earliestEnd: end, latestEnd: end)
    }

    /// An end that nobody stamped.
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
    /// Twice the last announcement, at most 10 s on: a short stall is told of often, an endless one does not chatter.
    package func isWorthTelling(after announced: Duration) -> Bool {
        self >= min(announced * 2, announced + .seconds(10))
    }
}
