import Foundation
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
