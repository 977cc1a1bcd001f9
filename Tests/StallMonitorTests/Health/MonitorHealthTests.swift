import RunLoopKit
import StallReports
import Testing

@testable import StallMonitor

@Suite("The health of a monitor")
struct MonitorHealthTests {
    private let start = MonotonicInstant(nanoseconds: 1_000_000_000_000)

    @Test("A stop of the process since the last look is not in the length of a stall before the next look")
    func stop() {
        var counts = WatchdogLedger.Counts()
        counts.ongoing[1] = (.init(type: .runLoop, label: "main"), start)
        #expect(counts.stalls(at: start + .seconds(3)).map(\.lasting) == [.seconds(3)])
        counts.nextLook = start + .milliseconds(500)
        #expect(counts.stalls(at: start + .milliseconds(400)).map(\.lasting) == [.milliseconds(400)])
        #expect(counts.stalls(at: start + .seconds(3600)).map(\.lasting) == [.milliseconds(1_500)])
    }

    @Test("The longest stall is first; one that begins later than what is known has no length yet")
    func order() {
        var counts = WatchdogLedger.Counts()
        counts.ongoing[1] = (.init(type: .runLoop, label: "short"), start + .seconds(2))
        counts.ongoing[2] = (.init(type: .runLoop, label: "long"), start)
        counts.ongoing[3] = (.init(type: .runLoop, label: "new"), start + .seconds(9))
        let stalls = counts.stalls(at: start + .seconds(5))
        #expect(stalls.map(\.label) == ["long", "short", "new"])
        #expect(stalls.map(\.lasting) == [.seconds(5), .seconds(3), .zero])
    }
}
