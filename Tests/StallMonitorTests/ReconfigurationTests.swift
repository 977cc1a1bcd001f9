import RunLoopKit
import StallDetection
import StallReports
import TestSupport
import Testing

@testable import StallMonitor

@Suite("Another configuration for a running monitor")
struct ReconfigurationTests {
    private let quick = StallRule(tick: .milliseconds(1), ticks: 2, repeated: nil, congested: nil)
    private let patient = StallRule(tick: .milliseconds(2), ticks: 10_000, repeated: nil, congested: nil)

    private func settings(_ rule: StallRule) -> StallMonitor.Configuration { .init(rule: rule) }

    @Test(
        "A loop gets the new rule at once, one with its own rule keeps that; the shortest tick is found again"
    )
    func rules() {
        var test = RoundUnderTest()
        let (general, own) = (QuietLoop("general"), QuietLoop("own"))
        test.watch(general, rule: patient, followsConfiguration: true)
        test.watch(own, rule: patient)
        test.round.adopt(settings(quick))
        #expect(test.round.watchList.loop(number: 1)?.policy.rule == quick)
        #expect(test.round.watchList.loop(number: 2)?.policy.rule == patient)
        #expect(test.round.watchList.tick == quick.tick && test.round.watchList.threshold == quick.threshold)
        test.round.finish()
    }

    @Test("A loop that is added with the rule of the former configuration gets the present one")
    func addedMeanwhile() {
        var test = RoundUnderTest()
        let (general, own) = (QuietLoop("general"), QuietLoop("own"))
        test.round.adopt(settings(quick))
        test.watch(general, rule: patient, followsConfiguration: true)
        test.watch(own, rule: patient)
        #expect(test.round.watchList.loop(number: 1)?.policy.rule == quick)
        #expect(test.round.watchList.loop(number: 2)?.policy.rule == patient)
        #expect(test.round.watchList.tick == quick.tick)
        test.round.finish()
    }

    @Test("A sleeping loop gets the new rule: its next stall is judged by it")
    func asleep() {
        var test = RoundUnderTest()
        let loop = QuietLoop()
        test.watch(loop, rule: patient, followsConfiguration: true)
        loop.rest()
        let deadline = MonotonicInstant.now + .seconds(60)
        while !test.round.isAtRest, .now < deadline { test.round.look() }
        let isAtRest = test.round.isAtRest
        #expect(isAtRest)
        test.round.adopt(settings(quick))
        loop.leaveRest()
        #expect(number(of: { if case .began = $0 { true } else { false } }, in: &test) == 1)
        loop.rest()
        test.round.finish()
    }

    @Test("An ongoing stall is judged to its end by the rule by which it began; the next one by the new rule")
    func underWay() {
        var test = RoundUnderTest()
        let loop = QuietLoop()
        test.watch(loop, rule: quick, followsConfiguration: true)
        loop.leaveRest()
        #expect(number(of: { if case .began = $0 { true } else { false } }, in: &test) == 1)
        test.round.adopt(settings(patient))
        test.round.look()
        #expect(test.round.watchList.loop(number: 1)?.policy.rule == quick)
        loop.rest()
        #expect(number(of: { if case .ended(_, _, _, .recovered) = $0 { true } else { false } }, in: &test) == 1)
        #expect(test.round.watchList.loop(number: 1)?.policy.rule == patient)
        test.round.finish()
    }

    /// Looks until there is such a notice, for at most a minute.
    private func number(of isWanted: (StallNotice) -> Bool, in test: inout RoundUnderTest) -> Int {
        let deadline = MonotonicInstant.now + .seconds(60)
        var found = 0
        while found == 0, .now < deadline {
            test.round.look()
            found = test.takeNotices().count(where: isWanted)
        }
        return found
    }

    @Test("More reports are permitted at once if the new rule says so")
    func repeats() {
        let name = Fingerprint(rawValue: "v2:0000000000000001")!
        var throttle = ReportThrottle(
            rule: RepeatRule(window: .zero, longestWindow: .zero, reportsPerMinute: 1, burst: 1)
        )
        let now = MonotonicInstant.now
        _ = throttle.begin(.make(), name, at: now)
        #expect(throttle.refusal(of: name, lasting: .seconds(1), at: now) == .reportRate)
        throttle.adopt(.everyStall)
        #expect(throttle.refusal(of: name, lasting: .seconds(1), at: now) == nil)
    }
}

