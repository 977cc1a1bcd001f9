import Dispatch
import RunLoopKit
import StallReading
import StallReports
import TestSupport
import Testing

@testable import StallMonitor

/// One monitor at a time: the capture signal belongs to the process.
@Suite(
    "The kinds of stalls on a real loop",
    .serialized,
    .captureSignal,
    .timeLimit(.minutes(60)),
    .repeatedWhenLate(by: .milliseconds(50))
)
struct KindsTests {
    private let directory = TemporaryDirectory(inMemory: true)
    private let log = EventLog()
    private let worker = StallingLoop()

    private func start() -> StallMonitor {
        StallMonitor.start(
            .init(
                directory: directory.path + "/reports",
                repeats: .everyStall,
                ownCode: OwnCode(modules: ["StallMonitorTests"])
            ),
            watching: [worker.loop],
            onEvent: log.handler
        )
    }

    @Test("A turn full of short blocks is congested: with its length, its callouts, and the main source of them")
    func congested() throws {
        let monitor = start()
        let loop = worker.loop
        // Added from inside a block: all are there when the next one is taken.
        worker.perform { for _ in 0..<80 { loop.perform { _ = stallInSleep(8) } } }
        #expect(log.wait { $0.ended.contains { $0.kind == .congested } })
        monitor.stop()
        worker.end()

        let report = try #require(log.ended.first { $0.kind == .congested })
        #expect(log.ended.count == 1 && log.began.count == 1)
        #expect(report.durationNs >= 640_000_000 && report.durationMinNs == nil && report.state == .recovered)
        #expect(report.culprit?.function?.contains("stallInSleep") == true, "\(report)")
        #expect(report.rule == .init(name: .congested, tickNs: 50_000_000, ticks: 5))
        #expect(report.busy?.turns == 1 && report.busy?.callouts ?? 0 >= 80)
        #expect(report.cause.evidence?.processors != nil)
        #expect([.blocked, .starved].contains(report.cause.verdict))
    }

    @Test("Short stalls in a row are one repeated stall, with its turns and its culprit")
    func repeated() throws {
        let monitor = start()
        let fires = DispatchSemaphore(value: 0)
        let timer = EventTimer(every: .milliseconds(100)) { _ in
            _ = stallInSleep(85)
            fires.signal()
        }
        worker.loop.add(timer)
        for _ in 0..<14 { fires.wait() }
        timer.invalidate()
        #expect(log.wait { $0.ended.contains { $0.kind == .repeated } })
        monitor.stop()
        worker.end()

        let report = try #require(log.ended.first { $0.kind == .repeated })
        #expect(report.culprit?.function?.contains("stallInSleep") == true, "\(report)")
        #expect(report.rule == .init(name: .repeated, tickNs: 50_000_000, ticks: 1, turns: 5))
        let busy = try #require(report.busy)
        #expect(busy.turns >= 5 && busy.longestNs >= 85_000_000 && busy.totalNs <= report.durationNs)
        #expect(report.durationMinNs == nil)
        let turns = try #require(report.watched.turnDurations)
        #expect(turns.maxNs >= 85_000_000 && turns.p50Ns <= turns.p99Ns && turns.p99Ns <= turns.maxNs)
    }

    @Test("The lengths of all turns are in the run record, even if nothing stalls")
    func turnDurations() throws {
        let monitor = start()
        for _ in 0..<50 { worker.perform { _ = stallInSleep(2) } }
        monitor.stop()
        worker.end()

        let run = try #require(try ReportReader(path: directory.path + "/reports").contents().runs.first)
        let turns = try #require(run.watched.first?.turnDurations)
        // One turn can run two blocks, not more: each is waited for.
        #expect(turns.count >= 25 && turns.maxNs >= 2_000_000)
        #expect(turns.p50Ns <= turns.p99Ns && turns.p99Ns <= turns.maxNs)
    }
}
