import RunLoopKit
import StallDetection
import StallReports
import Testing

@testable import StallMonitor

@Suite("A stall as the watchdog saw it")
struct StallObservationTests {
    @Test("A blocked loop that has moved has left its stall; a congested one moves all the time")
    func hasMovedOn() {
        let loop = QuietLoop()
        loop.leaveRest()
        let (blocked, congested) = (loop.stall(1, .blocked), loop.stall(2, .congested))
        #expect(!blocked.hasMovedOn && !congested.hasMovedOn)
        loop.rest()
        #expect(blocked.hasMovedOn && !congested.hasMovedOn)
    }
}
