import RunLoopKit
import StallDetection
import StallReports
import Testing

@testable import StallMonitor

@Suite("Time covered by scopes")
struct CoveredTimeTests {
    private var time = CoveredTime()

    private func at(_ milliseconds: Int) -> MonotonicInstant {
        MonotonicInstant(nanoseconds: 1_000_000_000_000) + .milliseconds(milliseconds)
    }

    @Test("A scope covers from its opening to its closing, or to its limit")
    mutating func oneScope() {
        #expect(time.total(until: at(0)) == .zero)
        let scope = time.open(at: at(0), until: at(100))
        #expect(time.total(until: at(40)) == .milliseconds(40))
        #expect(time.total(until: at(400)) == .milliseconds(100))
        time.close(scope, at: at(60))
        #expect(time.total(until: at(400)) == .milliseconds(60))
        let late = time.open(at: at(500), until: at(510))
        time.close(late, at: at(900))
        #expect(time.total(until: at(900)) == .milliseconds(70))
    }

    @Test("Nested and overlapping scopes cover their union once")
    mutating func overlap() {
        let outer = time.open(at: at(0), until: at(1_000))
        let inner = time.open(at: at(100), until: at(200))
        time.close(inner, at: at(150))
        let other = time.open(at: at(250), until: at(5_000))
        time.close(outer, at: at(300))
        #expect(time.total(until: at(400)) == .milliseconds(400))
        time.close(other, at: at(450))
        #expect(time.total(until: at(2_000)) == .milliseconds(450))
    }

    @Test("An inner scope with a longer limit continues after the outer one's end")
    mutating func longerInside() {
        let outer = time.open(at: at(0), until: at(100))
        let inner = time.open(at: at(50), until: at(300))
        #expect(time.total(until: at(1_000)) == .milliseconds(300))
        time.close(inner, at: at(1_000))
        time.close(outer, at: at(1_000))
        #expect(time.total(until: at(2_000)) == .milliseconds(300))
    }

    @Test("A stop of the process lengthens the scopes that were open then, and no others")
    mutating func stop() {
        let during = time.open(at: at(0), until: at(5_000))
        time.extend(by: .seconds(10), until: at(11_000))
        #expect(time.total(until: at(14_000)) == .seconds(14) && time.total(until: at(20_000)) == .seconds(15))
        time.close(during, at: at(20_000))
        let after = time.open(at: at(23_000), until: at(23_100))
        time.extend(by: .seconds(3), until: at(23_050))
        #expect(time.total(until: at(30_000)) == .milliseconds(15_100))
        time.close(after, at: at(30_000))
        _ = time.open(at: at(40_000), until: at(40_100))
        time.extend(by: .seconds(3), until: at(44_000))
        #expect(time.total(until: at(50_000)) == .milliseconds(15_200))
    }

    @Test("How much was covered before a moment is known exactly until a scope is opened or closed, then as the least")
    mutating func least() {
        let scope = time.open(at: at(100), until: at(1_000))
        #expect(time.least(before: at(50)) <= .zero)
        #expect(time.least(before: at(300)) == .milliseconds(200))
        time.close(scope, at: at(400))
        #expect(time.least(before: at(350)) == .milliseconds(250))
        #expect(time.least(before: at(400)) == .milliseconds(300) && time.least(before: at(900)) == .milliseconds(300))
    }

    @Test("What was covered before a loop left its rest does not count against the time since then")
    func coveredBefore() {
        let scope = ExpectedSlowness(ledger: WatchdogLedger())
        var meter = ExcludedTimeMeter([scope])
        let number = scope.open(for: .seconds(3600))
        let now = MonotonicInstant.now
        meter.ignoreCovered(before: now + .seconds(10))
        #expect(meter.take(at: now + .seconds(10), missed: .zero, because: .late) == nil)
        meter.ignoreCovered(before: now + .seconds(5))
        let excluded = meter.take(at: now + .seconds(60), missed: .zero, because: .late)
        #expect(excluded == ExcludedTime(length: .seconds(50), reason: .expectedSlow))
        scope.close(number)
    }

    @Test("Each look takes the missed time since the previous one, from all sources")
    func meter() {
        let scope = ExpectedSlowness(ledger: WatchdogLedger())
        var meter = ExcludedTimeMeter([scope])
        #expect(meter.take(at: .now, missed: .zero, because: .late) == nil)
        #expect(
            meter.take(at: .now, missed: .seconds(2), because: .stopped)
                == ExcludedTime(length: .seconds(2), reason: .stopped)
        )
        #expect(meter.lastMissed == .seconds(2))
        #expect(meter.take(at: .now, missed: .seconds(2), because: .stopped) == nil)
        #expect(meter.lastMissed == .zero)
        let number = scope.open(for: .seconds(3600))
        let later = MonotonicInstant.now + .seconds(60)
        let excluded = meter.take(at: later, missed: .seconds(2), because: .stopped)
        #expect(excluded?.reason == .expectedSlow && (excluded?.length ?? .zero) >= .seconds(59))
        scope.close(number)
    }

    @Test("Scopes opened and closed by many threads at once are all counted")
    func manyThreads() async {
        let ledger = WatchdogLedger()
        let scope = ExpectedSlowness(ledger: ledger)
        await withTaskGroup(of: Void.self) { group in
            for _ in 0..<8 {
                group.addTask {
                    for _ in 0..<500 { scope.close(scope.open(for: .seconds(1))) }
                }
            }
        }
        let total = ledger.snapshot.pauses.totals[.expectedSlow]
        #expect(total?.count == 4_000)
        #expect(scope.covered(until: .now) == total.map { .nanoseconds($0.durationNs) })
        // Scopes are no pauses and are only summed.
        #expect(ledger.snapshot.pauses.count == 0 && ledger.snapshot.pauses.latest.isEmpty)
    }
}

@Suite("The pauses of a run")
struct PauseTallyTests {
    @Test("The latest pauses are kept individually, all as sums")
    func bounded() {
        var tally = PauseTally()
        for number in 1...100 {
            tally.add(.init(kind: .stopped, startedAt: .init(seconds: Int64(number)), durationNs: 10))
        }
        tally.add(.init(kind: .late, startedAt: .init(seconds: 101), durationNs: 5))
        #expect(tally.log.latest.count == RunRecord.PauseLog.recordLimit)
        #expect(tally.log.latest.last?.kind == .late && tally.log.latest.first?.startedAt.seconds == 38)
        #expect(tally.log.totals["stopped"] == .init(count: 100, durationNs: 1_000))
        // The watchdog's own lateness is not a pause.
        #expect(tally.count == 100)
    }
}
