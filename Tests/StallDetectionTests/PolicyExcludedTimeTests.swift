import RunLoopKit
import StallReports
import Testing

@testable import StallDetection

@Suite("The decision, with excluded time")
struct PolicyExcludedTimeTests {
    private var policy = StandstillPolicy(rule: StallRule())

    private func at(_ milliseconds: Int) -> MonotonicInstant { Trace.start + .milliseconds(milliseconds) }

    private func look(
        _ milliseconds: Int,
        _ phase: LoopPhase = .beforeSources,
        transition: Int? = nil,
        without excluded: Int = 0,
        because reason: PauseKind = .expectedSlow,
        late: Bool = false
    ) -> LoopSample {
        LoopSample(
            time: at(milliseconds),
            pulse: .init(phase: phase, modeIndex: 0, turn: 1),
            turnStart: at(0),
            firstTransition: transition.map(at),
            late: late,
            excluded: excluded > 0 ? ExcludedTime(length: .milliseconds(excluded), reason: reason) : nil
        )
    }

    @Test("Excluded time delays a stall and is not in its length")
    mutating func putsOff() throws {
        _ = policy.decideAndConfirm(look(0))
        for time in stride(from: 50, through: 500, by: 50) {
            #expect(policy.decideAndConfirm(look(time, without: 50)) == .none)
        }
        #expect(policy.maturity == at(750))
        guard case .candidate(let span) = policy.decideAndConfirm(look(750)) else {
            Issue.record("what is not covered counts")
            return
        }
        #expect(span.length == .milliseconds(250) && span.longest == .milliseconds(750))
        guard case .ended(let last) = policy.decideAndConfirm(look(1_000, .waiting, transition: 900)) else {
            Issue.record("not ended")
            return
        }
        #expect(last.length == .milliseconds(400) && last.excluded == .milliseconds(500))
    }

    @Test("Missed time that some looks could not read is counted as soon as it can be read")
    mutating func toldLate() {
        for time in stride(from: 0, through: 200, by: 50) { _ = policy.decideAndConfirm(look(time)) }
        var late = look(250, without: 250)
        late.excluded?.since = at(0)
        #expect(policy.decideAndConfirm(late) == .none)
        #expect(policy.maturity == at(500))
    }

    @Test("A stop in the last moments of a stall is not in its length")
    mutating func stopAtTheEnd() {
        for time in stride(from: 0, through: 300, by: 50) { _ = policy.decideAndConfirm(look(time)) }
        let last = look(5_300, .waiting, transition: 5_290, without: 4_950, because: .stopped, late: true)
        guard case .ended(let span) = policy.decideAndConfirm(last) else {
            Issue.record("not ended")
            return
        }
        #expect(span.length == .milliseconds(300) && span.longest == .milliseconds(5_290))
    }

    @Test("A candidate dismissed only for excluded time is counted once, with its reason")
    mutating func dismissal() {
        _ = policy.decideAndConfirm(look(0))
        for time in stride(from: 50, through: 500, by: 50) { _ = policy.decideAndConfirm(look(time, without: 50)) }
        #expect(policy.dismissal == nil)
        #expect(policy.decideAndConfirm(look(550, .waiting, transition: 540)) == .none)
        #expect(policy.dismissal == .expectedSlow)
        _ = policy.decideAndConfirm(look(600, .waiting))
        #expect(policy.dismissal == nil)
    }

    @Test("Short work with a little excluded time is not counted as dismissed")
    mutating func noDismissal() {
        _ = policy.decideAndConfirm(look(0))
        _ = policy.decideAndConfirm(look(50, without: 50))
        #expect(policy.decideAndConfirm(look(100, .waiting, transition: 90)) == .none)
        #expect(policy.dismissal == nil)
    }

    @Test("A stall between two looks is reported with the part that counts")
    mutating func passed() {
        _ = policy.decideAndConfirm(look(0))
        _ = policy.decideAndConfirm(look(50, without: 50))
        guard case .passed(let span, _) = policy.decideAndConfirm(look(350, .waiting, transition: 340)) else {
            Issue.record("290 ms count")
            return
        }
        #expect(span.length == .milliseconds(290))
    }

    @Test("A dismissed stall becomes one again after another threshold")
    mutating func dismissed() {
        for time in stride(from: 0, through: 250, by: 50) { _ = policy.decide(look(time)) }
        policy.dismiss(because: .traced)
        #expect(policy.maturity == at(500))
        #expect(policy.decide(look(300)) == .none)
        guard case .candidate(let span) = policy.decide(look(500)) else {
            Issue.record("250 ms more are a stall")
            return
        }
        #expect(span.length == .milliseconds(250))
    }

    @Test("A loop found in its own wait is no stall when it moves on unseen, however long after")
    mutating func waitThatPassed() {
        for time in stride(from: 0, through: 250, by: 50) { _ = policy.decide(look(time)) }
        #expect(!policy.wasFoundWaiting)
        policy.dismiss(because: .inWait)
        #expect(policy.wasFoundWaiting)
        for time in stride(from: 300, through: 450, by: 50) { #expect(policy.decide(look(time)) == .none) }
        #expect(policy.decide(look(1_550, .waiting, transition: 1_540, without: 1_000, because: .stopped)) == .none)
        #expect(policy.dismissal == .inWait && !policy.wasFoundWaiting)
    }

    @Test("A dismissal is named after the reason with most of the time, not after the last one")
    mutating func largestReason() {
        _ = policy.decideAndConfirm(look(0))
        for time in stride(from: 50, through: 400, by: 50) {
            #expect(policy.decideAndConfirm(look(time, without: 50, because: .traced)) == .none)
        }
        #expect(policy.decideAndConfirm(look(500, without: 100, because: .stopped, late: true)) == .none)
        #expect(policy.decideAndConfirm(look(550, .waiting, transition: 540)) == .none)
        #expect(policy.dismissal == .traced)
    }

    @Test("Time in which a candidate was delayed postpones its stall, by no more than has passed")
    mutating func excluded() {
        for time in stride(from: 0, through: 150, by: 50) { _ = policy.decideAndConfirm(look(time)) }
        policy.exclude(.milliseconds(100), because: .frozen)
        #expect(policy.maturity == at(350))
        policy.exclude(.seconds(10), because: .frozen)
        #expect(policy.maturity == at(400))
        #expect(policy.decideAndConfirm(look(200, .waiting, transition: 190)) == .none)
        #expect(policy.dismissal == nil)
    }

    @Test("After a pause of the monitoring, counting begins again")
    mutating func resumed() {
        for time in stride(from: 0, through: 200, by: 50) { _ = policy.decideAndConfirm(look(time)) }
        _ = policy.abandon(at: at(200))
        policy.resume(at: at(1_000))
        #expect(policy.decideAndConfirm(look(1_050)) == .none)
        #expect(policy.maturity == at(1_250))
    }

    @Test("A late wake-up excludes its own window; what was proven before it stays")
    mutating func provenStays() {
        for time in stride(from: 0, through: 200, by: 50) { #expect(policy.decideAndConfirm(look(time)) == .none) }
        #expect(policy.decideAndConfirm(look(400, without: 150, because: .late, late: true)) == .none)
        guard case .candidate(let span) = policy.decideAndConfirm(look(450)) else {
            Issue.record("200 ms before and 50 ms after are a stall")
            return
        }
        #expect(span.length == .milliseconds(250))
    }
}
