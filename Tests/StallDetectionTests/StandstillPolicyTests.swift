import RunLoopKit
import Testing

@testable import StallDetection

@Suite("The decision, look by look")
struct StandstillPolicyTests {
    private var policy = StandstillPolicy(rule: StallRule())
    private let start = Trace.start

    private func at(_ milliseconds: Int) -> MonotonicInstant { start + .milliseconds(milliseconds) }

    private func look(
        _ milliseconds: Int,
        _ phase: LoopPhase,
        turn: UInt64 = 1,
        stamp: Int? = nil,
        transition: Int? = nil,
        late: Bool = false
    ) -> LoopSample {
        LoopSample(
            time: at(milliseconds),
            pulse: .init(phase: phase, modeIndex: 0, turn: turn),
            turnStart: stamp.map(at),
            firstTransition: transition.map(at),
            late: late
        )
    }

    @Test("A resting loop is never stalled, however long it rests")
    mutating func restIsNoStall() {
        for time in stride(from: 0, through: 10_000, by: 50) {
            #expect(policy.decideAndConfirm(look(time, time % 100 == 0 ? .waiting : .idle)) == .none)
        }
        #expect(policy.maturity == nil)
    }

    @Test("Five ticks without a transition while busy begin a stall; the stamp is its start")
    mutating func fiveTicks() {
        policy.unparked(at: at(0))
        for time in [50, 100, 150, 200] {
            #expect(policy.decideAndConfirm(look(time, .beforeSources, stamp: 0)) == .none)
        }
        guard case .candidate(let span) = policy.decideAndConfirm(look(250, .beforeSources, stamp: 0)) else {
            Issue.record("no stall at the fifth tick")
            return
        }
        #expect(span.earliestStart == at(0) && span.latestStart == at(0))
        #expect(span.longest == .milliseconds(250))
    }

    @Test(
        "Of several callouts since the stamp the last began later, at an unknown time",
        arguments: [1, 2, 3] as [UInt64]
    )
    mutating func laterCallout(_ count: UInt64) {
        _ = policy.decideAndConfirm(look(0, .waiting))
        var next = look(50, .beforeSources, stamp: 10, transition: 12)
        (next.callouts, next.calloutsAtTurn) = (4 + count, 4)
        _ = policy.decideAndConfirm(next)
        guard case .candidate(let segment) = policy.state else {
            Issue.record("no candidate")
            return
        }
        #expect(segment.earliestStart == at(count == 1 ? 10 : 12) && segment.latestStart == at(count == 1 ? 10 : 50))
    }

