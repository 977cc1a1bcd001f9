import Foundation
import StallReports
import Testing

@testable import stall_monitor

/// What is drawn on a terminal during a stall. A live record has the stall, as a watched process writes it.
@Suite("On a terminal", .timeLimit(.minutes(10)))
struct TerminalTests {
    private let fixture: ReportsFixture
    private let report: StallReport
    private let record: LiveStallRecord

    init() throws {
        fixture = try ReportsFixture()
        var report = Sample.ongoing()
        // This process represents the watched one: it is alive.
        (report.host, report.process, report.run) = (.current(), .current(), .make())
        try fixture.store.write(report)
        record = try LiveStallRecord(of: report, in: fixture.path)
        self.report = report
    }

    @Test("tail -f updates a stall's length in one line, adds a line when it gets more severe, and one at its end")
    func tailGrows() throws {
        let tail = try RunningCommand(onTerminal: "tail", "-f", fixture.path)
        #expect(try tail.output(until: "for 612ms  main  shop.Cart.total() -> Swift.Int") != nil)
        try record.note(length: 900_000_000)
        let grown = try tail.output(until: "ongoing for 900ms")
        // The line is overwritten: nothing scrolls.
        #expect(grown?.hasSuffix("\r\u{1B}[Kongoing for 900ms") == true && grown?.contains("\n") == false)
        try record.note(length: 6_000_000_000)
        #expect(try tail.output(until: "ongoing     6s+")?.contains("\n") == false)
        #expect(try tail.output(until: "ongoing for 6s")?.contains("\n") == true)
        var ended = report
        (ended.state, ended.durationNs) = (.recovered, 6_100_000_000)
        ended.endedAt = report.startedAt.advanced(byNanoseconds: ended.durationNs)
        try fixture.store.write(ended)
        #expect(try tail.output(until: "recovered   6.1s") != nil)
        // 'show' takes the beginning and the end of an id.
        let id = report.id.description
        #expect(try tail.output(until: "\(id.prefix(8))…\(id.suffix(6))") != nil)
        tail.send(SIGINT)
    }

    @Test("top names the programs that a watcher watches, and not the watcher")
    func topOfWatcher() throws {
        var run = Sample.run()
        run.id = try #require(report.run)
        run.targets = [.init(pid: 7, executable: "/usr/bin/env"), .init(pid: 7, executable: "/opt/bin/redis-server")]
        #expect(try CommandRun("top", fixture.path, "--once").output.contains("  shop  "))
        try fixture.store.write(run)
        let top = try CommandRun("top", fixture.path, "--once").output
        #expect(top.contains("  redis-server  ") && !top.contains("  shop  "), "\(top)")
    }

