import Foundation
import ProcessWatch
import StallGate
import StallReading
import StallReports
import StallShipping
import Testing

@testable import stall_monitor

/// The command's screens at three widths, compared with the files in Tests/Fixtures/screens. After an intended
/// change, UPDATE_SCREENS=1 rewrites them; read the difference before you commit it.
@Suite("Screens")
struct ScreenTests {
    private static let directory = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .appending(path: "Fixtures/screens")
    static let now = Sample.start.advanced(byNanoseconds: 3 * 3_600_000_000_000)

    enum Screen: String, CaseIterable, Sendable {
        case list, tail, faults, stall, full, fault, doctor, diff, runs, runsByHost, runsByLoop
        case top, topFaults = "top-faults", gate, sample, watch, symbolicate, export, ship
    }

    @Test("they are unchanged, and no line is wider than the terminal", arguments: Screen.allCases, [60, 80, 120])
    func screens(_ screen: Screen, width: Int) throws {
        let lines = try Self.lines(screen, width)
        for line in lines { #expect(line.width <= width, "\(line.plain)") }
        let text = lines.map { Self.trimmed($0.plain) + "\n" }.joined()
        let file = Self.directory.appending(path: "\(screen)-\(width).txt")
        if ProcessInfo.processInfo.environment["UPDATE_SCREENS"] != nil {
            try FileManager.default.createDirectory(at: Self.directory, withIntermediateDirectories: true)
            try Data(text.utf8).write(to: file)
        }
        #expect(text == (try String(contentsOf: file, encoding: .utf8)))
    }

    /// The first process, the last one, and the stall below them.
    @Test("a low window of top has the picked row, and above it the heading of its table", arguments: 4...12)
    func lowWindow(height: Int) throws {
        let screens = [
            Self.top(.home, width: 80, height: height), Self.top(.down, .down, .down, width: 80, height: height),
            Self.top(.end, width: 80, height: height),
        ]
        for (lines, (row, heading)) in zip(screens, [("4711", "PID"), ("4714", "PID"), ("0000", "ID ")]) {
            let lines = lines.map(\.plain)
            let picked = try #require(lines.firstIndex { $0.hasPrefix("> \(row)") }, "\(lines)")
            #expect(lines.count == height && lines[..<picked].contains { $0.hasPrefix("  \(heading)") }, "\(lines)")
        }
    }

    private static func trimmed(_ line: String) -> String {
        var line = line[...]
        while line.last == " " { line.removeLast() }
        return String(line)
    }

    private static func lines(_ screen: Screen, _ width: Int) throws -> [StyledText] {
        ShownTime.useUTC()
        let reports = reports
        let stalls = reports.map { StallOutline($0) }
        switch screen {
        case .list:
            let faults = ShortFingerprints(stalls.map(\.fingerprint))
            let ids = ShortIDs(stalls.map(\.id))
            return Array(StallList(stalls: stalls, ids: ids, faults: faults, now: now, width: width).lines)
        case .tail:
            return reports.flatMap { StallLine.lines($0, isFirst: true, width: width) }
        case .faults:
            let faults = tally.all(watchedNs: 600_000_000_000, by: .total)
            return FaultTable(
                faults: faults,
                names: ShortFingerprints(faults.map(\.fingerprint)),
                now: now,
                width: width
            ).lines
        case .stall: return StallBrief(report: reports[1], now: now, style: .init(width: width)).lines
        case .full: return StallPage(report: reports[0]).lines.flatMap { $0.wrapped(to: width, hanging: 14) }
        case .fault: return page(width).lines
        case .diff:
            let sides = try [[reports[0], reports[0], reports[1]], Array(repeating: reports[2], count: 30)].map {
                try #require(Baseline(watched($0), at: now))
            }
            let difference = FaultDifference(sides[0], sides[1])
            return DifferenceTable(
                before: .init(name: "release=1.4", set: sides[0]),
                after: .init(name: "release=1.5", set: sides[1]),
                difference: difference,
                width: width
            ).lines
        case .doctor:
            var facts = DoctorFacts(
                ptraceScope: 1,
                clockSource: "hpet",
                hasPressure: false,
                hasSchedstat: true,
                version: "0.1.0"
            )
            facts.directory = .init(
                path: "/srv/stalls",
                mode: 0o777,
                freeBytes: 1 << 20,
                runs: 2,
                stale: 1,
                reports: 9,
                withoutNames: 9
            )
            let doctor = Doctor(facts: facts)
            return (DoctorCommand.lines(nil, doctor.machine) + DoctorCommand.lines("/srv/stalls", doctor.reports))
                .flatMap { $0.wrapped(to: width, hanging: 11) }
        case .runs: return runs(by: .run, width)
        case .runsByHost: return runs(by: .host, width)
        case .runsByLoop: return runs(by: .loop, width)
        case .top: return top(.down, width: width)
        case .topFaults: return top(.character("f"), width: width)
        case .gate: return gate(width)
        case .sample: return SamplePage(document: sample, width: width).lines
        case .watch:
            return StallLine.lines(reports[1], isFirst: true, width: width)
                + Output.noteLines(WatchView.words(.watching(processID: 4711, name: "redis-server")), width: width)
        case .symbolicate:
            let gain = NamingGain(from: Sample.report(), to: Sample.report())
            return Output.dataLines("\(ReportFileName(.stall, reports[0].id)): \(gain.description)", width: width)
        case .export: return Output.noteLines("3 stalls in /var/lib/shop/stalls.speedscope.json", width: width)
        case .ship:
            let json = #"{"stalls":1204,"runs":12,"refused":3,"lost":0,"unreadable":0,"unsent":17,"requests":31}"#
            let totals = try JSONDecoder().decode(ShippingTotals.self, from: Data(json.utf8))
            return Output.dataLines("\(totals)", width: width)
        }
    }

    /// A wait that occurred again and again, and one for a lock with a known owner.
    static var reports: [StallReport] {
        var reports = (0..<3).map { Sample.report(id: ULID(rawValue: UInt128($0 + 1) << 80)) }
        var other = reports[1]
        (other.severity, other.durationNs, other.watched.label) = (.critical, 6_100_000_000, "requests")
        other.fingerprint = Fingerprint(rawValue: "v2:0123456789abcdef") ?? other.fingerprint
        let owner = StallReport.Thread(id: 4720, name: "backup", state: "R")
        other.cause = .init(verdict: .blocked, summary: "The thread waited for a mutex that thread 4720 backup holds.")
        other.cause.lock = .init(kind: .mutex, address: 0x7f00, owner: owner, knownBy: .lockWord)
        var stack = other.stacks[0]
        stack.count = 5
        stack.frames.removeFirst()
        other.stacks += [stack, .init(role: .lockOwner, thread: owner, capturedAt: Sample.start, frames: stack.frames)]
        reports[1] = other
        return reports
    }

    /// From a run of ten minutes.
    static func watched(_ reports: [StallReport]) -> ReportReader.Overview {
        var run = Sample.run()
        run.watched = [.init(label: "main", watchedNs: 600_000_000_000)]
        var contents = ReportReader.Contents()
        (contents.reports, contents.runs) = (reports, [run])
        return .init(contents)
    }

    static var tally: FaultTally {
        var tally = FaultTally(span: TimeSpan(start: Sample.start, end: now))
        for report in reports { tally.add(StallOutline(report)) }
        return tally
    }

    private static func runs(by grouping: WatchedTime.Grouping, _ width: Int) -> [StyledText] {
        let rows = WatchedTime(RunsTests.overview, .everything, by: grouping).sorted
        return WatchedTable(rows: rows, grouping: grouping, width: width).lines
    }

    private static func page(_ width: Int) -> FaultPage {
        let fault = tally.all(watchedNs: 600_000_000_000, by: .count)[0]
        var evidence = FaultEvidence()
        let same = reports.filter { $0.fingerprint == fault.fingerprint }
        for report in same { evidence.add(StallOutline(report)) }
        evidence.read { id in same.first { $0.id == id } }
        return FaultPage(
            fault: fault,
            evidence: evidence,
            ids: ShortIDs(same.map(\.id)),
            now: now,
            style: .init(width: width)
        )
    }
}

@Suite("doctor")
struct DoctorTests {
    private func findings(_ change: (inout DoctorFacts) -> Void) -> [DoctorFinding] {
        var facts = DoctorFacts(
            perfEventParanoid: 2,
            clockSource: "tsc",
            hasPressure: true,
            hasSchedstat: true,
            countsDiskWaits: true,
            version: "1"
        )
        facts.directory = .init(path: "/r", freeBytes: 1 << 40, runs: 1, versions: ["1"])
        change(&facts)
        return Doctor(facts: facts).machine + Doctor(facts: facts).reports
    }