@Suite("A monitor that gets another configuration", .serialized, .captureSignal, .timeLimit(.minutes(2)))
struct ReconfiguredMonitorTests {
    private let directory = TemporaryDirectory(inMemory: true)

    @Test("It reports what has changed and what needs a restart; the same configuration again changes nothing")
    func change() throws {
        let plain = StallMonitor.Configuration(directory: directory.path)
        let monitor = StallMonitor.start(plain, watching: [])
        var other = plain
        (other.rule.ticks, other.limits.reports, other.followsLocks) = (9, 7, false)
        (other.directory, other.captureSignal) = ("/elsewhere", 34)
        let change = monitor.reconfigure(other)
        #expect(change.applied == ["ticks", "limits", "followsLocks"])
        #expect(change.needsRestart == ["directory", "captureSignal"])
        // A change that was not applied is still different.
        let again = monitor.reconfigure(other)
        #expect(again.applied.isEmpty && again.needsRestart == change.needsRestart)
        monitor.stop()
        #expect(monitor.reconfigure(plain).isEmpty)
    }

    @Test("One that is switched off needs a restart to be switched on; nothing else of it changes")
    func switchedOff() {
        let monitor = StallMonitor.start(.init(enabled: false))
        var other = StallMonitor.Configuration(enabled: false)
        other.rule.ticks = 9
        #expect(monitor.reconfigure(other).isEmpty)
        other.enabled = true
        #expect(monitor.reconfigure(other) == ConfigurationChange(needsRestart: ["enabled"]))
    }

    @Test("A value out of range is replaced by the nearest one and reported as a fault, until it is corrected")
    func range() {
        let log = EventLog()
        let plain = StallMonitor.Configuration(directory: directory.path)
        let monitor = StallMonitor.start(plain, watching: [], onEvent: log.handler)
        var other = plain
        other.rule.ticks = -5
        #expect(monitor.reconfigure(other).applied == ["ticks"])
        #expect(log.wait { $0.faults.map(\.code).contains(.configurationOutOfRange) })
        other.rule.ticks = 1
        #expect(monitor.health.state == .degraded)
        #expect(monitor.reconfigure(other).isEmpty)
        #expect(log.wait { $0.mended == [.configurationOutOfRange] })
        #expect(monitor.health.state == .healthy)
        monitor.stop()
    }

    @Test("Of several values out of range each has its fault, and each fault its end; the rest is still a problem")
    func ranges() {
        let log = EventLog()
        let plain = StallMonitor.Configuration(directory: directory.path)
        var wrong = plain
        (wrong.rule.ticks, wrong.limits.runs) = (-5, -5)
        let monitor = StallMonitor.start(wrong, watching: [], onEvent: log.handler)
        wrong.rule.ticks = 1
        monitor.reconfigure(wrong)
        // The same again is no news.
        monitor.reconfigure(wrong)
        #expect(log.wait { $0.mended.count == 2 && $0.faults.count == 3 })
        #expect(monitor.health.problems.map(\.code) == [.configurationOutOfRange])
        monitor.reconfigure(plain)
        #expect(log.wait { $0.mended.count == 3 })
        #expect(log.faults.count == 3 && monitor.health.state == .healthy)
        monitor.stop()
    }

    @Test("A value out of range that is corrected before its fault reaches the handler is reported as corrected")
    func rangeCorrectedAtOnce() {
        let (log, entered, hold) = (EventLog(), TickSemaphore(), TickSemaphore())
        let plain = StallMonitor.Configuration(directory: directory.path)
        let monitor = StallMonitor.start(plain, watching: [], onEvent: log.handler)
        // The reporter is busy, so the fault waits.
        monitor.settle {
            entered.signal()
            _ = hold.wait(until: .now + .seconds(60))
        }
        #expect(entered.wait(until: .now + .seconds(60)))
        var wrong = plain
        wrong.rule.ticks = -5
        monitor.reconfigure(wrong)
        monitor.reconfigure(plain)
        hold.signal()
        #expect(log.wait { $0.mended == [.configurationOutOfRange] })
        #expect(monitor.health.state == .healthy)
        monitor.stop()
    }
}
