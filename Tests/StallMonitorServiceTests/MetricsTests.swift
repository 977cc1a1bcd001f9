import CoreMetrics
import Foundation
import MetricsTestKit
import RunLoopKit
import StallReports
import TestSupport
import Testing

@testable import StallMonitor
@testable import StallMonitorService

@Suite("Stalls as metrics")
struct MetricsTests {
    private let backend = TestMetrics()

    private func report(_ state: StallState, _ fingerprint: String = "v2:0000000000000001") -> StallReport {
        var report = StallReport.minimal(state)
        report.durationNs = 400_000_000
        report.cause.verdict = .onCPU
        report.fingerprint = Fingerprint(rawValue: fingerprint)!
        return report
    }

    @Test("A stall counts once, at its end, by kind, verdict and type, without dimensions that grow with the faults")
    func counts() throws {
        let metrics = StallMetrics(factory: backend)
        for number in 1...3 {
            let fingerprint = "v2:000000000000000\(number)"
            metrics.note(.began(report(.ongoing, fingerprint)))
            metrics.note(.grew(report(.ongoing, fingerprint)))
            metrics.note(.ended(report(.recovered, fingerprint)))
        }
        let dimensions = [("kind", "blocked"), ("verdict", "on_cpu"), ("type", "run_loop"), ("watched", "main")]
        #expect(backend.counterTotal(label: "stall.count", dimensions: dimensions) == 3)
        #expect(
            try backend.expectTimer("stall.duration", dimensions).values == [400_000_000, 400_000_000, 400_000_000]
        )
        #expect(backend.counters.count == 1 && backend.timers.count == 1)
    }

    @Test("A wait is counted under the word that all output uses, whatever the report calls it")
    func waiting() {
        var waited = report(.recovered)
        waited.cause.verdict = .blocked
        StallMetrics(factory: backend).note(.ended(waited))
        #expect(backend.counters.first?.dimensions.contains { $0 == ("verdict", "waiting") } == true)
    }

    @Test("A label with a quotation mark, a backslash or a line feed leaves Prometheus' format valid")
    func quotation() {
        var stall = report(.recovered)
        stall.watched.label = "a\"\u{301}b\\c\r\nd é"
        StallMetrics(factory: backend).note(.ended(stall))
        let names = backend.counters.flatMap(\.dimensions).filter { $0.0 == "watched" }.map(\.1)
        #expect(names == ["a_\u{301}b_c__d é"])
    }

    @Test("Sixty-four watched items have their own names; further ones are counted as 'other'")
    func names() {
        let metrics = StallMetrics(factory: backend)
        for number in 0..<100 {
            var stall = report(.recovered)
            stall.watched.label = "loop \(number)"
            for _ in 0..<2 { metrics.note(.ended(stall)) }
        }
        let names = Set(backend.counters.flatMap(\.dimensions).filter { $0.0 == "watched" }.map(\.1))
        #expect(names.count == 65 && names.contains("other") && names.contains("loop 63") && !names.contains("loop 64"))
        #expect(backend.counterTotal(label: "stall.count") == 200)
    }

    @Test("A loop's turns are counted in every bucket that is long enough for them, and all in the last")
    func turns() throws {
        let metrics = StallMetrics(factory: backend)
        let directory = "/tmp/stall-metrics-\(ULID.make())"
        defer { try? FileManager.default.removeItem(atPath: directory) }
        let worker = try WorkerThread(name: "turns")
        let monitor = StallMonitor.start(.init(directory: directory), watching: [worker.loop])
        // Two requests may share a turn. The time limit only ends a hang.
        let deadline = ContinuousClock.now + .seconds(60)
        while monitor.figures?.watched.first?.turnLengths.count ?? 0 < 20, ContinuousClock.now < deadline {
            try worker.loop.performAndWait {}
        }
        metrics.update(from: monitor)
        monitor.stop()
        metrics.update(from: monitor)
        worker.stop()
        let count = { (bound: String) in
            backend.counterTotal(label: "stall.turn.bucket", dimensions: [("type", "run_loop"), ("le", bound)])
        }
        let counts = StallMetrics.turnBounds.map { count("\($0)") } + [count("+Inf")]
        #expect(counts == counts.sorted() && counts.last ?? 0 >= 20, "\(counts)")
    }

    @Test("A pool counts once as watched, also if its long jobs are reported")
    func longJobs() {
        let directory = "/tmp/stall-metrics-\(ULID.make())"
        defer { try? FileManager.default.removeItem(atPath: directory) }
        let pool = TaskPoolHeartbeat(label: "workers", width: 2)
        let configuration = StallMonitor.Configuration(directory: directory, reportsJobsLongerThan: .seconds(1))
        let monitor = StallMonitor.start(configuration, watching: .pools([pool]))
        #expect(monitor.watch(of: pool)?.jobs != nil)
        monitor.stop()
        #expect(monitor.figures?.watched.map(\.label) == ["workers"])
    }

    @Test("Stalls that were only counted are included")
    func suppressed() {
        let metrics = StallMetrics(factory: backend)
        metrics.note(.suppressed(.repeated(times: 1)))
        #expect(backend.counterTotal(label: "stall.suppressed") == 1 && backend.counterTotal(label: "stall.count") == 1)
    }

    @Test("A counter ignores a figure's drop until it exceeds its former value; each monitor starts at zero")
    func raises() {
        let metrics = StallMetrics(factory: backend)
        let monitors = (0..<2).map { _ in StallMonitor.start(.init(enabled: false)) }
        for value in [5.0, 4, 5, 6] { metrics.raise("stall.monitor.lost", of: monitors[0], to: value) }
        #expect(backend.counterTotal(label: "stall.monitor.lost") == 6)
        for value in [2.0, 3] { metrics.raise("stall.monitor.lost", of: monitors[1], to: value) }
        metrics.raise("stall.monitor.lost", of: monitors[0], to: 6)
        #expect(backend.counterTotal(label: "stall.monitor.lost") == 9)
    }

    @Test("A backend that the server bootstraps later gets the figures, and the stalls that end after that")
    func lateBackend() async {
        // In a process of its own, because a process bootstraps once.
        await #expect(processExitsWith: .success) {
            let metrics = StallMetrics()
            let monitor = StallMonitor.start(.init(enabled: false))
            let stall = StallEvent.suppressed(.repeated(times: 1))
            metrics.note(stall)
            metrics.update(from: monitor)
            let backend = TestMetrics()
            MetricsSystem.bootstrap(backend)
            metrics.note(stall)
            metrics.update(from: monitor)
            #expect(backend.counterTotal(label: "stall.count") == 1)
            #expect(backend.meters(label: "stall.ongoing.count").flatMap(\.values) == [0])
        }
    }

    @Test("Without a running monitor no stall is shown, and no figure is invented")
    func stopped() {
        let monitor = StallMonitor.start(.init(enabled: false))
        StallMetrics(factory: backend).update(from: monitor)
        #expect(backend.meters(label: "stall.ongoing.count").flatMap(\.values) == [0] && backend.counters.isEmpty)
        #expect(monitor.health.state == .degraded && monitor.health.problems.map(\.code) == [.switchedOff])
    }
}