    @Test("Excluded time is in none of a span's lengths except the longest")
    func excludedOfSpan() {
        let span = StallSpan(
            earliestStart: at(0),
            latestStart: at(10),
            earliestEnd: at(500),
            latestEnd: at(520),
            excluded: .milliseconds(100)
        )
        #expect(
            span.shortest == .milliseconds(390) && span.length == .milliseconds(420)
                && span.longest == .milliseconds(520)
        )
    }

    @Test("A departure is the exact start, even if the watchdog woke later; without a stamp the wake-up is the start")
    mutating func departureBeforeWaking() {
        _ = policy.decideAndConfirm(look(0, .waiting))
        policy.unparked(at: at(1_004))
        _ = policy.decideAndConfirm(look(1_054, .afterWaiting, stamp: 1_000))
        #expect(policy.maturity == at(1_250))

        var late = StandstillPolicy(rule: StallRule())
        _ = late.decideAndConfirm(look(0, .waiting))
        late.unparked(at: at(61_000))
        #expect(late.decideAndConfirm(look(61_050, .afterWaiting, stamp: 1_000)) == .none)
        #expect(late.maturity == at(61_250))

        var unstamped = StandstillPolicy(rule: StallRule())
        _ = unstamped.decideAndConfirm(look(0, .waiting))
        unstamped.unparked(at: at(1_004))
        _ = unstamped.decideAndConfirm(look(1_054, .afterWaiting))
        #expect(unstamped.maturity == at(1_254))
    }

    @Test("A transition resets the count", arguments: [LoopPhase.beforeTimers, .afterWaiting, .beforeWaiting])
    mutating func transitionResets(_ phase: LoopPhase) {
        for (turn, time) in stride(from: 0, through: 2_000, by: 200).enumerated() {
            #expect(policy.decideAndConfirm(look(time, phase, turn: UInt64(turn), stamp: time)) == .none)
        }
    }

    @Test("Every busy phase counts; the wait does not", arguments: LoopPhase.allCases)
    mutating func everyPhaseButTheWait(_ phase: LoopPhase) {
        var began = false
        for time in stride(from: 0, through: 300, by: 50) {
            if case .candidate = policy.decideAndConfirm(look(time, phase, stamp: 0)) { began = true }
        }
        #expect(began == !phase.isAtRest)
    }

    @Test("A stall is announced once, grows at doubled lengths and ends once, exactly where the loop stamped")
    mutating func oneStartOneEnd() {
        var decisions: [StallDecision] = []
        for time in stride(from: 0, through: 1_100, by: 50) {
            decisions.append(policy.decideAndConfirm(look(time, .beforeSources, stamp: 0)))
        }
        decisions.append(policy.decideAndConfirm(look(1_150, .waiting, turn: 1, stamp: 0, transition: 1_123)))
        decisions.append(policy.decideAndConfirm(look(1_200, .waiting, turn: 1, stamp: 0)))
        let told = decisions.filter { $0 != .none }
        #expect(told.count == 4)
        guard case .candidate = told[0], case .grew(let first) = told[1], case .grew(let second) = told[2],
            case .ended(let span) = told[3]
        else {
            Issue.record("\(told)")
            return
        }
        #expect(first.longest == .milliseconds(500) && second.longest == .milliseconds(1_000))
        #expect(span.isExact && span.longest == .milliseconds(1_123))
    }

    @Test("A candidate is no stall until confirmed: the next look finds it again, and it has no end")
    mutating func unconfirmed() {
        for time in stride(from: 0, through: 200, by: 50) {
            #expect(policy.decide(look(time, .beforeSources, stamp: 0)) == .none)
        }
        for time in [250, 300, 350] {
            guard case .candidate(let span) = policy.decide(look(time, .beforeSources, stamp: 0)) else {
                Issue.record("no candidate after \(time) ms")
                return
            }
            #expect(span.longest == .milliseconds(time) && policy.span == nil)
        }
        policy.confirm()
        #expect(policy.span?.longest == .milliseconds(350))
        #expect(policy.decide(look(400, .beforeSources, stamp: 0)) == .none, "it has not grown by enough")
    }

    @Test("An end without a stamp lies between two looks")
    mutating func unstampedEnd() {
        for time in stride(from: 0, through: 400, by: 50) {
            _ = policy.decideAndConfirm(look(time, .beforeSources, stamp: 0))
        }
        guard case .ended(let span) = policy.decideAndConfirm(look(450, .waiting)) else {
            Issue.record("not ended")
            return
        }
        #expect(!span.isExact)
        #expect(span.shortest == .milliseconds(400) && span.longest == .milliseconds(450))
    }

    @Test("A late look proves nothing: the window it closes is not counted")
    mutating func lateLook() {
        #expect(policy.decideAndConfirm(look(0, .beforeSources, stamp: 0)) == .none)
        #expect(policy.decideAndConfirm(look(2_000, .beforeSources, stamp: 0, late: true)) == .none)
        #expect(policy.decideAndConfirm(look(2_050, .beforeSources, stamp: 0)) == .none)
        #expect(policy.maturity == at(2_250))
        guard case .candidate(let span) = policy.decideAndConfirm(look(2_250, .beforeSources, stamp: 0)) else {
            Issue.record("five proven ticks are a stall")
            return
        }
        #expect(!span.isExact && span.length == .milliseconds(250) && span.longest == .milliseconds(2_250))
    }

    @Test("A loop first seen busy by a late look is counted from that look")
    mutating func lateFirstSight() {
        _ = policy.decideAndConfirm(look(0, .waiting))
        #expect(policy.decideAndConfirm(look(5_000, .beforeSources, stamp: 10, late: true)) == .none)
        #expect(policy.maturity == at(5_250))
    }

    @Test("A stall entirely between two looks is reported if the loop's stamps prove it")
    mutating func passedStall() {
        policy.unparked(at: at(0))
        _ = policy.decideAndConfirm(look(50, .beforeSources, turn: 1, stamp: 0))
        guard
            case .passed(let span, let pulse) = policy.decideAndConfirm(
                look(290, .waiting, turn: 1, stamp: 0, transition: 260)
            )
        else {
            Issue.record("not told")
            return
        }
        #expect(span.longest == .milliseconds(260) && pulse.phase == .beforeSources)
    }

    @Test("The end of a watch closes its stall")
    mutating func abandoned() {
        #expect(policy.abandon(at: at(0)) == .none)
        for time in stride(from: 0, through: 250, by: 50) {
            _ = policy.decideAndConfirm(look(time, .beforeSources, stamp: 0))
        }
        guard case .ended = policy.abandon(at: at(260)) else {
            Issue.record("not ended")
            return
        }
        #expect(policy.abandon(at: at(270)) == .none)
    }

    @Test("Tick and ticks are configurable")
    func rules() {
        #expect(StallRule(tick: .milliseconds(20), ticks: 3).threshold == .milliseconds(60))
    }
}
