import Glibc
import RunLoopKit
import StallDetection
import StallReports
import Synchronization
import TestSupport
import Testing

@testable import StallMonitor

@Suite("Reports about writing")
struct ReportPublisherTests {
    private let log = EventLog()
    /// No thread runs it: everything it is given waits.
    private let writer = ReportWriter(
        sink: DirectorySink(ReportDirectory(path: "/nowhere")),
        limits: .init(),
        meter: CostMeter(),
        changed: {}
    )

    @Test("When stop can wait no longer, each remaining stall is counted once and reported as lost")
    func noTimeLeft() {
        var publisher = ReportPublisher(writer: writer, tell: log.handler)
        let now = MonotonicInstant.now
        let span = StallSpan(earliestStart: now, latestStart: now, earliestEnd: now, latestEnd: now)
        let notices: [StallNotice] = [
            .ended(7, span, nil, .recovered), .ended(8, span, nil, .abandoned), .ended(7, span, nil, .recovered),
            .ended(9, span, nil, .terminated), .checkpoint,
        ]
        let before = notices.map { publisher.hasTime(for: $0) }
        writer.giveUp()
        let after = notices.map { publisher.hasTime(for: $0) }
        #expect(before.allSatisfy { $0 } && !after.contains(true))
        publisher.settle()
        #expect(publisher.lostWrites == 3 && log.faults.map(\.code) == [.reportsLost])
        #expect(log.faults.first?.message.contains("3 reports are lost") == true)
    }

    @Test("A waiting report is lost only after the end, not before")
    func waiting() {
        var publisher = ReportPublisher(writer: writer, tell: log.handler)
        let name = ReportFileName(.stall, .make())
        writer.order { $0.put(PendingDocument(name: name, bytes: [1], isFinal: true)) }
        #expect(publisher.lostWrites == 0 && publisher.record.waiting == 1 && publisher.record.waitingBytes == 1)
        writer.giveUp()
        publisher.settle()
        #expect(publisher.lostWrites == 1 && publisher.record.waiting == 0)
    }

    @Test("A fault is reported once, and its end once")
    func toldOnce() {
        var faults = WritingFaults(of: "/nowhere", log.handler)
        faults.mended(.reportNotWritten)
        for _ in 0..<3 { faults.notify(StallMonitorError(.reportNotWritten)) }
        faults.notify(StallMonitorError(.reportDirectoryHangs))
        for _ in 0..<3 { faults.mended(.reportNotWritten) }
        faults.notify(StallMonitorError(.reportNotWritten))
        #expect(log.faults.map(\.code) == [.reportNotWritten, .reportDirectoryHangs, .reportNotWritten])
        #expect(log.mended == [.reportNotWritten])
    }

    @Test(
        "A directory that cannot be written is reported with what the server has to set, not with what a reader would do",
        arguments: [
            (ReportError(.missingDirectory, path: ""), "name is empty;"),
            (ReportError(.missingDirectory, path: "/proc/x"), "cannot be made;"),
            (ReportError(.notADirectory, path: "/x", errorNumber: ENOTDIR), "cannot be made (Not a directory);"),
            (
                ReportError(.permissionDenied, path: "/x", errorNumber: EACCES),
                "may not write there (Permission denied);"
            ),
        ]
    )
    func advice(_ error: ReportError, _ expected: String) throws {
        let sink = DirectorySink(ReportDirectory(path: error.path ?? ""))
        var faults = WritingFaults(of: sink.name, log.handler)
        faults.note(ReportWriter.Status(problem: error), lost: 1)
        #expect(log.faults.map(\.code) == [.reportNotWritten, .reportsLost])
        for fault in log.faults {
            let text = fault.message
            #expect(text.contains(expected) && text.contains("set $STALL_MONITOR_DIRECTORY, or the configuration's"))
            #expect(!text.contains(" : ") && !text.contains("when  can"), "an empty name is shown")
        }
        let other = ReportError(.full, path: "/x", errorNumber: ENOSPC)
        var later = WritingFaults(of: "/x", log.handler)
        later.note(ReportWriter.Status(problem: other), lost: 0)
        #expect(log.faults.last?.message.contains(other.description) == true)
    }

