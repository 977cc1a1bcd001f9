import RunLoopKit
import StallDetection
import StallReports
import Testing

@testable import StallMonitor

@Suite("A stall as the watchdog saw it")
struct StallObservationTests {
    private func stall(of loop: QuietLoop, _ category: StallCategory) -> StallObservation {
        let now = MonotonicInstant.now
        return StallObservation(
            number: 1,
            reportID: .make(),
            watch: WatchIdentity(number: 1, name: .init(type: .runLoop, label: "quiet"), since: now),
            loop: .loop(loop),
            category: category,
            rule: StallRule(),
            pulse: loop.heartbeat.pulse,
            span: .exact(from: now, to: now),
            detectedAt: now,
            threadID: nil,
            evidence: nil,
            stack: .raced,
            samples: [],
            busy: nil,
            site: nil
        )
    }

    @Test("A blocked loop that has moved has left its stall; a congested one moves all the time")
    func hasMovedOn() {
        let loop = QuietLoop()
        loop.leaveRest()
        let (blocked, congested) = (stall(of: loop, .blocked), stall(of: loop, .congested))
        #expect(!blocked.hasMovedOn && !congested.hasMovedOn)
        loop.rest()
        #expect(blocked.hasMovedOn && !congested.hasMovedOn)
    }
}
