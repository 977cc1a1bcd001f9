package import RunLoopKit

/// Decides whether one turn lasts too long although its callouts are short. Pure, like ``StandstillPolicy``.
///
/// It decides only at a look that saw the loop move since the previous one. A loop that does not move is left to ``StandstillPolicy``.
package struct CongestionPolicy: Sendable {
    package let threshold: Duration
    /// The confirmed stall.
    package private(set) var open: CongestedTurn?
    /// What the latest look found, until it is confirmed.
    private var candidate: CongestedTurn?
    private var lastLook: LoopSample?
    /// Time before this belongs to a blocked stall, or was not observed.
    private var floor: MonotonicInstant?

    /// The congested part of a turn.
    package struct CongestedTurn: Hashable, Sendable {
        /// Since when the loop was busy. Identifies the turn.
        package var turn: MonotonicInstant
        package var start: MonotonicInstant
        package var announced: Duration
    }

    package init(threshold: Duration) {
        self.threshold = threshold
    }

    /// When the present turn becomes congested, if it still moves then.
    package var maturity: MonotonicInstant? {
        guard open == nil, let since = lastLook?.busySince else { return nil }
        return start(of: since) + threshold
    }

    /// - Parameter taken: The time that belongs to a blocked stall, which is decided first.
    package mutating func decide(_ look: LoopSample, taken: ClosedRange<MonotonicInstant>?) -> StallDecision {
        defer { lastLook = look }
        candidate = nil
        if let congested = open { return follow(congested, look, taken) }
        ignore(until: look.hasExcludedTime ? look.time : taken?.upperBound)
        for turn in look.turns where turn.end - start(of: turn.start) >= threshold {
            defer { ignore(until: turn.end) }
            return .passed(.exact(from: start(of: turn.start), to: turn.end), lastLook?.pulse ?? look.pulse)
        }
        return begin(look)
    }

    /// Confirms the candidate of the latest look as a stall.
    package mutating func confirm() { open = candidate.take() ?? open }

    /// Excludes the time until `time`.
    package mutating func resume(at time: MonotonicInstant) {
        (open, candidate, lastLook) = (nil, nil, nil)
        ignore(until: time)
    }

    /// The time until `time` counts towards no stall that begins later.
    package mutating func ignore(until time: MonotonicInstant?) {
        if let time { floor = max(time, floor ?? time) }
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
        candidate = CongestedTurn(turn: since, start: start, announced: look.time - start)
        return .candidate(.exact(from: start, to: look.time))
    }

    private mutating func follow(
        _ congested: CongestedTurn,
        _ look: LoopSample,
        _ taken: ClosedRange<MonotonicInstant>?
    ) -> StallDecision {
        ignore(until: taken?.upperBound)
        if let taken {
            open = nil
            return .ended(.exact(from: congested.start, to: max(taken.lowerBound, congested.start)))
        }
        if let turn = look.turns.first(where: { $0.start == congested.turn }) {
            open = nil
            ignore(until: turn.end)
            return .ended(.exact(from: congested.start, to: turn.end))
        }
        guard look.busySince != congested.turn else { return grow(congested, look) }
        open = nil
        ignore(until: look.time)
        return .ended(.init(from: congested.start, between: lastLook?.time ?? look.time, and: look.time))
    }

    private mutating func grow(_ congested: CongestedTurn, _ look: LoopSample) -> StallDecision {
        let length = look.time - congested.start
        guard length.isWorthReporting(after: congested.announced) else { return .none }
        open?.announced = length
        return .grew(.exact(from: congested.start, to: look.time))
    }

    private func start(of turn: MonotonicInstant) -> MonotonicInstant { max(turn, floor ?? turn) }
}

extension LoopSample {
    fileprivate func moved(to next: LoopSample) -> Bool { pulse != next.pulse || callouts != next.callouts }
}
