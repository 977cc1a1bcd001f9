package import RunLoopKit
package import StallReports

/// Decides from looks alone whether one loop is blocked. A function of its state and the look: no clock, no thread.
///
///     at rest ──busy──> candidate ──threshold, confirmed──> stalled ──transition──> at rest or candidate
///
/// A *segment* is the time from the loop's last transition or callout to its next one. It starts at the loop's own stamp, if the
/// turn began after the previous look. Otherwise it starts at the previous look, or at the first transition since: the earliest
/// possible moment. The loop was in the same turn before, so counting from there invents no stall, and misses none that a watcher
/// called at every transition would see.
package struct StandstillPolicy: Sendable {
    package let rule: StallRule
    package private(set) var state: State = .resting
    private var lastLook: MonotonicInstant?
    /// The loop rested at least until then, because the watchdog was parked.
    private var restedUntil: MonotonicInstant?
    /// Why the segment that ended at the latest look was not a stall although it was long enough.
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
        /// Time that is excluded, or was not observed because the watchdog was late.
        package var excluded = ExcludedTotals()

        /// Whether the loop has neither made a transition nor begun a callout since.
        package func isUnmoved(at look: LoopSample) -> Bool { pulse == look.pulse && callouts == look.callouts }

        package func proven(at time: MonotonicInstant) -> Duration { time - earliestStart - excluded.total }

        package func span(until earliestEnd: MonotonicInstant, _ latestEnd: MonotonicInstant) -> StallSpan {
            StallSpan(
                earliestStart: earliestStart,
                latestStart: latestStart,
                earliestEnd: max(earliestEnd, latestStart),
                latestEnd: latestEnd,
                excluded: excluded.total
            )
        }
    }

    package init(rule: StallRule) {
        self.rule = rule
    }

    /// The confirmed stall, as of the last look. Nil if there is none.
    package var span: StallSpan? {
        guard case .stalled(let segment, _) = state, let lastLook else { return nil }
        return segment.span(until: lastLook, lastLook)
    }

    /// Whether the thread was found in the loop's own wait since the last transition. Such a loop waits without publishing that,
    /// so time alone proves nothing; only a stack that shows another place does.
    package var wasFoundWaiting: Bool {
        switch state {
        case .resting: false
        case .candidate(let segment), .stalled(let segment, _): segment.excluded.includes(.inWait)
        }
    }

    /// The moment at which the present segment becomes a stall, if it continues. Nil while the loop rests, and during a stall.
    package var maturity: MonotonicInstant? {
        guard case .candidate(let segment) = state else { return nil }
        return segment.earliestStart + segment.excluded.total + rule.threshold
    }

    /// Notes that the watchdog was parked until about `time`. It wakes a little after the departure from rest that woke it, so
    /// the loop's stamp shows more exactly when the rest ended; `time` is used if there is no stamp.
    package mutating func unparked(at time: MonotonicInstant) {
        restedUntil = time
    }

    /// Evaluates a look.
    package mutating func decide(_ look: LoopSample) -> StallDecision {
        defer { lastLook = look.time }
        dismissal = nil
        switch state {
        case .candidate(let segment) where segment.isUnmoved(at: look):
            return watch(excluding(look, in: segment, until: look.time), look)
        case .stalled(let segment, let announced) where segment.isUnmoved(at: look):
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

    /// Confirms the candidate of the latest look as a stall.
    package mutating func confirm() {
        guard case .candidate(let segment) = state, let lastLook else { return }
        state = .stalled(segment, announced: segment.proven(at: lastLook))
    }

    /// Dismisses the candidate of the latest look: its time until now does not count.
    package mutating func dismiss(because reason: PauseKind) {
        guard case .candidate(var segment) = state, let lastLook else { return }
        segment.excluded.raise(to: lastLook - segment.earliestStart, because: reason)
        state = .candidate(segment)
    }

    /// Excludes this much time from the present segment, whether it is already a stall or not.
    package mutating func exclude(_ time: Duration, because reason: PauseKind) {
        guard let lastLook else { return }
        func excluding(_ segment: Segment) -> Segment {
            var segment = segment
            let all = lastLook - segment.earliestStart
            segment.excluded.raise(to: min(segment.excluded.total + time, all), because: reason)
            return segment
        }
        switch state {
        case .resting: break
        case .candidate(let segment): state = .candidate(excluding(segment))
        case .stalled(let segment, let announced): state = .stalled(excluding(segment), announced: announced)
        }
    }

    /// Starts again at `time`, because nothing was looked at before.
    package mutating func resume(at time: MonotonicInstant) {
        (state, lastLook, restedUntil) = (.resting, time, nil)
    }

    /// Closes the loop's stall, if there is one: the loop is no longer watched, or has ended.
    package mutating func abandon(at time: MonotonicInstant) -> StallDecision {
        defer { state = .resting }
        dismissal = nil
        switch state {
        case .resting: break
        case .candidate(let segment):
            let length = segment.span(until: lastLook ?? time, time).longest
            if length >= rule.threshold { dismissal = segment.excluded.dismissal }
        case .stalled(let segment, _): return .ended(segment.span(until: lastLook ?? time, time))
        }
        return .none
    }

    private func beginning(_ look: LoopSample) -> State {
        guard !look.pulse.isAtRest else { return .resting }
        var segment: Segment
        if let stamp = look.turnStart, stamp >= lastLook ?? stamp {
            // If there were further callouts since the stamp, the present one began later, at an unknown time.
            let isFirst = look.callouts &- look.calloutsAtTurn <= 1
            let first = isFirst ? stamp : max(stamp, look.firstTransition ?? stamp)
            segment = Segment(pulse: look.pulse, earliestStart: first, latestStart: isFirst ? stamp : look.time)
        } else {
            let floor = [lastLook, restedUntil, look.firstTransition].compactMap { $0 }.max() ?? look.time
            segment = Segment(pulse: look.pulse, earliestStart: floor, latestStart: look.time)
        }
        segment.callouts = look.callouts
        // A late watchdog may have been stopped together with the loop, so counting starts at this look.
        segment = excluding(look, in: segment, until: look.time)
        // The same applies to one that the departure woke late. Only the fact is known, not the reason.
        if let restedUntil, restedUntil - segment.earliestStart > rule.tick {
            segment.excluded.raise(to: restedUntil - segment.earliestStart, because: .late)
        }
        return .candidate(segment)
    }

    private mutating func watch(_ segment: Segment, _ look: LoopSample) -> StallDecision {
        state = .candidate(segment)
        guard segment.proven(at: look.time) >= rule.threshold else { return .none }
        return .candidate(segment.span(until: look.time, look.time))
    }

    private mutating func grow(_ segment: Segment, _ announced: Duration, _ look: LoopSample) -> StallDecision {
        let length = segment.proven(at: look.time)
        guard length.isWorthReporting(after: announced) else {
            state = .stalled(segment, announced: announced)
            return .none
        }
        state = .stalled(segment, announced: length)
        return .grew(segment.span(until: look.time, look.time))
    }

    /// Handles a candidate that moved on between two looks. It was a stall if the loop's own stamps prove that.
    private mutating func passed(_ segment: Segment, _ look: LoopSample) -> StallDecision {
        let span = finished(segment, look)
        if segment.excluded.includes(.inWait) || span.length < rule.threshold {
            if span.longest >= rule.threshold {
                dismissal = excluding(look, in: segment, until: span.latestEnd).excluded.dismissal
            }
            return .none
        }
        return span.hasExactEnds || lasted(for: span, look) ? .passed(span, segment.pulse) : .none
    }

    /// Whether one callout can be assumed to have lasted for the whole span. It must have been seen for at least half of a threshold,
    /// and by the loop's stamps the whole span must lie in one turn.
    private func lasted(for span: StallSpan, _ look: LoopSample) -> Bool {
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
        let excluded = look.excludedTime(from: segment.earliestStart, to: end, since: lastLook)
        segment.excluded.raise(to: segment.excluded.total + excluded, because: look.excluded?.reason ?? .late)
        return segment
    }
}
