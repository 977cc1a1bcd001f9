import RunLoopKit

/// Decides from looks alone whether one loop is stalled. A function of its state and the look: no clock, no thread.
///
///     at rest ──busy──> suspect ──threshold──> stalled ──transition──> at rest or suspect
///                          └──────transition──────┘
///
/// A *segment* is the time from the loop's last transition to its next. Its start is the loop's own stamp where the turn
/// began after the previous look; else the previous look, the earliest it can be: the loop had been in the same turn for
/// longer still, so counting from there invents no stall, and misses none that a watcher signalled at every transition
/// would see.
struct StallPolicy: Sendable {
    let rule: StallRule
    private(set) var state: State = .resting
    private var lastLook: MonotonicInstant?
    /// The loop was at rest until then at least, because the watchdog was parked.
    private var restedUntil: MonotonicInstant?

    enum State: Hashable, Sendable {
        case resting
        case suspect(Segment)
        case stalled(Segment, announced: Duration)
    }

    /// A loop that has not moved since a transition between two bounds.
    struct Segment: Hashable, Sendable {
        var pulse: LoopHeartbeat.Pulse
        var earliestStart: MonotonicInstant
        var latestStart: MonotonicInstant
        /// What a late watchdog cannot vouch for.
        var unproven: Duration = .zero

        func proven(at time: MonotonicInstant) -> Duration { time - earliestStart - unproven }

        func span(until earliestEnd: MonotonicInstant, _ latestEnd: MonotonicInstant) -> StallSpan {
            StallSpan(
                earliestStart: earliestStart,
                latestStart: latestStart,
                earliestEnd: max(earliestEnd, latestStart),
                latestEnd: latestEnd,
                unproven: unproven
            )
        }
    }

    init(rule: StallRule) {
        self.rule = rule
    }

    /// The stall under way, as of the last look; nil when there is none.
    var span: StallSpan? {
        guard case .stalled(let segment, _) = state, let lastLook else { return nil }
        return segment.span(until: lastLook, lastLook)
    }

    /// The moment at which the current segment becomes a stall, if it lasts. Nil while the loop rests or is stalled already.
    var maturity: MonotonicInstant? {
        guard case .suspect(let segment) = state else { return nil }
        return segment.earliestStart + segment.unproven + rule.threshold
    }

    /// The watchdog was parked until about `time`. It wakes after the departure that woke it: the loop's stamp is the better
    /// account of when its rest ended, `time` stands in where there is none.
    mutating func unparked(at time: MonotonicInstant) {
        restedUntil = time
    }

    /// Takes a look into account.
    mutating func decide(_ look: Look) -> StallDecision {
        defer { lastLook = look.time }
        switch state {
        case .suspect(let segment) where segment.pulse == look.pulse:
            return watch(discounting(look, in: segment), look)
        case .stalled(let segment, let announced) where segment.pulse == look.pulse:
            return grow(discounting(look, in: segment), announced, look)
        case .resting:
            state = beginning(look)
            return .none
        case .suspect(let segment):
            state = beginning(look)
            return passed(segment, look)
        case .stalled(let segment, _):
            state = beginning(look)
            return .ended(finished(segment, look))
        }
    }

    /// The loop is no longer watched, or has ended: closes a stall that is under way.
    mutating func abandon(at time: MonotonicInstant) -> StallDecision {
        defer { state = .resting }
        guard case .stalled(let segment, _) = state else { return .none }
        return .ended(segment.span(until: lastLook ?? time, time))
    }

    private func beginning(_ look: Look) -> State {
        guard !look.pulse.isAtRest else { return .resting }
        var segment: Segment
        if let stamp = look.turnStart, stamp >= lastLook ?? stamp {
            segment = Segment(pulse: look.pulse, earliestStart: stamp, latestStart: stamp)
            // The departure woke the watchdog, but late: both may have stood still together.
            if let restedUntil, restedUntil - stamp > rule.tick { segment.unproven = restedUntil - stamp }
        } else {
            let floor = [lastLook, restedUntil].compactMap { $0 }.max() ?? look.time
            segment = Segment(pulse: look.pulse, earliestStart: floor, latestStart: look.time)
        }
        // A late watchdog may have stood still together with the loop: count from this look.
        if look.late { segment.unproven = look.time - segment.earliestStart }
        return .suspect(segment)
    }

    private mutating func watch(_ segment: Segment, _ look: Look) -> StallDecision {
        let length = segment.proven(at: look.time)
        guard length >= rule.threshold else {
            state = .suspect(segment)
            return .none
        }
        state = .stalled(segment, announced: length)
        return .began(segment.span(until: look.time, look.time))
    }

    private mutating func grow(_ segment: Segment, _ announced: Duration, _ look: Look) -> StallDecision {
        let length = segment.proven(at: look.time)
        // Twice the last announcement, at most 10 s on: a short stall is told of often, an endless one does not chatter.
        guard length >= min(announced * 2, announced + .seconds(10)) else {
            state = .stalled(segment, announced: announced)
            return .none
        }
        state = .stalled(segment, announced: length)
        return .grew(segment.span(until: look.time, look.time))
    }

    /// A suspect moved on between two looks: it was a stall all the same when the loop's own stamps say so.
    private func passed(_ segment: Segment, _ look: Look) -> StallDecision {
        let span = finished(segment, look)
        guard span.isExact, !look.late, span.longest >= rule.threshold else { return .none }
        return .passed(span, segment.pulse)
    }

    private func finished(_ segment: Segment, _ look: Look) -> StallSpan {
        let floor = lastLook ?? segment.latestStart
        if let end = look.firstTransition, end >= floor { return segment.span(until: end, end) }
        return segment.span(until: floor, look.time)
    }

    private func discounting(_ look: Look, in segment: Segment) -> Segment {
        guard look.late, let lastLook else { return segment }
        var segment = segment
        segment.unproven += look.time - lastLook
        return segment
    }
}
