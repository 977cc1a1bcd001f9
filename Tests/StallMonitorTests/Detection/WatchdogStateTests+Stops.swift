import RunLoopKit
import StackCapture
import StallDetection
import StallDiagnosis
import StallReports
import Synchronization
import TestSupport
import Testing

@testable import StallMonitor

/// The process is stopped at some moment of a round.
extension WatchdogStateTests {
    @Test("A stop of the process during a look counts towards no stall, and is a pause")
    func stopInALook() {
        let stops = Atomic(false)
        let loop = QuietLoop(whenAsked: { if stops.exchange(false, ordering: .relaxed) { _ = stallInSleep(3_000) } })
        var test = RoundUnderTest()
        test.watch(loop, rule: StallRule(tick: .milliseconds(50), ticks: 40))
        test.round.look()
        loop.leaveRest()
        test.round.look()
        stops.store(true, ordering: .relaxed)
        // The loop is at a standstill, so its thread is asked for.
        test.round.look()
        let isYetToStop = stops.load(ordering: .relaxed)
        #expect(!isYetToStop)
        test.round.look()
        for case .began(let stall) in test.takeNotices() { Issue.record("a stall of \(stall.span)") }
        #expect((test.ledger.snapshot.pauses.totals[.stopped]?.durationNs ?? 0) >= 2_900_000_000)
        test.round.finish()
    }

    @Test(
        "A stop in a turn that is over when the parked watchdog wakes counts towards no stall",
        arguments: [true, false]
    )
    func stopInAnEndedTurn(isBusyAgain: Bool) {
        var test = RoundUnderTest()
        let loop = QuietLoop()
        test.watch(loop)
        loop.rest()
        test.round.look()
        let wasParked = test.round.isAtRest
        loop.leaveRest()
        // Nothing runs meanwhile, as if the process was stopped.
        _ = stallInSleep(3_000)
        loop.rest()
        if isBusyAgain { loop.leaveRest() }
        _ = test.round.unparked(at: .now, since: nil)
        test.round.look()
        loop.rest()
        test.round.look()
        for case .began(let stall) in test.takeNotices() { Issue.record("a stall of \(stall.span)") }
        #expect(wasParked && (test.ledger.snapshot.pauses.totals[.stopped]?.durationNs ?? 0) >= 2_900_000_000)
        test.round.finish()
    }

    @Test("A stop of the process lengthens a scope of several loops by its length, once")
    func stopInAScope() {
        let scope = ExpectedSlowness(ledger: WatchdogLedger())
        var test = RoundUnderTest()
        for loop in [QuietLoop(), QuietLoop("other")] {
            test.watch(loop, scopes: [scope])
            loop.leaveRest()
        }
        let start = MonotonicInstant.now
        test.round.look()
        let number = scope.open(for: .seconds(10))
        // Nothing runs meanwhile, as if the process was stopped.
        _ = stallInSleep(3_000)
        test.round.look()
        let elapsed = MonotonicInstant.now - start
        let covered = scope.covered(until: start + .seconds(3600)) ?? .zero
        #expect(covered >= .seconds(12.9) && covered <= .seconds(10) + elapsed, "\(covered) \(elapsed)")
        scope.close(number)
        test.round.finish()
    }

    @Test("A stop of the process while a tracer is attached to a stalled loop's thread is left out once, not twice")
    func stopWithTracer() throws {
        let number = Mutex<Int32?>(nil)
        let mayEnd = TickSemaphore()
        // It blocks the signals with which other tests take the stacks of all threads: they would stop it.
        let thread = try MonitorThread(name: "traced") {
            number.withLock { $0 = StackCapturer.callingThread }
            mayEnd.wait()
        }
        waitUntil { number.withLock { $0 } != nil }
        let threadID = try #require(number.withLock { $0 })
        var test = RoundUnderTest()
        let loop = QuietLoop(threadID: threadID)
        let watch = test.watch(loop, rule: quick)
        loop.leaveRest()
        let watched = try #require(test.round.watchList.loop(number: watch))
        let deadline = timeLimit
        while watched.stall == nil, MonotonicInstant.now < deadline { test.round.look() }
        let tracer = try Tracer(thread: "\(threadID)")
        // It is noticed when the stall has grown.
        while watched.outsideDelay == nil, MonotonicInstant.now < deadline { test.round.look() }
        let before = try #require(test.ledger.snapshot.stalls.first?.lasting)
        // Nothing looks meanwhile, as if the process was stopped.
        _ = stallInSleep(1_000)
        test.round.look()
        let after = try #require(test.ledger.snapshot.stalls.first?.lasting)
        #expect(watched.outsideDelay != nil && after >= before, "\(before) \(after)")
        tracer.end()
        test.round.finish()
        mayEnd.signal()
        #expect(thread.join(by: .now + .seconds(60)))
    }

    @Test("A stop that ends when another watch is requested counts towards no stall")
    func stopBeforeAnOrder() {
        var test = RoundUnderTest()
        let loop = QuietLoop()
        test.watch(loop, rule: StallRule(tick: .milliseconds(50), ticks: 40))
        test.round.look()
        loop.leaveRest()
        test.round.look()
        _ = stallInSleep(3_000)
        let missed = test.round.catchUp(since: .now)
        test.round.look()
        test.round.look()
        for case .began(let stall) in test.takeNotices() { Issue.record("a stall of \(stall.span)") }
        #expect(test.round.missed - missed >= .milliseconds(2_850))
        #expect(test.ledger.snapshot.pauses.totals[.stopped]?.count == 1)
        test.round.finish()
    }
}
