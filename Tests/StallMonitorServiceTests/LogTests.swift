import Logging
@testable import StallMonitor
import StallReports
import Synchronization
import TestSupport
import Testing

@testable import StallMonitorService

@Suite("Stalls in a log")
struct LogTests {
    private let lines = LogLines()

    private func log(level: Logger.Level = .info, form: StallLog.Form = .line, from least: Logger.Level = .trace)
        -> StallLog
    {
        var logger = Logger(label: "stalls") { [lines] _ in MemoryLog(lines: lines) }
        logger.logLevel = least
        return StallLog(logger, level: level, form: form)
    }

    private func report(_ state: StallState = .recovered) -> StallReport {
        var report = StallReport.minimal(state)
        report.durationNs = 612_345_678
        report.cause = .init(verdict: .blocked, summary: "The thread waited in read(2).")
        report.fingerprint = Fingerprint(rawValue: "v2:0000000000000001")!
        report.culprit = .init(function: "charge(_:)", file: "/src/Checkout.swift", line: 12, stack: 0, frame: 1)
        report.labels = ["checkout"]
        let own = StallReport.Frame(
            address: 2,
            function: "charge(_:)",
            file: "/src/Checkout.swift",
            line: 12,
            own: true
        )
        report.stacks = [
            .init(thread: report.thread, capturedAt: .now(), frames: [.init(address: 1, function: "read"), own])
        ]
        return report
    }

    @Test(
        "A stall is logged at its begin and its end, at the configured level, with its figures as metadata"
    )
    func line() throws {
        let log = log(level: .warning)
        log(.began(report(.ongoing)))
        log(.grew(report(.ongoing)))
        log(.ended(report()))
        #expect(lines.all.map(\.text) == ["event loop stalled", "event loop recovered"])
        #expect(lines.all.allSatisfy { $0.level == .warning })
        let metadata = try #require(lines.all.last?.metadata)
        #expect(metadata["stall.loop"] == "main" && metadata["stall.duration_ms"] == "612")
        #expect(metadata["stall.kind"] == "blocked")
        #expect(metadata["stall.culprit"] == "charge(_:)" && metadata["stall.fingerprint"] == "v2:0000000000000001")
        #expect(metadata["stall.place"] == "Checkout.swift:12" && metadata["stall.labels"] == "checkout")
    }

    @Test("A stall in a request is logged with the ids of its trace, which a log is searched for")
    func trace() {
        var stall = report()
        log()(.ended(stall))
        stall.trace = .init(traceID: "4bf92f3577b34da6a3ce929d0e0e4736")
        log()(.ended(stall))
        stall.trace?.spanID = "00f067aa0ba902b7"
        log()(.ended(stall))
        let trace: Logger.MetadataValue = "4bf92f3577b34da6a3ce929d0e0e4736"
        #expect(lines.all.map { $0.metadata["trace_id"] } == [nil, trace, trace])
        #expect(lines.all.map { $0.metadata["span_id"] } == [nil, nil, "00f067aa0ba902b7"])
    }

    @Test("A place that is not known is left out, and so is an unknown line")
    func withoutPlace() {
        var stall = report()
        stall.culprit?.line = nil
        log()(.ended(stall))
        stall.culprit?.file = nil
        log()(.ended(stall))
        #expect(lines.all.map { $0.metadata["stall.place"] } == ["Checkout.swift", nil])
    }

    @Test(
        "What is stalled is called what it is",
        arguments: [
            (WatchedType.runLoop, "event loop"), (.eventLoop, "event loop"), (.queue, "serial queue"),
            (.taskPool, "task pool"),
        ]
    )
    func subject(type: WatchedType, name: String) {
        var (stall, repeated) = (report(), SuppressedStall.repeated(times: 2))
        (stall.watched.type, repeated.type) = (type, type)
        log()(.began(stall))
        log()(.ended(stall))
        stall.state = .abandoned
        log()(.ended(stall))
        log()(.suppressed(repeated))
        #expect(
            lines.all.map(\.text) == [
                "\(name) stalled", "\(name) recovered", "\(name) stalled, no longer watched", "\(name) stalled again",
            ]
        )
        #expect(lines.all.allSatisfy { $0.metadata["stall.type"] == "\(type.rawValue)" })
    }

    @Test("A long job is not called a stalled event loop")
    func longJob() {
        var job = report()
        job.kind = .longJob
        log()(.began(job))
        log()(.ended(job))
        #expect(lines.all.map(\.text) == ["long job in a task pool", "long job ended"])
        #expect(lines.all.allSatisfy { $0.metadata["stall.kind"] == "long_job" })
    }

    @Test("A wait has the same name as in all other output")
    func verdict() {
        log()(.ended(report()))
        #expect(lines.all.first?.metadata["stall.verdict"] == "waiting")
    }

    @Test("A stall that is no longer watched is not logged as recovered")
    func abandoned() {
        log()(.ended(report(.abandoned)))
        #expect(lines.all.map(\.text) == ["event loop stalled, no longer watched"])
    }

    @Test("For a terminal: place, cause, own functions and report id, one line each")
    func terminal() {
        let stall = report()
        log(form: .lines)(.ended(stall))
        #expect(
            lines.all.map(\.text) == [
                """
                event loop recovered: main, 612ms, waiting
                    Where   charge(_:)  Checkout.swift:12
                    Why     The thread waited in read(2).
                    Work    checkout
                    Stack   charge(_:)  Checkout.swift:12
                    Report  \(stall.id)
                """
            ]
        )
        #expect(lines.all.first?.metadata == ["stall.id": "\(stall.id)"])
    }

    @Test("Repeats are logged only at the debug level; faults and their ends like stalls")
    func others() {
        let log = log(level: .notice)
        log(.suppressed(.repeated(times: 3)))
        log(.fault(.init(.reportNotWritten)))
        log(.mended(.init(.reportNotWritten)))
        #expect(lines.all.map(\.level) == [.debug, .warning, .warning])
        #expect(
            lines.all.first?.metadata["stall.repeats"] == "3" && lines.all.first?.metadata["stall.duration_ms"] == "7"
        )
        #expect(lines.all[1].metadata["error"] != nil && lines.all[2].text == "stall monitor works again")
    }

    @Test("A logger below the configured level writes nothing")
    func silent() {
        log(level: .info, from: .error)(.ended(report()))
        #expect(lines.all.isEmpty)
    }
}
