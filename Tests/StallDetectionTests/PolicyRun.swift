import RunLoopKit

@testable import StallDetection

/// The policy, driven through a trace as the watchdog does, on the trace's clock: parked until a departure from rest,
/// then a look whenever the schedule says, with the stamps that a loop would have left.
struct PolicyRun {
    struct Report: Hashable {
        var span: StallSpan
        /// Reported only after its end.
        var passed = false
    }

    private(set) var reports: [Report] = []
    private(set) var looks: [MonotonicInstant] = []
    /// Decisions that broke the order began, grew…, ended.
    private(set) var disorder = 0
    private var isOpen = false
    /// How long a parked watchdog takes to wake.
    private static let wakingTime = Duration.milliseconds(4)
    private var policy: StandstillPolicy

    init(_ trace: Trace, rule: StallRule = StallRule()) {
        policy = StandstillPolicy(rule: rule)
        let transitions = trace.transitions
        // The last transition before this look, and before the previous one.
        var position = 0
        while let departure = transitions[position...].firstIndex(where: { !$0.pulse.isAtRest }) {
            let wake = transitions[departure].time + Self.wakingTime
            policy.unparked(at: wake)
            var time = wake + rule.tick
            repeat {
                let previous = position
                while position + 1 < transitions.count, transitions[position + 1].time <= time { position += 1 }
                look(transitions, from: previous, to: position, at: time)
                var schedule = LookSchedule(first: time)
                schedule.planRound(
                    after: time,
                    tick: rule.tick,
                    reach: rule.threshold,
                    candidates: policy.maturity.flatMap { $0 > time ? [.init(maturity: $0, place: 0)] : nil } ?? []
                )
                time = schedule.next
            } while policy.state != .resting
        }
    }

    private mutating func look(
        _ transitions: [Trace.Transition],
        from previous: Int,
        to position: Int,
        at time: MonotonicInstant
    ) {
        looks.append(time)
        let stamped = (0...position).reversed().first { transitions[$0].isStamped }
        let decision = policy.decideAndConfirm(
            LoopSample(
                time: time,
                pulse: transitions[position].pulse,
                turnStart: stamped.map { transitions[$0].time },
                firstTransition: previous < position ? transitions[previous + 1].time : nil
            )
        )
        take(decision)
    }

    private mutating func take(_ decision: StallDecision) {
        switch decision {
        case .none: break
        case .candidate(let span):
            disorder += isOpen ? 1 : 0
            isOpen = true
            reports.append(Report(span: span))
        case .grew: disorder += isOpen ? 0 : 1
        case .ended(let span):
            disorder += isOpen ? 0 : 1
            isOpen = false
            reports[reports.count - 1].span = span
        case .passed(let span, _):
            disorder += isOpen ? 1 : 0
            reports.append(Report(span: span, passed: true))
        }
    }
}

extension StandstillPolicy {
    /// As the watchdog does if nothing dismisses a candidate.
    mutating func decideAndConfirm(_ look: LoopSample) -> StallDecision {
        let decision = decide(look)
        if case .candidate = decision { confirm() }
        return decision
    }
}
