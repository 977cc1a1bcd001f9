package import RunLoopKit
package import StallReports

/// The rules for all kinds of stalls together: each decides for itself, in the order of ``StallCategory``, and none gets time
/// that a stronger one has. So a loop has one stall at a time at most, and its stalls do not overlap.
package struct KindsPolicy: Sendable {
    package let rule: StallRule
    package private(set) var blocked: StallPolicy
    package private(set) var congested: CongestionPolicy?
    package private(set) var repeated: RepetitionPolicy?
    private var busySince: MonotonicInstant?
    private var lookedAt: MonotonicInstant?

    package init(rule: StallRule) {
        self.rule = rule
        blocked = StallPolicy(rule: rule)
        congested = rule.congestion.map(CongestionPolicy.init(threshold:))
        repeated = rule.repeated.map { RepetitionPolicy(rule: rule, turns: $0.turns) }
    }

    /// Whether a loop at rest need not be looked at before it leaves its rest.
    package var isAtRest: Bool { blocked.state == .resting && congested?.open == nil && repeated?.isOpen != true }

    /// The earliest moment at which what is under way becomes a stall, if it lasts. By the rules for a turn that is a little before it is
    /// one by that for a callout, which began a little later: one look serves for both.
    package var maturity: MonotonicInstant? {
        let all = [blocked.maturity, congested?.maturity, repeated?.maturity(busySince: busySince)]
        // A turn that has lasted long enough is none as long as it stands: what its callout comes to is still ahead.
        let ahead = all.compactMap { $0 }.filter { maturity in lookedAt.map { maturity > $0 } ?? true }
        return LookSchedule.meeting(ahead, within: LookSchedule.slack(rule.tick))
    }

    /// See ``StallPolicy/unparked(at:)``.
    package mutating func unparked(at time: MonotonicInstant) {
        blocked.unparked(at: time)
    }

    /// Takes a look into account. What ends comes before what begins.
    package mutating func decide(_ look: LoopSample) -> [StallFinding] {
        (busySince, lookedAt) = (look.busySince, look.time)
        let still = blocked.decide(look)
        let taken = taken(by: still, at: look.time)
        let full = congested?.decide(look, taken: taken) ?? .none
        let takenBoth = [taken?.upperBound, takenByCongestion(full, at: look.time)].compactMap { $0 }.max()
        let row = repeated?.decide(look, taken: takenBoth) ?? .none
        return Self.findings([(.blocked, still), (.congested, full), (.repeated, row)])
    }

    /// The stall under way, as of the look at `time`. Nil when there is none of that kind.
    package func span(of category: StallCategory, at time: MonotonicInstant) -> StallSpan? {
        switch category {
        case .blocked: blocked.span
        case .congested: congested?.open.map { .exact(from: $0.start, to: time) }
        case .repeated: repeated?.isOpen == true ? repeated?.row.map { .exact(from: $0.start, to: time) } : nil
        }
    }

    /// Why what the latest look ended was no stall, though it lasted as long as one.
    package var dismissal: PauseKind? { blocked.dismissal }

    /// Whether the thread was found in the loop's own wait since the last transition.
    package var wasFoundWaiting: Bool { blocked.wasFoundWaiting }

    /// The stall that the latest look made out is none, so far.
    package mutating func dismiss(_ category: StallCategory, because reason: PauseKind, at time: MonotonicInstant) {
        switch category {
        case .blocked: blocked.dismiss(because: reason)
        case .congested: congested?.resume(at: time)
        case .repeated: repeated?.resume(at: time)
        }
    }

    /// Takes so much out of the standstill under way, a stall or not yet one.
    package mutating func exclude(_ time: Duration, because reason: PauseKind) {
        blocked.exclude(time, because: reason)
    }

    /// Nobody looked until `time`: begins anew, and counts from then.
    package mutating func resume(at time: MonotonicInstant) {
        blocked.resume(at: time)
        congested?.resume(at: time)
        repeated?.resume(at: time)
        busySince = nil
    }

    /// The loop is no longer watched, or has ended: closes a stall that is under way.
    package mutating func abandon(at time: MonotonicInstant) -> [StallFinding] {
        Self.findings([
            (.blocked, blocked.abandon(at: time)),
            (.congested, congested?.abandon(at: time) ?? .none),
            (.repeated, repeated?.abandon() ?? .none),
        ])
    }

    private func taken(by still: StallDecision, at time: MonotonicInstant) -> ClosedRange<MonotonicInstant>? {
        switch still {
        case .began(let span), .grew(let span): return span.earliestStart...max(span.earliestStart, time)
        case .ended(let span), .passed(let span, _):
            return span.earliestStart...max(span.earliestStart, span.latestEnd)
        case .none:
            guard case .stalled(let segment, _) = blocked.state else { return nil }
            return segment.earliestStart...max(segment.earliestStart, time)
        }
    }

    private func takenByCongestion(_ full: StallDecision, at time: MonotonicInstant) -> MonotonicInstant? {
        switch full {
        case .ended(let span), .passed(let span, _): span.latestEnd
        case .began, .grew: time
        case .none: congested?.open == nil ? nil : time
        }
    }

    private static func findings(_ all: [(StallCategory, StallDecision)]) -> [StallFinding] {
        guard all.contains(where: { $0.1 != .none }) else { return [] }
        let findings = all.filter { $0.1 != .none }.map { StallFinding(category: $0, decision: $1) }
        return findings.filter(\.endsStall) + findings.filter { !$0.endsStall }
    }
}

extension KindsPolicy {
    /// Whether long turns stand in a row.
    package var hasRow: Bool { (repeated?.row?.count ?? 0) > 1 }

    /// How long the row's turns have taken together, that under way included; without a row, how long this one has.
    package func busy(at time: MonotonicInstant) -> Duration {
        let present = busySince.map { time - $0 } ?? .zero
        return (repeated?.row?.total ?? .zero) + max(.zero, present)
    }

    /// The row, with the turn under way.
    package func present(at look: LoopSample?) -> RepetitionPolicy.Row? {
        repeated?.row.map { row in row.including(look.flatMap { repeated?.turnUnderWay($0) }) }
    }
}

extension StallFinding {
    /// Whether it is the end of a stall that had been told of.
    package var endsStall: Bool { if case .ended = decision { true } else { false } }

    /// Whether it is of a stall that is over.
    package var isOver: Bool { if case .passed = decision { true } else { endsStall } }
}
