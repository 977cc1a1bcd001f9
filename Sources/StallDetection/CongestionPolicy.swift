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
        /// The time since `start` that does not count.
        package var excluded = Duration.zero
        /// The look after which the loop was last seen to move, and what did not count until that look. The callout that runs now began
        /// later, so what was excluded since may belong to it: see ``cut(at:)``.
        package var movedSince: MonotonicInstant
        package var excludedBefore = Duration.zero

        package func span(until end: MonotonicInstant) -> StallSpan { span(between: end, and: end) }

        func span(between earliestEnd: MonotonicInstant, and latestEnd: MonotonicInstant) -> StallSpan {
            var span = StallSpan(from: start, between: earliestEnd, and: latestEnd)
            span.excluded = excluded
            return span
        }

        /// The same turn without the time until `end` that the look excludes.
        func leavingOut(
            _ look: LoopSample,
            until end: MonotonicInstant,
            since lastLook: MonotonicInstant?
        ) -> CongestedTurn {
            var turn = self
            turn.excluded += look.excludedTime(from: start, to: end, since: lastLook)
            turn.excluded = min(turn.excluded, end - start)
            return turn
        }

        /// The same turn without its last callout, which began at `end` and has lasted for so long that it is a blocked stall itself.
        ///
        ///     movedSince ──────── end ──────── now
        ///     some of this may be excluded     of which at most movedSince to end concerns this turn
        func cut(at end: MonotonicInstant) -> CongestedTurn {
            let excludedSince = excluded - excludedBefore
            var turn = self
            turn.excluded = excludedBefore + min(excludedSince, max(.zero, end - movedSince))
            return turn
        }
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
    /// - Returns: Several decisions if several long turns have ended since the latest look, in their order.
    package mutating func decide(_ look: LoopSample, taken: ClosedRange<MonotonicInstant>?) -> [StallDecision] {
        defer { lastLook = look }
        candidate = nil
        ignore(until: look.hasExcludedTime ? look.time : taken?.upperBound)
        var decisions: [StallDecision] = []
        if let congested = open {
            decisions.append(follow(congested, look, taken))
            guard open == nil else { return decisions }
        }
        decisions += look.turns.compactMap { passed($0, lastLook?.pulse ?? look.pulse) }
        if decisions.isEmpty, let candidate = begin(look) { decisions.append(candidate) }
        return decisions
    }

    /// Decides about a turn that has ended since the latest look. Nil if it was not congested.
    private mutating func passed(_ turn: BusyTurn, _ pulse: LoopHeartbeat.Pulse) -> StallDecision? {
        let start = start(of: turn.start)
        guard turn.end - start >= threshold else { return nil }
        ignore(until: turn.end)
        return .passed(.exact(from: start, to: turn.end), pulse)
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

    /// Excludes this much time, up to the look at `latest`, from the stall; a stall that begins later counts from that look on.
    package mutating func exclude(_ time: Duration, upTo latest: MonotonicInstant) {
        ignore(until: latest)
        guard let turn = open else { return }
        open?.excluded = max(turn.excluded, min(turn.excluded + time, latest - turn.start))
    }

    package mutating func abandon(at time: MonotonicInstant) -> StallDecision {
        guard let open = open.take() else { return .none }
        return .ended(open.span(between: lastLook?.time ?? time, and: time))
    }

    private mutating func begin(_ look: LoopSample) -> StallDecision? {
        guard let since = look.busySince, let lastLook, lastLook.busySince == since, lastLook.moved(to: look) else {
            return nil
        }
        let start = start(of: since)
        guard look.time - start >= threshold else { return nil }
        candidate = CongestedTurn(
            turn: since,
            start: start,
            announced: look.time - start,
            movedSince: lastLook.time
        )
        return .candidate(.exact(from: start, to: look.time))
    }

    private mutating func follow(
        _ congested: CongestedTurn,
        _ look: LoopSample,
        _ taken: ClosedRange<MonotonicInstant>?
    ) -> StallDecision {
        if let taken {
            let time = max(taken.lowerBound, congested.start)
            return end(congested.cut(at: time), look, at: time)
        }
        if let turn = look.turns.first(where: { $0.start == congested.turn }) {
            ignore(until: turn.end)
            return end(congested, look, at: turn.end)
        }
        var present = congested.leavingOut(look, until: look.time, since: lastLook?.time)
        if let lastLook, lastLook.moved(to: look) {
            (present.movedSince, present.excludedBefore) = (lastLook.time, congested.excluded)
        }
        guard look.busySince != congested.turn else { return grow(present, look) }
        open = nil
        ignore(until: look.time)
        return .ended(present.span(between: lastLook?.time ?? look.time, and: look.time))
    }

    private mutating func end(_ congested: CongestedTurn, _ look: LoopSample, at end: MonotonicInstant) -> StallDecision
    {
        open = nil
        return .ended(congested.leavingOut(look, until: end, since: lastLook?.time).span(until: end))
    }

    private mutating func grow(_ congested: CongestedTurn, _ look: LoopSample) -> StallDecision {
        open = congested
        let span = congested.span(until: look.time)
        guard span.length.isWorthReporting(after: congested.announced) else { return .none }
        open?.announced = span.length
        return .grew(span)
    }

    private func start(of turn: MonotonicInstant) -> MonotonicInstant { max(turn, floor ?? turn) }
}

extension LoopSample {
    fileprivate func moved(to next: LoopSample) -> Bool { pulse != next.pulse || callouts != next.callouts }
}
