import Dispatch
import Glibc
import RunLoopKit
import StallReports
import TestSupport
import Testing

@testable import StallMonitor

@Suite("A loop that stalls again and again", .serialized, .captureSignal, .timeLimit(.minutes(10)))
struct RepeatedStallTests {
    private let directory = TemporaryDirectory()
    private let log = EventLog()
    private let worker = StallingLoop()

    private func start(_ repeats: RepeatRule) -> StallMonitor {
        let configuration = StallMonitor.Configuration(
            directory: directory.path + "/reports",
            repeats: repeats,
            ownCode: OwnCode(modules: ["StallMonitorTests"])
        )
        return StallMonitor.start(configuration, watching: [worker.loop], onEvent: log.handler)
    }

    private func contents() throws -> ReportReader.Contents {
        try ReportReader(path: directory.path + "/reports").contents()
    }

    @Test("It is reported once, then counted; the counts stand in the run record, by fault and by reason")
    func counted() throws {
        let monitor = start(RepeatRule(window: .seconds(3600)))
        for length in [1_200, 400, 400, 400, 400] { worker.perform { _ = stallInSleep(length) } }
        #expect(log.wait { $0.suppressed.count == 4 })
        monitor.stop()
        worker.end()

        let contents = try contents()
        let (report, run) = (try #require(contents.reports.first), try #require(contents.runs.first))
        #expect(contents.reports.count == 1 && log.began.count == 1 && log.ended.count == 1)
        #expect(run.stalls == ["blocked": 5] && run.suppressed == 4 && run.suppressedBy == ["repeat": 4])
        let repeats = try #require(contents.repeats[report.id])
        #expect(run.repeated == [.init(fingerprint: report.fingerprint, repeats: repeats)])
        #expect(repeats.count == 4 && repeats.totalNs >= 1_600_000_000 && repeats.longestNs >= 400_000_000)
        #expect(repeats.firstAt > report.startedAt && repeats.lastAt <= run.updatedAt)
        #expect(log.suppressed.map(\.repeats.count) == [1, 2, 3, 4])
        #expect(log.suppressed.allSatisfy { $0.fingerprint == report.fingerprint && $0.reason == .repeated })
    }

    @Test("One that becomes worse while it lasts gets its report, with those before it")
    func worse() throws {
        let monitor = start(RepeatRule(window: .seconds(3600)))
        for length in [1_200, 400, 2_600] { worker.perform { _ = stallInSleep(length) } }
        #expect(log.wait { $0.ended.count == 2 })
        monitor.stop()
        worker.end()

        let reports = try contents().reports
        #expect(reports.count == 2 && reports.map(\.state) == [.recovered, .recovered])
        #expect(reports[1].durationNs >= 2_600_000_000 && reports[1].severity == .error)
        #expect(reports[1].suppressed == 1 && reports[1].repeats?.count == 1)
        #expect(reports[1].repeats?.report == reports[0].id && reports[0].fingerprint == reports[1].fingerprint)
        #expect(reports[1].culprit?.function?.contains("stallInSleep") == true)
    }

    @Test("Other faults are reported as ever; above the rate they are counted, and the run record says why")
    func limited() throws {
        let monitor = start(RepeatRule(window: .seconds(3600), reportsPerMinute: 1, burst: 2))
        worker.perform { _ = stallInSleep(600) }
        worker.perform { _ = stallInRead(600) }
        worker.perform { _ = stallByComputing(600) }
        #expect(log.wait { $0.suppressed.count + $0.ended.count == 3 })
        monitor.stop()
        worker.end()

        let contents = try contents()
        #expect(contents.reports.count == 2)
        #expect(Set(contents.reports.map(\.fingerprint)).count == 2)
        #expect(contents.runs.first?.suppressedBy == ["report_rate": 1])
        #expect(contents.runs.first?.repeated?.first?.repeats.report == nil)
    }

    @Test("A process that is killed has told of what it counted: a second later at the most, without another stall")
    func flushed() throws {
        let monitor = start(RepeatRule(window: .seconds(3600)))
        for length in [1_200, 400, 400, 400] { worker.perform { _ = stallInSleep(length) } }
        #expect(log.wait { $0.suppressed.count == 3 })
        // The loop rests, and nothing else happens. What a kill would leave is what is on the disk.
        let deadline = MonotonicInstant.now + .seconds(20)
        while try contents().runs.first?.suppressed != 3, MonotonicInstant.now < deadline { usleep(20_000) }
        #expect(try contents().runs.first?.repeated?.first?.repeats.count == 3)
        #expect(try contents().runs.first?.state == .running)
        monitor.stop()
        worker.end()
    }
}
