import Dispatch
import Glibc
import RunLoopKit
import StallDetection
import StallReading
import StallReports
import TestSupport
import Testing

@testable import StallMonitor

@Suite(
    "A loop that stalls again and again",
    .serialized,
    .captureSignal,
    .timeLimit(.minutes(60)),
    .repeatedWhenLate(by: .milliseconds(50))
)
struct RepeatedStallTests {
    private let directory = TemporaryDirectory(inMemory: true)
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

    /// Stalls the loop until the events satisfy the condition. On a busy machine not every stall can be proven.
    private func stall(_ milliseconds: Int, until condition: (EventLog) -> Bool) {
        for _ in 0..<40 where !condition(log) { worker.perform { _ = stallInSleep(milliseconds) } }
    }

    @Test("It is reported once, then counted; the run record has the counts, by fault and by reason")
    func counted() throws {
        let monitor = start(RepeatRule(window: .seconds(3600)))
        stall(3_000) { !$0.ended.isEmpty }
        stall(400) { $0.suppressed.count >= 4 }
        monitor.stop()
        worker.end()

        let contents = try contents()
        let (report, run) = (try #require(contents.reports.first), try #require(contents.runs.first))
        let count = log.suppressed.count
        #expect(contents.reports.count == 1 && log.began.count == 1 && log.ended.count == 1)
        #expect(run.stalls == ["blocked": Int64(count) + 1])
        #expect(run.suppressed == Int64(count) && run.suppressedBy == ["repeat": Int64(count)])
        let repeats = try #require(contents.repeats[report.id])
        let entry = RunRecord.Repeated(
            fingerprint: report.fingerprint,
            repeats: repeats,
            label: report.watched.label,
            type: .runLoop,
            kind: .blocked
        )
        #expect(run.repeated == [entry])
        #expect(repeats.count == count && repeats.totalNs == log.suppressed.map(\.durationNs).reduce(0, +))
        #expect(repeats.longestNs == log.suppressed.map(\.durationNs).max())
        #expect(repeats.firstAt > report.startedAt && repeats.lastAt <= run.updatedAt)
        #expect(log.suppressed.map(\.repeats.count) == Array(1...count))
        #expect(log.suppressed.allSatisfy { $0.fingerprint == report.fingerprint && $0.reason == .repeated })
    }

    @Test("A stall that becomes more severe is reported after all, with the ones counted before")
    func worse() throws {
        let monitor = start(RepeatRule(window: .seconds(3600)))
        stall(800) { !$0.ended.isEmpty }
        stall(400) { !$0.suppressed.isEmpty }
        stall(6_500) { $0.ended.count == 2 }
        monitor.stop()
        worker.end()

        let reports = try contents().reports
        try #require(reports.count >= 2)
        #expect(reports.allSatisfy { $0.state == .recovered })
        #expect(reports[1].durationNs > reports[0].durationNs && reports[1].severity != .warning)
        #expect(reports[1].suppressed >= 1 && reports[1].repeats?.count == reports[1].suppressed)
        #expect(reports[1].repeats?.report == reports[0].id && reports[0].fingerprint == reports[1].fingerprint)
        #expect(reports[1].culprit?.function?.contains("stallInSleep") == true)
    }

    @Test("Other faults are still reported; above the rate they are counted, and the run record has the reason")
    func limited() throws {
        let monitor = start(RepeatRule(window: .seconds(3600), reportsPerMinute: 1, burst: 2))
        stall(600) { !$0.ended.isEmpty }
        for _ in 0..<40 where log.ended.count < 2 { worker.perform { _ = stallInRead(600) } }
        // The second fault may have stalled once more before its report came: that stall is counted, too, as a repetition.
        for _ in 0..<40 where !log.suppressed.contains(where: { $0.reason == .reportRate }) {
            worker.perform { _ = stallAndRepeat(600) }
        }
        monitor.stop()
        worker.end()

        let contents = try contents()
        #expect(contents.reports.count == 2 && Set(contents.reports.map(\.fingerprint)).count == 2)
        #expect(contents.runs.first?.suppressedBy?["report_rate"] ?? 0 >= 1)
        #expect(contents.runs.first?.repeated?.contains { $0.repeats.report == nil } == true)
    }

    @Test("A killed process has written its counts: at most a second later, without another stall")
    func flushed() throws {
        let monitor = start(RepeatRule(window: .seconds(3600)))
        stall(3_000) { !$0.ended.isEmpty }
        stall(400) { $0.suppressed.count >= 3 }
        // The loop is at rest, and nothing else happens. A kill would leave what is on the disk.
        let deadline = MonotonicInstant.now + .seconds(60)
        while try countedStalls() < 3, MonotonicInstant.now < deadline { usleep(20_000) }
        #expect(try countedStalls() >= 3)
        #expect(try contents().runs.first?.state == .running)
        monitor.stop()
        worker.end()
    }

    private func countedStalls() throws -> Int { try contents().runs.first?.repeated?.first?.repeats.count ?? 0 }
}

@inline(never)
private func stallAndRepeat(_ milliseconds: Int) -> Int {
    Int(poll(nil, 0, Int32(milliseconds))) &+ milliseconds
}

@Suite("A stall that is only counted")
struct CountedStallTests {
    @Test("It begins and ends when a report of it would say, whenever it is counted")
    func times() {
        let now = MonotonicInstant.now
        let span = StallSpan.exact(from: now + .seconds(-1), to: now)
        let stall = QuietLoop().stall(span: span)
        let fault = Fingerprint.make(kind: .blocked, frames: [], modules: [])
        let counted = HeldStall(observation: stall, fingerprint: fault, reason: .repeated, span: span).repeats
        #expect(counted.firstAt == stall.clock.time(of: span.earliestStart))
        #expect(counted.lastAt == stall.clock.time(of: span.latestEnd))
    }
}
