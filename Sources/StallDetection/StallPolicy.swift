package import RunLoopKit
package import StallReports

/// Decides whether a loop is stalled, by one policy for each kind of stall. Each decides separately, in the order of
/// ``StallCategory``, and gets none of the time that a stronger one has taken. So a loop has at most one stall at a time, and its
/// stalls do not overlap.
package struct StallPolicy: Sendable {
    package let rule: StallRule
    package private(set) var blocked: StandstillPolicy
    package private(set) var congested: CongestionPolicy?
    package private(set) var repeated: RepetitionPolicy?
    private var busySince: MonotonicInstant?
    private var lookedAt: MonotonicInstant?

    package init(rule: StallRule) {
        self.rule = rule
        blocked = StandstillPolicy(rule: rule)
        congested = rule.congestion.map(CongestionPolicy.init(threshold:))
        repeated = RepetitionPolicy(rule: rule)
    }

    /// Whether the loop is at rest and needs no look before it leaves its rest.
    package var isAtRest: Bool { blocked.state == .resting && congested?.open == nil && repeated?.isOpen != true }

    /// The earliest moment at which the present state becomes a stall, if it continues. The rules for a turn reach it a little
    /// before the rule for a callout, which began a little later; one look serves both.
    package var maturity: MonotonicInstant? {
        let all = [blocked.maturity, congested?.maturity, repeated?.maturity(busySince: busySince)]
        // A turn that is already long enough, but does not move, is left to the rule for callouts, which has not reached its
        // threshold.
        let ahead = all.compactMap { $0 }.filter { maturity in lookedAt.map { maturity > $0 } ?? true }
        return LookSchedule.meeting(ahead, within: LookSchedule.slack(rule.tick))
    }

    /// See ``StandstillPolicy/unparked(at:)``.
    package mutating func unparked(at time: MonotonicInstant) {
        blocked.unparked(at: time)
    }

    /// Evaluates a look. In the result, ends come before beginnings.
    package mutating func decide(_ look: LoopSample) -> [StallFinding] {
        (busySince, lookedAt) = (look.busySince, look.time)
        let standstill = blocked.decide(look)
        let taken = taken(by: standstill, at: look.time)
        let congestion = congested?.decide(look, taken: taken) ?? []
        let takenByBoth = [taken?.upperBound, takenByCongestion(congestion, at: look.time)].compactMap { $0 }.max()
        let repetition = repeated?.decide(look, taken: takenByBoth) ?? .none
        return Self.findings(standstill, congestion, repetition)
    }

    /// The confirmed stall of that kind, as of the look at `time`. Nil if there is none.
    package func span(of category: StallCategory, at time: MonotonicInstant) -> StallSpan? {
        switch category {
        case .blocked: blocked.span
        case .congested: congested?.open?.span(until: time)
        case .repeated: repeated?.span
        }
    }

    /// Why the standstill that ended at the latest look was not a stall although it was long enough.
    package var dismissal: PauseKind? { blocked.dismissal }

    /// Whether the thread was found in the loop's own wait since the last transition.
    package var wasFoundWaiting: Bool { blocked.wasFoundWaiting }

    /// Confirms the candidate of the latest look as a stall.
    package mutating func confirm(_ category: StallCategory) {
        switch category {
        case .blocked: blocked.confirm()
        case .congested: congested?.confirm()
        case .repeated: repeated?.confirm()
        }
    }

    /// Dismisses the candidate of the latest look: its time until now does not count.
    package mutating func dismiss(_ category: StallCategory, because reason: PauseKind, at time: MonotonicInstant) {
        switch category {
        case .blocked: blocked.dismiss(because: reason)
        case .congested: congested?.resume(at: time)
        case .repeated: repeated?.resume(at: time)
        }
    }

    /// Excludes this much time, up to the latest look, from the present standstill and from a congested stall. Apart from that, the rules for
    /// turns count from that look on.
    package mutating func exclude(_ time: Duration, because reason: PauseKind) {
        blocked.exclude(time, because: reason)
        guard let lookedAt else { return }
        congested?.exclude(time, upTo: lookedAt)
        repeated?.ignore(until: lookedAt)
    }

    /// Starts again at `time`, because nothing was looked at before.
    package mutating func resume(at time: MonotonicInstant) {
        blocked.resume(at: time)
        congested?.resume(at: time)
        repeated?.resume(at: time)
        busySince = nil
    }

    /// Closes the loop's stall, if there is one: the loop is no longer watched, or has ended.
    package mutating func abandon(at time: MonotonicInstant) -> [StallFinding] {
        Self.findings(
            blocked.abandon(at: time),
            [congested?.abandon(at: time) ?? .none],
            repeated?.abandon() ?? .none
        )
    }

    private func taken(by standstill: StallDecision, at time: MonotonicInstant) -> ClosedRange<MonotonicInstant>? {
        switch standstill {
        case .candidate(let span), .grew(let span): return span.earliestStart...max(span.earliestStart, time)
        case .ended(let span), .passed(let span, _):
            return span.earliestStart...max(span.earliestStart, span.latestEnd)
        case .none:
            guard case .stalled(let segment, _) = blocked.state else { return nil }
            return segment.earliestStart...max(segment.earliestStart, time)
        }
    }

    private func takenByCongestion(_ congestion: [StallDecision], at time: MonotonicInstant) -> MonotonicInstant? {
        switch congestion.last {
        case .ended(let span), .passed(let span, _): span.latestEnd
        case .candidate, .grew: time
        case .none?, nil: congested?.open == nil ? nil : time
        }
    }

    private static func findings(
        _ standstill: StallDecision,
        _ congestion: [StallDecision],
        _ repetition: StallDecision
    ) -> [StallFinding] {
        // Most looks find nothing.
        guard standstill != .none || !congestion.isEmpty || repetition != .none else { return [] }
        let all =
            [(StallCategory.blocked, standstill)] + congestion.map { (.congested, $0) } + [(.repeated, repetition)]
        let findings = all.filter { $0.1 != .none }.map { StallFinding(category: $0, decision: $1) }
        return findings.filter(\.endsStall) + findings.filter { !$0.endsStall }
    }
}

extension StallPolicy {
    /// Whether there are several long turns in a row.
    package var hasRow: Bool { (repeated?.row?.count ?? 0) > 1 }

    /// How long the turns of the row have taken together, including the present one. Without a row: how long the present turn has
    /// taken.
    package func busy(at time: MonotonicInstant) -> Duration {
        let present = busySince.map { time - $0 } ?? .zero
        return (repeated?.row?.total ?? .zero) + max(.zero, present)
    }

    /// The row, including the present turn.
    package func present(at look: LoopSample?) -> RepetitionPolicy.Row? {
        repeated?.wholeRow.map { row in row.including(look.flatMap { repeated?.turnUnderWay($0) }) }
    }
}
