import RunLoopKit
import StallReading
import StallReports
import Testing

@testable import StallMonitor

@Suite("Making the run record")
struct RunLogTests {
    private let directory = TemporaryDirectory(inMemory: true)
    private let notices = Mailbox<StallNotice>(capacity: 2)

    /// The record that a reporter writes after the notices in the mailbox.
    private func record(_ ledger: WatchdogLedger = .init()) throws -> RunRecord {
        notices.close()
        let run = RunIdentity(service: nil)
        let meter = CostMeter()
        let writer = ReportWriter(
            sink: DirectorySink(ReportDirectory(path: directory.path)),
            limits: .init(),
            meter: meter,
            changed: {}
        )
        let thread = try MonitorThread(name: "writer-test") { writer.run() }
        let reporter = Reporter(
            notices: notices,
            composer: ReportComposer(run: run, ownCode: OwnCode()),
            publisher: ReportPublisher(writer: writer, tell: { _ in }),
            log: RunLog(run: run, ledger: ledger, meter: meter, notices: notices),
            costs: StallCosts(meter: meter, ledger: ledger),
            tell: { _ in }
        )
        reporter.run()
        #expect(thread.join(by: .now + .seconds(20)))
        return try #require(try ReportReader(path: directory.path).contents().runs.first)
    }

    @Test("A monitor that switched itself off says why")
    func disarmed() throws {
        notices.add(.disarmed(StallMonitorError(.threadNotStarted, errno: 11)))
        let record = try record()
        #expect(record.disarmed?.contains("no thread could be started") == true)
        #expect(record.state == .stopped)
    }

    @Test("It has the dropped notices")
    func dropped() throws {
        for _ in 0..<5 { notices.add(.fault(StallMonitorError(.stopped)), mayBeDropped: true) }
        #expect(try record().writing?.dropped == ["other": 3])
    }

    @Test("It has the pauses, and the candidates that were not stalls")
    func pauses() throws {
        let ledger = WatchdogLedger()
        ledger.update { counts in
            counts.pauses.add(.init(kind: .frozen, startedAt: .now(), durationNs: 7))
            counts.dismissed[.frozen] = 2
        }
        let record = try record(ledger)
        #expect(record.pauses == 1 && record.pauseLog?.latest.map(\.kind) == [.frozen])
        #expect(record.pauseLog?.totals == ["frozen": .init(count: 1, durationNs: 7)])
        #expect(record.dismissed == ["frozen": 2] && record.disarmed == nil)
    }
}