    @Test(
        "A link or a directory open to others is reported once, with advice, and its end; the run record names it"
    )
    func exposed() throws {
        let (parent, log) = (TemporaryDirectory(), EventLog())
        let (target, link) = (parent.path + "/target", parent.path + "/link")
        try #require(unsafe mkdir(target, 0o700) == 0 && chmod(target, 0o777) == 0 && symlink(target, link) == 0)
        let writer = ReportWriter(
            sink: DirectorySink(.init(path: link)),
            limits: .init(),
            meter: CostMeter(),
            changed: {}
        )
        let thread = try MonitorThread(name: "stall-writer") { writer.run() }
        var publisher = ReportPublisher(writer: writer, tell: log.handler)
        publisher.prepare()
        writeThrice(&publisher, writer)
        let told = log.faults.filter { $0.code == .reportDirectoryExposed }
        #expect(told.count == 1 && !log.mended.contains(.reportDirectoryExposed))
        let message = try #require(told.first?.message)
        #expect(message.contains("is a symbolic link") && message.contains("chmod go-w"), "\(message)")
        #expect(publisher.record.concerns == ["link", "open_to_others"])
        try #require(unsafe unlink(link) == 0 && rename(target, link) == 0 && chmod(link, 0o700) == 0)
        writeThrice(&publisher, writer)
        #expect(log.faults.count { $0.code == .reportDirectoryExposed } == 1)
        #expect(log.mended.count { $0 == .reportDirectoryExposed } == 1)
        #expect(publisher.record.concerns == nil && publisher.lostWrites == 0)
        publisher.close()
        #expect(thread.join(by: .now + .seconds(60)))
    }

