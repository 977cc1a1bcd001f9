import RunLoopKit
import StallReports
import Testing

@testable import StallMonitor

@Suite("What is told of writing")
struct ReportShelfTests {
    private let log = EventLog()
    /// Nobody runs it: whatever it is given waits.
    private let writer = ReportWriter(
        directory: ReportDirectory(path: "/nowhere"),
        limits: .init(),
        meter: CostMeter(),
        changed: {}
    )

    @Test("When stop can wait no longer, each stall left is counted once, and told as lost")
    func noTimeLeft() {
        var shelf = ReportShelf(writer: writer, bell: FaultBell(log.handler))
        let now = MonotonicInstant.now
        let span = StallSpan(earliestStart: now, latestStart: now, earliestEnd: now, latestEnd: now)
        let notices = [StallNotice.ended(7, span, nil), .ended(8, span, nil), .ended(7, span, nil), .checkpoint]
        let before = notices.map { shelf.hasTime(for: $0) }
        writer.giveUp(at: now)
        let after = notices.map { shelf.hasTime(for: $0) }
        #expect(before == [true, true, true, true] && after == [false, false, false, false])
        shelf.settle()
        #expect(shelf.lostWrites == 2 && log.faults.map(\.code) == [.reportsLost])
        #expect(log.faults.first?.message.contains("2 reports are lost") == true)
    }

    @Test("A report that waits is not lost before the end, and is afterwards")
    func waiting() {
        var shelf = ReportShelf(writer: writer, bell: FaultBell(log.handler))
        let name = ReportFileName(.stall, .make())
        writer.order { $0.put(PendingDocument(name: name, bytes: [1], isFinal: true)) }
        #expect(shelf.lostWrites == 0 && shelf.record.waiting == 1 && shelf.record.waitingBytes == 1)
        writer.giveUp(at: .now)
        shelf.settle()
        #expect(shelf.lostWrites == 1 && shelf.record.waiting == 0)
    }

    @Test("A fault is told once until it is mended, and that once, too")
    func bell() {
        var bell = FaultBell(log.handler)
        bell.mended(.reportNotWritten)
        for _ in 0..<3 { bell.ring(StallMonitorError(.reportNotWritten)) }
        bell.ring(StallMonitorError(.reportDirectoryHangs))
        for _ in 0..<3 { bell.mended(.reportNotWritten) }
        bell.ring(StallMonitorError(.reportNotWritten))
        #expect(log.faults.map(\.code) == [.reportNotWritten, .reportDirectoryHangs, .reportNotWritten])
        #expect(log.mended == [.reportNotWritten])
    }
}
