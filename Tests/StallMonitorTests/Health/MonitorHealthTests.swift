import RunLoopKit
import StallDetection
import StallReports
import Testing

@testable import StallMonitor

@Suite("The health of a monitor", .timeLimit(.minutes(10)))
struct MonitorHealthTests {
    @Test("A stop of the process during a stall does not make it longer, neither before nor after the next look")
    func stop() throws {
        var test = RoundUnderTest()
        let loop = QuietLoop("main")
        test.watch(loop, rule: StallRule(tick: .milliseconds(2), ticks: 3))
        loop.leaveRest()
        // This time limit only ends a hang.
        let deadline = MonotonicInstant.now + .seconds(120)
        while test.ledger.snapshot.stalls.isEmpty, MonotonicInstant.now < deadline { test.round.look() }
        let before = try #require(test.ledger.snapshot.stalls.first?.lasting)
        // Nothing looks meanwhile, as if the process was stopped.
        _ = stallInSleep(500)
        #expect(test.ledger.snapshot.stalls.map(\.lasting) == [before])
        test.round.look()
        let after = try #require(test.ledger.snapshot.stalls.first?.lasting)
        // A shorter one could turn a probe's answer from a failure into a success, and back.
        #expect(after >= before && test.round.missed >= .milliseconds(400))
        test.round.finish()
        #expect(test.ledger.snapshot.stalls.isEmpty)
    }

    @Test("The longest stall is first")
    func order() {
        var counts = WatchdogLedger.Counts()
        counts.ongoing[1] = (.init(type: .runLoop, label: "short"), .seconds(3))
        counts.ongoing[2] = (.init(type: .runLoop, label: "long"), .seconds(5))
        counts.ongoing[3] = (.init(type: .runLoop, label: "new"), .zero)
        #expect(counts.stalls.map(\.label) == ["long", "short", "new"])
        #expect(counts.stalls.map(\.lasting) == [.seconds(5), .seconds(3), .zero])
    }
}
