import RunLoopKit

@testable import StallMonitor

/// The policy driven over a trace as the watchdog drives it, on the trace's clock: parked until a departure from rest, then a
/// look whenever the schedule says, with the stamps that a loop would have left.
struct PolicyRun {
    struct Report: Hashable {
        var span: StallSpan
        /// Told only when it was over.
        var passed = false
    }

    private(set) var reports: [Report] = []
    private(set) var looks: [MonotonicInstant] = []
    /// Decisions that broke the order began, grew…, ended.
    private(set) var disorder = 0
    private var isOpen = false
    private var policy: StallPolicy

    init(_ trace: Trace, rule: StallRule = StallRule()) {
        policy = StallPolicy(rule: rule)
        var position = 0
        var previousLook: MonotonicInstant?
        while let departure = trace.transitions[position...].firstIndex(where: { !$0.pulse.isAtRest }) {
            let wake = trace.transitions[departure].time
            policy.unparked(at: wake)
            var time = wake + rule.tick
            repeat {
                position = trace.transitions.lastIndex { $0.time <= time }!
                look(trace, position, at: time, since: previousLook ?? wake)
                previousLook = time
                time = LookSchedule.next(after: time, tick: rule.tick, maturity: policy.maturity)
            } while policy.state != .resting
        }
    }

    private mutating func look(_ trace: Trace, _ position: Int, at time: MonotonicInstant, since: MonotonicInstant) {
        looks.append(time)
        let past = trace.transitions[...position]
        let decision = policy.decide(
            Look(
                time: time,
                pulse: past.last!.pulse,
                turnStart: past.last(where: \.isStamped)?.time,
                firstTransition: past.first { $0.time > since }?.time
            )
        )
        take(decision)
    }

    private mutating func take(_ decision: StallDecision) {
        switch decision {
        case .none: break
        case .began(let span):
            disorder += isOpen ? 1 : 0
            isOpen = true
            reports.append(Report(span: span))
        case .grew: disorder += isOpen ? 0 : 1
        case .ended(let span):
            disorder += isOpen ? 0 : 1
            isOpen = false
            reports[reports.count - 1].span = span
        case .passed(let span):
            disorder += isOpen ? 1 : 0
            reports.append(Report(span: span, passed: true))
        }
    }
}