    @Test("with no problems it says so and suggests no fix")
    func well() { #expect(findings { _ in }.allSatisfy { $0.level == .ok && $0.fix == nil }) }

    @Test("each finding has its level and a fix")
    func each() {
        let cases: [(String, DoctorFinding.Level, (inout DoctorFacts) -> Void)] = [
            ("ptrace", .note, { $0.ptraceScope = 1 }), ("ptrace", .note, { ($0.ptraceScope, $0.isRoot) = (3, true) }),
            ("perf", .note, { $0.perfEventParanoid = 3 }), ("perf", .note, { $0.perfEventParanoid = nil }),
            ("clock", .note, { $0.clockSource = "hpet" }), ("kernel", .note, { $0.hasPressure = false }),
            ("directory", .problem, { ($0.directory, $0.directoryError) = (nil, "gone") }),
            ("mode", .problem, { $0.directory?.mode = 0o777 }), ("mode", .note, { $0.directory?.mode = 0o755 }),
            ("disk", .problem, { $0.directory?.freeBytes = 5 }), ("disk", .problem, { $0.directory?.lostWrites = 1 }),
            ("files", .problem, { $0.directory?.unreadable = 1 }), ("monitor", .problem, { $0.directory?.runs = 0 }),
            ("monitor", .problem, { $0.directory?.disarmed = ["x"] }),
            ("live_records", .note, { $0.directory?.stale = 1 }),
            // Its monitor may use another signal.
            ("signal", .note, { $0.directory?.signalBlocked = [7] }),
            ("stacks", .note, { $0.directory?.withoutStack = 1 }),
            ("symbols", .note, { $0.directory?.withoutNames = 1 }),
            ("debug_information", .note, { $0.directory?.withoutLines = 1 }),
            ("versions", .note, { $0.directory?.versions = ["2"] }),
        ]
        for (check, level, change) in cases {
            let told = findings(change).filter { $0.level != .ok }
            #expect(told.map(\.check) == [check] && told.first?.level == level && told.first?.fix != nil, "\(check)")
        }
    }

    @Test("on a kernel that does not count how long threads run, 'watch' refuses, and doctor says that it cannot judge")
    func uncounted() {
        let refusal = #expect(throws: CommandFailure.self) { try WatchRun.check(counts: "0 0 0\n") }
        #expect(refusal?.message.contains("CONFIG_SCHED_INFO") == true)
        #expect(throws: CommandFailure.self) { try WatchRun.check(counts: nil) }
        #expect(throws: Never.self) { try WatchRun.check(counts: "0 0 1\n") }
        let told = findings { $0.hasSchedstat = false }.first { $0.check == "kernel" }
        #expect(told?.level == .note && told?.found.contains("'watch' cannot judge") == true)
    }

    @Test("a single report is no 'latest 1 reports'; of several one has no stack, and two have none")
    func numbers() {
        func stacks(_ lacking: Int, of all: Int) -> String? {
            let found = findings {
                $0.directory?.reports = all
                $0.directory?.withoutStack = lacking
            }
            return found.first { $0.check == "stacks" }?.found
        }
        #expect(stacks(0, of: 1) == "the only report does not lack stacks")
        #expect(stacks(1, of: 1) == "the only report has no stack")
        #expect(stacks(1, of: 9) == "1 of the latest 9 reports has no stack")
        #expect(stacks(2, of: 9) == "2 of the latest 9 reports have no stack")
    }

    @Test("only if every report was read it says so of every file")
    func partlyRead() {
        func files(_ read: Int, of all: Int) -> String? {
            let found = findings {
                $0.directory?.reports = read
                $0.directory?.allReports = all
            }
            return found.first { $0.check == "files" && $0.level == .ok }?.found
        }
        #expect(files(7, of: 7) == "every file can be read")
        #expect(files(50, of: 900) == "the run records and the latest 50 reports can be read")
    }

    @Test(
        "what 'sample' and 'watch' reach is what the level of ptrace_scope permits; level 3 permits nothing to root either",
        arguments: [
            (0, false, "processes of the same user"), (1, false, "only their own children"), (2, false, "no process"),
            (2, true, "every process"), (3, false, "no process"), (3, true, "no process"),
        ]
    )
    func reach(scope: Int, isRoot: Bool, reached: String) {
        let ptrace = findings { ($0.ptraceScope, $0.isRoot) = (scope, isRoot) }.first { $0.check == "ptrace" }
        #expect(ptrace?.found.contains("'sample' and 'watch' reach \(reached)") == true, "\(ptrace?.found ?? "")")
        #expect((ptrace?.fix?.contains("restart the machine") == true) == (scope == 3), "sysctl cannot change level 3")
    }

    @Test("of several directories only what is not in order is shown, and how many are")
    func several() {
        let (well, open) = (findings { _ in }, findings { $0.directory?.mode = 0o755 })
        let page = DoctorCommand.page([(nil, well), ("/a", well), ("/b", open), ("/c", well)]).map(\.plain)
        #expect(page.filter { $0.hasPrefix("Reports in ") } == ["Reports in /b"] && page.last == "2 directories are ok")
        #expect(page.count { $0.hasPrefix("  ok ") } == well.count && page.count { $0.hasPrefix("  note ") } == 1)
        let one = DoctorCommand.page([(nil, well), ("/a", well)]).map(\.plain)
        #expect(one.count { $0.hasPrefix("  ok ") } == 2 * well.count && one.contains("Reports in /a"))
    }

    @Test("a path in a fix is one word for the shell")
    func quoting() {
        let fixes = ["/srv/a-b_1.2", "/srv/it's here"].map { path in
            findings { $0.directory = .init(path: path, mode: 0o777, freeBytes: 1 << 40, runs: 1, versions: ["1"]) }
                .compactMap(\.fix)
        }
        #expect(fixes == [["chmod go-w /srv/a-b_1.2"], [#"chmod go-w '/srv/it'\''s here'"#]])
    }

    @Test("the command: exit code 0 without problems, 1 for a missing directory; JSON agrees")
    func command() throws {
        let fixture = try ReportsFixture()
        try fixture.store.write(Sample.run())
        let run = try CommandRun("doctor", fixture.path)
        #expect(run.status == 0 && run.output.contains("Reports in \(fixture.path)"), "\(run.output)")
        let missing = try CommandRun("doctor", fixture.root + "/none", "--format", "json")
        #expect(missing.status == 1 && missing.output.contains(#""check":"directory""#))
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

@Suite("show", .timeLimit(.minutes(5)))
struct ShowTests {
    private let fixture: ReportsFixture

    init() throws { fixture = try ReportsFixture() }

    @Test("show accepts a fingerprint prefix or an id prefix; an ambiguous one lists the candidates")
    func choice() throws {
        var report = Sample.report(id: .make())
        try fixture.store.write(report)
        let digits = String(report.fingerprint.rawValue.dropFirst(3).prefix(8))
        let page = try CommandRun("show", digits, fixture.path)
        #expect(page.status == 0 && page.output.hasPrefix("Fault \(report.fingerprint): 4 stalls"), "\(page.output)")
        #expect(page.output.contains("▶ shop.Cart.total()"))
        #expect(
            try CommandRun("show", "v2:" + digits, fixture.path, "--format", "json").output.contains("stall-faults/1")
        )
        (report.id, report.fingerprint) = (.make(), try #require(Fingerprint(rawValue: "v2:\(digits)ffffffff")))
        try fixture.store.write(report)
        let ambiguous = try CommandRun("show", digits, fixture.path)
        #expect(ambiguous.status == 1 && ambiguous.errors.contains(report.fingerprint.rawValue))
        #expect(ambiguous.errors.contains("2 stalls and faults begin with"))
        #expect(try CommandRun("show", "dddd", fixture.path).errors.contains("no fault's fingerprint begins with dddd"))
    }

    @Test("beside a fault, what cannot be read is named, in text and as JSON", arguments: ["text", "json"])
    func unreadable(_ format: String) throws {
        let report = Sample.report(id: .make())
        try fixture.store.write(report)
        try fixture.plant("{ torn".utf8)
        let run = try CommandRun("show", report.fingerprint.rawValue, fixture.path, "--format", format)
        #expect(run.status == 1 && run.errors.contains("/stall-"), "\(run.errors)")
        #expect(run.output.contains(report.fingerprint.rawValue), "\(run.output)")
    }

    @Test("a source line's text is shown if the file exists; a file that is no source is not shown")
    func source() throws {
        var report = Sample.report(id: .make())
        // A zero byte ends a path for the system, but not the text.
        for (name, end, isShown) in [("Cart.swift", "", true), ("secret", "", false), ("secret", "\0.swift", false)] {
            let file = fixture.root + "/" + name
            try Data("one\n\u{1B}two\nthree\nfour\n".utf8).write(to: URL(filePath: file))
            report.culprit?.file = file + end
            report.culprit?.line = 2
            let lines = SourceLines.around(report.culprit, writtenAfter: .now()).map(\.plain)
            #expect(lines == (isShown ? ["  1  one", "▶ 2  \\u{1B}two", "  3  three"] : []), "\(lines)")
        }
        report.culprit?.file = fixture.root + "/Cart.swift"
        report.culprit?.line = 99
        #expect(SourceLines.around(report.culprit).isEmpty)
        // As Windows' editors end lines.
        try Data("one\r\ntwo\r\nthree\r\n".utf8).write(to: URL(filePath: fixture.root + "/Cart.swift"))
        report.culprit?.line = 2
        let lines = SourceLines.around(report.culprit, writtenAfter: .now()).map(\.plain)
        #expect(lines == ["  1  one", "▶ 2  two", "  3  three"])
    }
}
