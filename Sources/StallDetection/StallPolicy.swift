package import RunLoopKit
package import StallReports

/// Decides from looks alone whether one loop is stalled. A function of its state and the look: no clock, no thread.
///
///     at rest ──busy──> suspect ──threshold──> stalled ──transition──> at rest or suspect
///                          └──────transition──────┘
///
/// A *segment* is the time from the loop's last transition or callout to its next. Its start is the loop's own stamp where the turn
/// began after the previous look; else the previous look, or the first transition since, the earliest it can be: the loop had been
/// in the same turn for longer still, so counting from there invents no stall, and misses none that a watcher signalled at every transition
/// would see.
package struct StallPolicy: Sendable {
    package let rule: StallRule
    package private(set) var state: State = .resting
    private var lastLook: MonotonicInstant?
    /// The loop was at rest until then at least, because the watchdog was parked.
    private var restedUntil: MonotonicInstant?
    /// Why the segment that the latest look ended was no stall, though it lasted as long as one.
    package private(set) var dismissal: PauseKind?

    package enum State: Hashable, Sendable {
        case resting
        case candidate(Segment)
        case stalled(Segment, announced: Duration)
    }

    /// A loop that has not moved since a transition between two bounds.
    package struct Segment: Hashable, Sendable {
        package var pulse: LoopHeartbeat.Pulse
        package var callouts: UInt64 = 0
        package var earliestStart: MonotonicInstant
        package var latestStart: MonotonicInstant
        /// What does not count, or a late watchdog cannot vouch for.
        package var unproven = Unproven()

        /// Whether the loop has neither made a transition nor begun a callout.
        package func stands(at look: LoopSample) -> Bool { pulse == look.pulse && callouts == look.callouts }

        package func proven(at time: MonotonicInstant) -> Duration { time - earliestStart - unproven.total }

        package func span(until earliestEnd: MonotonicInstant, _ latestEnd: MonotonicInstant) -> StallSpan {
            StallSpan(
                earliestStart: earliestStart,
                latestStart: latestStart,
                earliestEnd: max(earliestEnd, latestStart),
                latestEnd: latestEnd,
                unproven: unproven.total
            )
        }
    }

    package init(rule: StallRule) {
        self.rule = rule
    }

    /// The stall under way, as of the last look; nil when there is none.
    package var span: StallSpan? {
        guard case .stalled(let segment, _) = state, let lastLook else { return nil }
        return segment.span(until: lastLook, lastLook)
    }

    /// Whether the thread was found in the loop's own wait since the last transition. Of such a loop, which does not say that it waits, time alone
    /// proves nothing: only a stack that shows another place does.
    package var wasFoundWaiting: Bool {
        switch state {
        case .resting: false
        case .candidate(let segment), .stalled(let segment, _): segment.unproven.includes(.inWait)
        }
    }

    /// The moment at which the current segment becomes a stall, if it lasts. Nil while the loop rests or is stalled already.
    package var maturity: MonotonicInstant? {
        guard case .candidate(let segment) = state else { return nil }
        return segment.earliestStart + segment.unproven.total + rule.threshold
    }

    /// The watchdog was parked until about `time`. It wakes after the departure that woke it: the loop's stamp is the better
    /// account of when its rest ended, `time` stands in where there is none.
    package mutating func unparked(at time: MonotonicInstant) {
        restedUntil = time
    }

    /// Takes a look into account.
    package mutating func decide(_ look: LoopSample) -> StallDecision {
        defer { lastLook = look.time }
        dismissal = nil
        switch state {
        case .candidate(let segment) where segment.stands(at: look):
            return watch(excluding(look, in: segment, until: look.time), look)
        case .stalled(let segment, let announced) where segment.stands(at: look):
            return grow(excluding(look, in: segment, until: look.time), announced, look)
        case .resting:
            state = beginning(look)
            return .none
        case .candidate(let segment):
            state = beginning(look)
            return passed(segment, look)
        case .stalled(let segment, _):
            state = beginning(look)
            return .ended(finished(segment, look))
        }
    }

    /// The stall that the latest look made out is none, so far: what has passed does not count.
    package mutating func dismiss(because reason: PauseKind) {
        guard case .stalled(var segment, _) = state, let lastLook else { return }
        segment.unproven.raise(to: lastLook - segment.earliestStart, because: reason)
        state = .candidate(segment)
    }

    /// Takes so much out of what is under way, be it a stall yet or not.
    package mutating func exclude(_ time: Duration, because reason: PauseKind) {
        guard let lastLook else { return }
        func excluding(_ segment: Segment) -> Segment {
            var segment = segment
            let all = lastLook - segment.earliestStart
            segment.unproven.raise(to: min(segment.unproven.total + time, all), because: reason)
            return segment
        }
        switch state {
        case .resting: break
        case .candidate(let segment): state = .candidate(excluding(segment))
        case .stalled(let segment, let announced): state = .stalled(excluding(segment), announced: announced)
        }
    }

    /// Nobody looked until `time`: begins anew, and counts from then.
    package mutating func resume(at time: MonotonicInstant) {
        (state, lastLook, restedUntil) = (.resting, time, nil)
    }

    /// The loop is no longer watched, or has ended: closes a stall that is under way.
    package mutating func abandon(at time: MonotonicInstant) -> StallDecision {
        defer { state = .resting }
        dismissal = nil
        switch state {
        case .resting: break
        case .candidate(let segment):
            let length = segment.span(until: lastLook ?? time, time).longest
            if length >= rule.threshold { dismissal = segment.unproven.dismissal }
        case .stalled(let segment, _): return .ended(segment.span(until: lastLook ?? time, time))
        }
        return .none
    }

    private func beginning(_ look: LoopSample) -> State {
        guard !look.pulse.isAtRest else { return .resting }
        var segment: Segment
        if let stamp = look.turnStart, stamp >= lastLook ?? stamp {
            // After further callouts the present one began later, nobody knows when.
            let isFirst = look.callouts &- look.calloutsAtTurn <= 1
            let first = isFirst ? stamp : max(stamp, look.firstTransition ?? stamp)
            segment = Segment(pulse: look.pulse, earliestStart: first, latestStart: isFirst ? stamp : look.time)
        } else {
            let floor = [lastLook, restedUntil, look.firstTransition].compactMap { $0 }.max() ?? look.time
            segment = Segment(pulse: look.pulse, earliestStart: floor, latestStart: look.time)
        }
        segment.callouts = look.callouts
        // A late watchdog may have stood still together with the loop: count from this look.
        segment = excluding(look, in: segment, until: look.time)
        // So may one that the departure has woken late: of that no more is known than that it was.
        if let restedUntil, restedUntil - segment.earliestStart > rule.tick {
            segment.unproven.raise(to: restedUntil - segment.earliestStart, because: .late)
        }
        return .candidate(segment)
    }

    private mutating func watch(_ segment: Segment, _ look: LoopSample) -> StallDecision {
        let length = segment.proven(at: look.time)
        guard length >= rule.threshold else {
            state = .candidate(segment)
            return .none
        }
        state = .stalled(segment, announced: length)
        return .began(segment.span(until: look.time, look.time))
    }

    private mutating func grow(_ segment: Segment, _ announced: Duration, _ look: LoopSample) -> StallDecision {
        let length = segment.proven(at: look.time)
        guard length.isWorthTelling(after: announced) else {
            state = .stalled(segment, announced: announced)
            return .none
        }
        state = .stalled(segment, announced: length)
        return .grew(segment.span(until: look.time, look.time))
    }

    /// A suspect moved on between two looks: it was a stall all the same when the loop's own stamps say so.
    private mutating func passed(_ segment: Segment, _ look: LoopSample) -> StallDecision {
        let span = finished(segment, look)
        if segment.unproven.includes(.inWait) || span.length < rule.threshold {
            if span.longest >= rule.threshold {
                dismissal = excluding(look, in: segment, until: span.latestEnd).unproven.dismissal
            }
            return .none
        }
        return span.hasExactEnds || stood(for: span, look) ? .passed(span, segment.pulse) : .none
    }

    /// Whether a callout that may have lasted for all of the span did so, as far as can be told: it is known to have stood for most of a
    /// threshold, and by the loop's stamps all of the span lies in one turn.
    private func stood(for span: StallSpan, _ look: LoopSample) -> Bool {
        guard span.shortest * 2 >= rule.threshold else { return false }
        return (look.busySince.map { $0 <= span.earliestStart } ?? false)
            || look.turns.contains { $0.start <= span.earliestStart && $0.end >= span.latestEnd }
    }

    private func finished(_ segment: Segment, _ look: LoopSample) -> StallSpan {
        let floor = lastLook ?? segment.latestStart
        let stamp = look.firstTransition.flatMap { $0 >= floor ? $0 : nil }
        let segment = excluding(look, in: segment, until: stamp ?? look.time)
        return segment.span(until: stamp ?? floor, stamp ?? look.time)
    }

    private func excluding(_ look: LoopSample, in segment: Segment, until end: MonotonicInstant) -> Segment {
        var segment = segment
        let excluded = excluded(look, in: segment, until: end)
        segment.unproven.raise(to: segment.unproven.total + excluded, because: look.excluded?.reason ?? .late)
        return segment
    }

    /// What the look cannot vouch for of the time since the previous one: all of it if the watchdog was late.
    private func excluded(_ look: LoopSample, in segment: Segment, until end: MonotonicInstant) -> Duration {
        let window = { (start: MonotonicInstant?) in
            max(.zero, end - max(start ?? segment.earliestStart, segment.earliestStart))
        }
        // What could not be told at some looks reaches back further than the latest one.
        let told = [lastLook, look.excluded?.since].compactMap { $0 }.min()
        let leftOut = min(look.excluded?.length ?? .zero, window(told))
        return look.late ? max(window(lastLook), leftOut) : leftOut
    }
}

/// How much of a time does not count, and why: there can be several reasons, of which the largest gives its name.
package struct Unproven: Hashable, Sendable {
    package private(set) var total = Duration.zero
    private var shares: [PauseKind: Duration] = [:]

    /// That with the largest share; of equal ones the first by name, as a dictionary has no order. Nil when all of it counts.
    package var reason: PauseKind? {
        shares.max { ($0.value, $1.key.rawValue) < ($1.value, $0.key.rawValue) }?.key
    }

    /// What a segment of which nothing counts is counted as: what its stack has shown before what the clocks say.
    package var dismissal: PauseKind? { includes(.inWait) ? .inWait : reason }

    package func includes(_ reason: PauseKind) -> Bool { shares[reason] != nil }

    /// Raises the total to `total` if it is less; the reason is charged with the increase.
    package mutating func raise(to total: Duration, because reason: PauseKind) {
        guard total > self.total else { return }
        shares[reason, default: .zero] += total - self.total
        self.total = total
    }
}
