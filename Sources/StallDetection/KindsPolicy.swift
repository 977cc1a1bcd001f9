package import RunLoopKit
package import StallReports

/// What the watchdog read of one loop at one look.
package struct LoopSample: Hashable, Sendable {
    package var time: MonotonicInstant
    package var pulse: LoopHeartbeat.Pulse
    /// When the loop's current turn began or last left its wait, by the loop's own stamp. Nil without a stamp.
    package var turnStart: MonotonicInstant?
    /// When the first transition after the previous look happened. Nil if there was none, or no stamp was requested.
    package var firstTransition: MonotonicInstant?
    /// Whether the watchdog woke more than a tick late, so that the time since the previous look proves nothing.
    package var late = false
    /// The part of the time since the previous look that counts towards no stall.
    package var excluded: ExcludedTime?
    /// The number of callouts that the loop has begun so far. A new one shows that the loop moves even if its phase is the same.
    package var callouts: UInt64 = 0
    /// How many of them had begun at `turnStart`.
    package var calloutsAtTurn: UInt64 = 0
    /// Since when the loop has been busy: the end of its last rest, or of the last turn that polled for new events. Nil at rest,
    /// and without a stamp.
    package var busySince: MonotonicInstant?
    /// The long turns that ended since the previous look, oldest first.
    package var turns: [BusyTurn] = []

    /// Whether part of the time since the previous look is excluded.
    package var hasExcludedTime: Bool { late || excluded != nil }

    package init(
        time: MonotonicInstant,
        pulse: LoopHeartbeat.Pulse,
        turnStart: MonotonicInstant? = nil,
        firstTransition: MonotonicInstant? = nil,
        late: Bool = false,
        excluded: ExcludedTime? = nil,
        callouts: UInt64 = 0,
        calloutsAtTurn: UInt64 = 0,
        busySince: MonotonicInstant? = nil,
        turns: [BusyTurn] = []
    ) {
        (self.time, self.pulse, self.turnStart) = (time, pulse, turnStart)
        (self.firstTransition, self.late, self.excluded) = (firstTransition, late, excluded)
        (self.callouts, self.calloutsAtTurn, self.busySince) = (callouts, calloutsAtTurn, busySince)
        self.turns = turns
    }
}

/// Time that counts towards no stall.
package struct ExcludedTime: Hashable, Sendable {
    package var length: Duration
    package var reason: PauseKind
    /// When the excluded time began, if that was before the previous look: at some looks it could not be read.
    package var since: MonotonicInstant?

    package init(length: Duration, reason: PauseKind, since: MonotonicInstant? = nil) {
        (self.length, self.reason, self.since) = (length, reason, since)
    }
}

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

    package init(category: StallCategory, decision: StallDecision) {
        self.category = category
        self.decision = decision
    }
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

    package var isExact: Bool { hasExactEnds && excluded == .zero }
    package var hasExactEnds: Bool { earliestStart == latestStart && earliestEnd == latestEnd }
    package var longest: Duration { latestEnd - earliestStart }
    package var shortest: Duration { max(.zero, earliestEnd - latestStart - excluded) }
    /// The length to report: the longest one that is proven.
    package var length: Duration { longest - excluded }

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

/// The policies for all kinds of stalls. Each decides separately, in the order of ``StallCategory``, and gets none of the time
/// that a stronger one has taken. So a loop has at most one stall at a time, and its stalls do not overlap.
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

    /// See ``StallPolicy/unparked(at:)``.
    package mutating func unparked(at time: MonotonicInstant) {
        blocked.unparked(at: time)
    }

    /// Evaluates a look. In the result, ends come before beginnings.
    package mutating func decide(_ look: LoopSample) -> [StallFinding] {
        (busySince, lookedAt) = (look.busySince, look.time)
        let still = blocked.decide(look)
        let taken = taken(by: still, at: look.time)
        let full = congested?.decide(look, taken: taken) ?? .none
        let takenBoth = [taken?.upperBound, takenByCongestion(full, at: look.time)].compactMap { $0 }.max()
        let row = repeated?.decide(look, taken: takenBoth) ?? .none
        return Self.findings([(.blocked, still), (.congested, full), (.repeated, row)])
    }

    /// The confirmed stall of that kind, as of the look at `time`. Nil if there is none.
    package func span(of category: StallCategory, at time: MonotonicInstant) -> StallSpan? {
        switch category {
        case .blocked: blocked.span
        case .congested: congested?.open.map { .exact(from: $0.start, to: time) }
        case .repeated: repeated?.isOpen == true ? repeated?.row.map { .exact(from: $0.start, to: time) } : nil
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

    /// Excludes this much time, up to the latest look, from the present standstill, whether it is already a stall or not. The rules for turns
    /// count from that look on.
    package mutating func exclude(_ time: Duration, because reason: PauseKind) {
        blocked.exclude(time, because: reason)
        guard let lookedAt else { return }
        congested?.ignore(until: lookedAt)
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
        Self.findings([
            (.blocked, blocked.abandon(at: time)),
            (.congested, congested?.abandon(at: time) ?? .none),
            (.repeated, repeated?.abandon() ?? .none),
        ])
    }

    private func taken(by still: StallDecision, at time: MonotonicInstant) -> ClosedRange<MonotonicInstant>? {
        switch still {
        case .candidate(let span), .grew(let span): return span.earliestStart...max(span.earliestStart, time)
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
        case .candidate, .grew: time
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
        repeated?.row.map { row in row.including(look.flatMap { repeated?.turnUnderWay($0) }) }
    }
}

extension StallFinding {
    /// Whether it ends a confirmed stall.
    package var endsStall: Bool { if case .ended = decision { true } else { false } }

    /// Whether its stall is over.
    package var isOver: Bool { if case .passed = decision { true } else { endsStall } }
}
