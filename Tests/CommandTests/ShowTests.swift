import Foundation
import Glibc
import StallReports
import Testing

@testable import stall_monitor

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

@Suite("show with choosing options", .timeLimit(.minutes(5)))
struct ExcludedStallTests {
    @Test("with an id or a file, too, the choosing options apply: a stall that they exclude is an error")
    func excluded() throws {
        let fixture = try ReportsFixture()
        let report = Sample.report(id: .make())
        try fixture.store.write(report)
        let file = "\(fixture.path)/\(ReportFileName(.stall, report.id))"
        for place in [["\(report.id)", fixture.path], [file]] {
            #expect(try CommandRun(arguments: ["show"] + place + ["--verdict", "waiting"]).status == 0)
            let run = try CommandRun(arguments: ["show"] + place + ["--host", "no-such-host"])
            #expect(run.status == 1 && run.output.isEmpty)
            #expect(run.errors.contains("does not match the choosing options"), "\(run.errors)")
        }
        let fault = ["show", "\(report.fingerprint)", fixture.path]
        #expect(try CommandRun(arguments: fault + ["--fingerprint", "\(report.fingerprint)"]).status == 0)
        #expect(try CommandRun(arguments: fault + ["--fingerprint", "ffff"]).status == 1)
    }
}

@Suite("show of a report by itself", .timeLimit(.minutes(5)))
struct SingleReportTests {
    private let fixture: ReportsFixture
    private let report = Sample.report(id: .make())
    private var file: String { fixture.root + "/other.json" }

    init() throws {
        fixture = try ReportsFixture()
        try plant("other.json", report.json())
    }

    private func plant(_ name: String, _ bytes: [UInt8]) throws {
        try Data(bytes).write(to: URL(filePath: "\(fixture.root)/\(name)"))
    }

    /// Runs the command in a shell, in the directory of the files.
    private func shell(_ words: String) throws -> CommandRun {
        let command = "cd '\(fixture.root)' && '\(CommandRun.executable.path)' show \(words)"
        return try CommandRun(tool: "/bin/sh", ["-c", command])
    }

    @Test("a file of any name, or a link to one, is shown as the same report in its directory is")
    func anyName() throws {
        try fixture.store.write(report)
        let page = try CommandRun("show", "\(report.id)", fixture.path)
        #expect(page.status == 0 && page.output.contains("\(report.id)"))
        try plant("abcd", report.json())
        for link in ["link", "\(ReportFileName(.stall, report.id))"] {
            try FileManager.default.createSymbolicLink(atPath: "\(fixture.root)/\(link)", withDestinationPath: file)
        }
        for name in [file, "\(fixture.root)/abcd", "\(fixture.root)/link"] {
            #expect(try CommandRun("show", name).output == page.output, "\(name)")
        }
        for name in ["other.json", "./link", "./abcd", "./\(ReportFileName(.stall, report.id))"] {
            let run = try CommandRun("show", name, directory: fixture.root)
            #expect(run.status == 0 && run.output == page.output, "\(name): \(run.errors)")
        }
        let json = try CommandRun("show", file, "--format", "json").output
        #expect(try StallReport(json: Array(json.utf8)) == report)
        // It could be part of an id.
        #expect(try CommandRun("show", "abcd", directory: fixture.root).errors.contains("stall-reports"))
    }

    @Test("'-' reads standard input, from a file or a pipe, and so does /dev/stdin")
    func standardInput() throws {
        let page = try CommandRun("show", file).output
        for words in ["- < other.json", "/dev/stdin < other.json", "- --no-pager < other.json"] {
            #expect(try shell(words).output == page, "\(words)")
        }
        let pipe = "cat '\(file)' | '\(CommandRun.executable.path)' show -"
        #expect(try CommandRun(tool: "/bin/sh", ["-c", pipe]).output == page)
        let empty = try shell("- < /dev/null")
        #expect(empty.status == 1 && empty.output.isEmpty, "\(empty.output)")
        #expect(empty.errors.contains("standard input: this is no report: it is empty or cut off"), "\(empty.errors)")
    }

    @Test("what is no report is one clear error; nothing is waited for")
    func noReport() throws {
        var impossible = report
        impossible.durationNs = -1
        try plant("impossible", impossible.json())
        try plant("run", Sample.run().json())
        try plant("deep", Array(String(repeating: "[", count: 100_000).utf8))
        try plant("torn", Array("{\"schema\":".utf8))
        try plant("text", Array("\u{1B}[2Jno report".utf8))
        try plant("large", [])
        #expect(unsafe truncate("\(fixture.root)/large", 16 << 20 + 1) == 0)
        #expect(unsafe mkfifo("\(fixture.root)/pipe", 0o600) == 0)
        for (name, reason) in [
            ("impossible", "no report of a stall (a duration is negative)"), ("run", "(its schema is 'stall-run/1', "),
            ("deep", "nested too deep"), ("torn", "empty or cut off"), ("text", "no report of a stall (not JSON)"),
            ("large", "larger than 16 MiB"), ("pipe", "no regular file"), ("none", "No such file or directory"),
        ] {
            let run = try CommandRun("show", "./\(name)", directory: fixture.root)
            #expect(run.status == 1 && run.output.isEmpty, "\(name): \(run.output)")
            #expect(run.errors.contains("./\(name): ") && run.errors.contains(reason), "\(run.errors)")
            #expect(run.errors.split(separator: "\n").count == 1 && !run.errors.commandsTerminal, "\(run.errors)")
        }
    }

    @Test("the choosing options apply, and a directory beside it is wrong usage")
    func options() throws {
        #expect(try CommandRun("show", file, "--verdict", "waiting").status == 0)
        let run = try CommandRun("show", file, "--host", "no-such-host")
        #expect(run.status == 1 && run.errors.contains("does not match the choosing options"), "\(run.errors)")
        for arguments in [[file, fixture.path], ["-", fixture.path], [file, "--reports", fixture.path]] {
            #expect(try CommandRun(arguments: ["show"] + arguments).status == 64, "\(arguments)")
        }
    }
}
