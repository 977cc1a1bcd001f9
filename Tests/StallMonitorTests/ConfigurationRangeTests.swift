import StallReports
import Testing

@testable import StallMonitor

@Suite("Configuration ranges")
struct ConfigurationRangeTests {
    @Test("The defaults are within the ranges and stay unchanged")
    func defaults() {
        let (configuration, errors) = StallMonitor.Configuration().broughtIntoRange()
        #expect(errors.isEmpty)
        #expect(configuration.rule == StallRule() && configuration.repeats == RepeatRule())
        #expect(configuration.limits == .init() && configuration.memory == .init() && configuration.cost == .init())
        #expect(StallMonitor.Configuration(repeats: .everyStall).rangeErrors.isEmpty)
    }

    @Test("The longest window is raised to a window that was set alone")
    func windowAlone() {
        var configuration = StallMonitor.Configuration()
        configuration.repeats.window = .seconds(7200)
        let (near, errors) = configuration.broughtIntoRange()
        #expect(near.repeats.longestWindow == .seconds(7200) && errors.isEmpty)
    }

    @Test("A server that is to be ended after no time is never ended", arguments: [0, -1, Int64.min])
    func endedAfterNoTime(_ seconds: Int64) {
        var configuration = StallMonitor.Configuration()
        configuration.abortsAfter = .seconds(seconds)
        #expect(configuration.broughtIntoRange().configuration.abortsAfter == nil)
        #expect(configuration.rangeErrors.map(\.key) == ["abortsAfterSeconds"])
        configuration.abortsAfter = .milliseconds(1)
        #expect(configuration.broughtIntoRange().configuration.abortsAfter == .seconds(1))
    }

    @Test("A value out of range is named with its range and replaced by the nearer end")
    func outside() {
        let absurd = StallMonitor.Configuration(
            limits: .init(reports: 0, runs: .min, bytes: .max),
            memory: .init(reports: -1, bytes: 0),
            cost: .init(processorShare: .nan, processorBurst: .zero, heldShare: 2, heldBurst: .seconds(Int64.max)),
            rule: .init(
                tick: .seconds(Int64.min),
                ticks: .max,
                repeated: .init(turns: 1, ticks: 0),
                congested: .init(ticks: 0)
            ),
            repeats: .init(
                window: .seconds(-1),
                longestWindow: .seconds(Int64.max),
                reportsPerMinute: 0,
                burst: .max,
                bytesPerMinute: .min
            ),
            captureSignal: 0,
            startupGrace: .seconds(-5)
        )
        let (near, errors) = absurd.broughtIntoRange()
        #expect(near.limits == .init(reports: 1, runs: 1, bytes: 1 << 40))
        #expect(near.memory == .init(reports: 1, bytes: 1))
        #expect(near.cost.processorShare == 1e-6 && near.cost.heldShare == 1)
        #expect(near.cost.processorBurst == .microseconds(1) && near.cost.heldBurst == .seconds(600))
        #expect(
            near.rule
                == .init(
                    tick: .milliseconds(1),
                    ticks: 10_000,
                    repeated: .init(turns: 2, ticks: 1),
                    congested: .init(ticks: 1)
                )
        )
        #expect(near.repeats.window == .zero && near.repeats.longestWindow == .seconds(86_400))
        #expect(near.repeats.reportsPerMinute == 1 && near.repeats.burst == 100_000 && near.repeats.bytesPerMinute == 1)
        #expect(near.captureSignal == StallMonitor.Configuration.defaultCaptureSignal && near.startupGrace == .zero)
        #expect(errors.count == 21 && Set(errors.map(\.key)).count == 21, "\(errors)")
        #expect(errors.contains { $0.description == "ticks is \(Int.max); set it to 1 to 10000" })
        #expect(near.rangeErrors.isEmpty)
    }
}