    @Test("top finds an ongoing stall by a former fingerprint of its fault that only another report has, as list does")
    func topOfFormerFingerprint() throws {
        var former = Sample.report()
        former.aliases = [try #require(Fingerprint(rawValue: "v2:1111222233334444"))]
        try fixture.store.write(former)
        func words(_ command: [String], _ fingerprint: String) throws -> String {
            try CommandRun(arguments: command + [fixture.path, "--fingerprint", fingerprint]).output
        }
        for command in [["top", "--once"], ["top", "--format", "json"], ["list", "--state", "ongoing"]] {
            #expect(try words(command, "1111").contains("shop.Cart.total"), "\(command)")
            #expect(try !words(command, "2222").contains("shop.Cart.total"), "\(command)")
        }
    }

    @Test("top draws over the previous screen: the process, and its stall as it grows")
    func topGrows() throws {
        let top = try RunningCommand(onTerminal: "top", fixture.path, "--every", "20ms")
        let title = try top.output(until: "1 ongoing stall, 1 process watched")
        #expect(title?.hasPrefix("\u{1B}[?1049h\u{1B}[?25l\u{1B}[2J\u{1B}[H") == true)
        let screen = try top.output(until: "\u{1B}[J")
        #expect(screen?.contains("stalled") == true && screen?.contains("  shop.Cart") == true)
        #expect(screen?.contains("612ms+") == true)
        try record.note(length: 6_000_000_000)
        #expect(try top.output(until: "ongoing  6s+ ") != nil)
        #expect(try top.output(until: "\u{1B}[H") != nil, "it is drawn again")
        try record.note(length: 6_100_000_000, .recovered)
        #expect(try top.output(until: "0 ongoing stalls") != nil)
        #expect(try top.output(until: "recovered  6.1s ") != nil)
        top.send(SIGINT)
    }

    @Test(
        "top's keys: faults, a page, back, and quit; afterwards the terminal is as before",
        arguments: ["q", "\u{3}"]
    )
    func topKeys(_ end: String) throws {
        let top = try RunningCommand(onTerminal: "top", fixture.path, "--every", "20ms", columns: 100, settings: true)
        let before = try #require(try top.output(until: "\r\n"))
        #expect(try top.output(until: ">") != nil, "the process is picked")
        try top.send("\u{1B}[B\r")
        #expect(try top.output(until: "stall of main") != nil, "the stall's page")
        #expect(try top.output(until: "q back") != nil)
        try top.send("q")
        #expect(try top.output(until: "f faults") != nil)
        try top.send("f")
        #expect(try top.output(until: "1 fault, by total") != nil)
        #expect(try top.output(until: "> aa296773") != nil)
        try top.send("s")
        #expect(try top.output(until: "1 fault, by count") != nil)
        try top.send("\r")
        #expect(try top.output(until: "Fault v2:aa296773") != nil, "the fault's page")
        try top.send("qp")
        #expect(try top.output(until: "1 process watched") != nil)
        try top.send(end)
        #expect(try top.output(until: "\u{1B}[?25h\u{1B}[?1049l") != nil)
        #expect(try top.output(until: "status \(end == "q" ? 0 : 130)\r\n") != nil)
        #expect(try top.output(until: "\r\n") == before)
    }

    @Test("Ctrl-Z stops top, which leaves its screen; when it goes on it draws it again; the terminal is as before")
    func topStops() throws {
        let top = try RunningCommand(onTerminal: "top", fixture.path, "--every", "20ms", columns: 100, goesOn: true)
        let before = try #require(try top.output(until: "\r\n"))
        #expect(try top.output(until: "1 ongoing stall, 1 process watched") != nil)
        try top.send("\u{1A}")
        #expect(try top.output(until: "\u{1B}[?25h\u{1B}[?1049l") != nil)
        // 128 + SIGTSTP.
        #expect(try top.output(until: "status 148\r\n") != nil)
        #expect(try top.output(until: "\r\n") == before)
        #expect(try top.output(until: "\u{1B}[?1049h\u{1B}[?25l\u{1B}[2J") != nil)
        #expect(try top.output(until: "1 ongoing stall, 1 process watched") != nil)
        try top.send("q")
        #expect(try top.output(until: "\u{1B}[?25h\u{1B}[?1049l") != nil)
        #expect(try top.output(until: "status 0\r\n") != nil)
        #expect(try top.output(until: "\r\n") == before)
    }

    @Test("top goes on when its directory is removed: a note says so, until there is one again")
    func topWithoutDirectory() throws {
        let top = try RunningCommand(onTerminal: "top", fixture.path, "--every", "20ms", columns: 160)
        #expect(try top.output(until: "1 ongoing stall, 1 process watched") != nil)
        let away = fixture.root + "/away"
        try FileManager.default.moveItem(atPath: fixture.path, toPath: away)
        #expect(try top.output(until: "\(fixture.path): there is no such report directory") != nil)
        #expect(try top.output(until: "shop.Cart") != nil, "what was known is still shown")
        try FileManager.default.moveItem(atPath: away, toPath: fixture.path)
        try record.note(length: 6_000_000_000)
        #expect(try top.output(until: "6s+") != nil)
        top.send(SIGINT)
    }

    @Test("top fits into the window: no line is longer, and rows without room are counted")
    func topFits() throws {
        let top = try RunningCommand(onTerminal: "top", fixture.path, columns: 30, lines: 5)
        #expect(try top.output(until: "more lines") != nil)
        #expect(try top.output(until: "\u{1B}[H") != nil)
        let screen = try #require(try top.output(until: "\u{1B}[J")).dropLast(3)
        let lines = screen.replacing("\u{1B}[K", with: "").split(
            separator: "\r\n",
            omittingEmptySubsequences: false
        )
        #expect(lines.count == 5 && lines.allSatisfy { $0.count <= 30 }, "\(lines)")
        #expect(lines.dropLast().last?.contains(" more lines") == true, "\(lines)")
        top.send(SIGINT)
    }

    @Test("a terminal without cursor movement gets top's screen once and no growing lines from tail")
    func dumb() throws {
        let top = try RunningCommand(onTerminal: "top", fixture.path, terminal: "dumb")
        #expect(try top.output(until: "shop.Cart")?.contains("\u{1B}") == false)
        #expect(top.status() == 0)
        let tail = try RunningCommand(onTerminal: "tail", "-f", fixture.path, terminal: "dumb")
        #expect(try tail.output(until: "ongoing") != nil)
        try record.note(length: 6_000_000_000)
        #expect(try tail.output(until: "6s+")?.contains("\u{1B}") == false)
        tail.send(SIGINT)
    }
}

/// A live record with one stall.
private final class LiveStallRecord {
    private let file: LiveRecordFile
    private let report: StallReport