    @Test("A directory full of others' files is reported once, is written to, and its end is reported")
    func filled() throws {
        let (directory, log) = (TemporaryDirectory(), EventLog())
        try #require(unsafe chmod(directory.path, 0o700) == 0)
        for number in 0..<3 { try #require(unsafe mkdir("\(directory.path)/\(number)", 0o700) == 0) }
        let store = ReportDirectory(path: directory.path, limits: .init(reports: 2))
        let writer = ReportWriter(sink: DirectorySink(store), limits: .init(), meter: CostMeter(), changed: {})
        let thread = try MonitorThread(name: "stall-writer") { writer.run() }
        var publisher = ReportPublisher(writer: writer, tell: log.handler)
        publisher.prepare()
        #expect(!log.faults.contains { $0.code == .reportDirectoryFilled })
        writeThrice(&publisher, writer)
        publisher.prepare()
        #expect(log.faults.count { $0.code == .reportDirectoryFilled } == 1 && publisher.record.concerns == ["filled"])
        try #require(unsafe rmdir(directory.path + "/0") == 0)
        writeThrice(&publisher, writer)
        #expect(log.mended.count { $0 == .reportDirectoryFilled } == 1 && publisher.record.concerns == nil)
        publisher.close()
        #expect(thread.join(by: .now + .seconds(60)))
    }

    @Test("A report that another kind of sink refuses waits, is retried, and arrives once, in its latest version")
    func otherSink() throws {
        let (sink, log) = (DistantSink(), EventLog())
        let writer = ReportWriter(sink: sink, limits: .init(), meter: CostMeter(), changed: {})
        let thread = try MonitorThread(name: "stall-writer") { writer.run() }
        var publisher = ReportPublisher(writer: writer, tell: log.handler)
        let name = ReportFileName(.stall, .make())
        for version: UInt8 in 1...2 {
            writer.order { $0.put(PendingDocument(name: name, bytes: [version], isFinal: version == 2)) }
            #expect(writer.wait(until: .now + .seconds(60)))
        }
        #expect(writer.status.failures >= 2 && writer.status.waitingReports == 1)
        publisher.prepare()
        sink.isReached.withLock { $0 = true }
        writer.order { $0.retryNow() }
        #expect(writer.wait(until: .now + .seconds(60)))
        #expect(sink.taken.withLock { $0 } == [[2]] && sink.preparations.withLock { $0 } >= 1)
        #expect(publisher.lostWrites == 0 && writer.status.problem == nil && writer.status.bytesWritten == 1)
        #expect(log.faults.allSatisfy { $0.message.contains("collector.example") })
        publisher.close()
        #expect(thread.join(by: .now + .seconds(60)))
    }

    @Test("A report that is too large for readers is written without the stacks of the other threads, and says so")
    func tooLarge() throws {
        let sink = DistantSink()
        sink.isReached.withLock { $0 = true }
        let writer = ReportWriter(sink: sink, limits: .init(), meter: CostMeter(), changed: {})
        let thread = try MonitorThread(name: "stall-writer") { writer.run() }
        var publisher = ReportPublisher(writer: writer, tell: log.handler)
        var report = StallReport.minimal()
        let long = String(repeating: "x", count: StoredDocuments.maximumFileSize)
        report.stacks = [
            .init(thread: .init(id: 1), capturedAt: .now()),
            .init(role: .other, thread: .init(id: 2), capturedAt: .now(), error: long),
        ]
        publisher.put(report)
        #expect(writer.wait(until: .now + .seconds(60)))
        let written = try StallReport(json: try #require(sink.taken.withLock { $0.first }))
        #expect(written.id == report.id && written.stacks == Array(report.stacks.prefix(1)))
        #expect(written.cause.summary.contains("no room for the stacks of the other threads"))
        #expect(publisher.lostWrites == 0)
        publisher.close()
        #expect(thread.join(by: .now + .seconds(60)))
    }

    @Test(
        "A writer that computes, or has no processor, is not reported as a disk that does not answer",
        arguments: [true, false]
    )
    func slow(computes: Bool) throws {
        let (sink, log) = (SlowSink(computes: computes), EventLog())
        let writer = ReportWriter(sink: sink, limits: .init(), meter: CostMeter(), changed: {})
        let thread = try MonitorThread(name: "stall-writer") { writer.run() }
        var publisher = ReportPublisher(writer: writer, tell: log.handler)
        let expected: [StallMonitorError.Code] = computes ? [] : [.reportDirectoryHangs]
        writer.order { $0.put(PendingDocument(name: ReportFileName(.stall, .make()), bytes: [1], isFinal: true)) }
        try #require(sink.began.wait(until: .now + .seconds(60)))
        // Waits for as long as a write may take.
        publisher.put(StallReport.minimal())
        #expect(writer.status.isOverdue(at: .now) && log.faults.map(\.code) == expected)
        sink.end()
        #expect(writer.wait(until: .now + .seconds(60)))
        writeThrice(&publisher, writer)
        #expect(log.faults.map(\.code) == expected && log.mended == expected && publisher.lostWrites == 0)
        publisher.close()
        #expect(thread.join(by: .now + .seconds(60)))
    }

    /// The publisher waits only as long as a working disk would need; a busy machine may need longer.
    private func writeThrice(_ publisher: inout ReportPublisher, _ writer: ReportWriter) {
        for _ in 0..<3 {
            let now = Timestamp.now()
            publisher.put(
                RunRecord(startedAt: now, updatedAt: now, host: .current(), process: .current(), monitorVersion: "1")
            )
            #expect(writer.wait(until: .now + .seconds(60)))
        }
    }
}

/// Refuses until it is reachable, as a collector does.
private final class DistantSink: ReportSink {
    let name = "collector.example"
    let isReached = Mutex(false)
    let taken = Mutex<[[UInt8]]>([])
    let preparations = Mutex(0)

    func prepare(closing: Bool) -> Set<ReportDirectory.Concern> {
        preparations.withLock { $0 += 1 }
        return []
    }

    func write(_ bytes: [UInt8], as name: ReportFileName) throws(ReportError) -> ReportDirectory.Written {
        guard isReached.withLock({ $0 }) else { throw ReportError(.io, detail: "not reached") }
        taken.withLock { $0.append(bytes) }
        return .init(bytes: bytes.count, concerns: [])
    }
}

/// Does not return from its first write before `end`.
private final class SlowSink: ReportSink {
    let name = "collector.example"
    let began = TickSemaphore()
    private let computes: Bool
    private let isOver = Atomic(false)
    private let ended = TickSemaphore()

    init(computes: Bool) { self.computes = computes }

    func end() {
        isOver.store(true, ordering: .releasing)
        ended.signal()
    }

    func prepare(closing: Bool) -> Set<ReportDirectory.Concern> { [] }

    func write(_ bytes: [UInt8], as name: ReportFileName) -> ReportDirectory.Written {
        began.signal()
        while !isOver.load(ordering: .acquiring) {
            if !computes { _ = ended.wait(until: .now + .seconds(600)) }
        }
        return .init(bytes: bytes.count, concerns: [])
    }
}
