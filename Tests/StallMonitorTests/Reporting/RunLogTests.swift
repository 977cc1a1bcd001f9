import RunLoopKit
import StallReading
import StallReports
import Testing

@testable import StallMonitor

@Suite("Making the run record")
struct RunLogTests {
    private let directory = TemporaryDirectory(inMemory: true)
    private let parts: EngineParts

    init() {
        var configuration = StallMonitor.Configuration(directory: directory.path)
        configuration.noticeCapacity = 2
        parts = EngineParts(configuration)
    }

    /// The record that a reporter writes after the notices in the mailbox.
    private func record() throws -> RunRecord {
        parts.notices.close()
        Reporter(parts) { _ in }.run()
        #expect(parts.writer.join(by: .now + .seconds(60)))
        return try #require(try ReportReader(path: directory.path).contents().runs.first)
    }

    @Test("A monitor that switched itself off says why")
    func disarmed() throws {
        parts.notices.add(.disarmed(StallMonitorError(.threadNotStarted, errno: 11)))
        let record = try record()
        #expect(record.disarmed?.contains("no thread could be started") == true)
        #expect(record.state == .stopped)
    }

    @Test("It has the dropped notices")
    func dropped() throws {
        for _ in 0..<5 { parts.notices.add(.fault(StallMonitorError(.stopped)), mayBeDropped: true) }
        #expect(try record().writing?.dropped == ["other": 3])
    }

    @Test("It has the pauses, and the candidates that were not stalls")
    func pauses() throws {
        parts.ledger.update { counts in
            counts.pauses.add(.init(kind: .frozen, startedAt: .now(), durationNs: 7))
            counts.dismissed[.frozen] = 2
        }
        let record = try record()
        #expect(record.pauses == 1 && record.pauseLog?.latest.map(\.kind) == [.frozen])
        #expect(record.pauseLog?.totals == ["frozen": .init(count: 1, durationNs: 7)])
        #expect(record.dismissed == ["frozen": 2] && record.disarmed == nil)
    }

    @Test("Of the startup grace it has no more than what is over")
    func startup() throws {
        let start = MonotonicInstant.now
        parts.ledger.update { $0.startup = (since: start, grace: .seconds(3600)) }
        let total = try #require(try record().pauseLog?.totals["startup"])
        #expect(total.count == 1 && total.durationNs <= (MonotonicInstant.now - start).nanoseconds)
        let counts = parts.ledger.snapshot
        #expect(counts.pauses(until: start + .seconds(7200)).totals[.startup]?.durationNs == 3_600_000_000_000)
    }

    @Test("It is written at once for changes in what is watched; while loops come and go all the time, once a second")
    func pace() {
        var (pace, time, writes) = (RecordPace(), MonotonicInstant(nanoseconds: 1_000_000_000_000), 0)
        for _ in 0..<20 {
            pace.noteChange(at: time)
            #expect(pace.mustWrite(at: time))
            pace.wrote(at: time)
        }
        // A minute with a hundred loops a second.
        for _ in 0..<6_000 {
            time = time + .milliseconds(10)
            pace.noteChange(at: time)
            guard pace.mustWrite(at: time) else { continue }
            pace.wrote(at: time)
            writes += 1
        }
        #expect((50...150).contains(writes))
        // None of the changes is left out.
        pace.noteChange(at: time)
        #expect(pace.mustWrite(at: time + .seconds(1)))
    }
}