    init(of report: StallReport, in directory: String) throws {
        self.report = report
        file = try LiveRecordFile(
            in: directory,
            run: try #require(report.run),
            writer: .init(
                host: report.host,
                service: report.service,
                process: report.process,
                startedAt: report.startedAt,
                monitorVersion: "0.1.0",
                memory: nil
            ),
            status: .init(updatedAt: .now(), watched: 1)
        )
        try note(length: report.durationNs)
    }

    func note(length: Int64, _ state: StallState = .ongoing) throws {
        let start: UInt64 = 5_000_000_000
        let stall = LiveStall(
            report: report.id,
            state: state,
            rule: report.rule,
            watched: report.watched,
            watch: 1,
            startedAt: report.startedAt,
            startedMonotonicNs: start,
            detectedAt: report.detectedAt,
            lastSeenAt: report.startedAt.advanced(byNanoseconds: length),
            lastSeenMonotonicNs: start + UInt64(length),
            durationNs: length,
            durationMinNs: length,
            durationMaxNs: length
        )
        try file.write(stall, to: 0)
    }
}

@Suite("Wrapping and paging", .timeLimit(.minutes(5)))
struct WrappingTests {
    @Test("lines break between words, hang, keep their colours and lose nothing")
    func wraps() {
        let line: StyledText = "  \("one", .bold) two three-and-a-half four"
        let lines = line.wrapped(to: 12, hanging: 4)
        #expect(
            lines.map(\.plain) == ["  one two ", "    three-an", "    d-a-half", "    four"],
            "\(lines.map(\.plain))"
        )
        #expect(lines[0].coloured.contains("\u{1B}[1mone\u{1B}[0m"))
        #expect(line.wrapped(to: nil, hanging: 4) == [line] && line.wrapped(to: 80, hanging: 4) == [line])
        #expect(StyledText("ab  cd", limit: .max).wrapped(to: 2, hanging: 0).map(\.plain) == ["ab", "cd"])
        for width in 1...30 {
            let joined = line.wrapped(to: width, hanging: 4)
            #expect(joined.allSatisfy { $0.width <= max(width, 1) }, "\(width)")
            #expect(joined.map(\.plain).joined().filter { $0 != " " } == "onetwothree-and-a-halffour")
        }
        // Of a wide character no half is left in a line.
        let wide = StyledText("a日本語b日本語cd日本", limit: .max)
        for width in 3...12 {
            let lines = wide.wrapped(to: width, hanging: 1)
            #expect(lines.allSatisfy { $0.width <= width }, "\(width): \(lines.map(\.plain))")
            #expect(lines.map(\.plain).joined().filter { $0 != " " } == wide.plain)
        }
        #expect(wide.wrapped(to: 1, hanging: 0).map(\.plain).joined() == wide.plain)
    }

    @Test(
        "on a terminal long text goes through $PAGER; with --no-pager, an empty or a missing one it is printed"
    )
    func pager() throws {
        let fixture = try ReportsFixture()
        for _ in 0..<40 { try fixture.store.write(Sample.report(id: .make())) }
        func onTerminal(_ pager: String, _ options: String = "") throws -> String {
            let command =
                "stty rows 10 cols 120; PAGER='\(pager)' TERM=xterm '\(CommandRun.executable.path)' list '\(fixture.path)' \(options)"
            return try CommandRun(tool: "/usr/bin/script", ["-qec", command, "/dev/null"]).output
        }
        let counted = try onTerminal("wc -l")
        #expect(counted.split(separator: "\r\n").first == "41", "\(counted.prefix(200))")
        #expect(try onTerminal("wc -l", "--no-pager").contains("shop.Cart"))
        #expect(try onTerminal("").contains("shop.Cart"))
        #expect(try onTerminal("/no/such/pager").contains("shop.Cart"))
        #expect(try onTerminal("wc -l", "--color=never --no-pager").contains("\u{1B}[32m") == false)
        let piped = try CommandRun("list", fixture.path, "--color=always").output
        #expect(piped.contains("\u{1B}[32mrecovered\u{1B}[0m"))
    }
}
