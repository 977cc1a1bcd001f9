import Foundation
import Testing

@Suite("Manual pages", .timeLimit(.minutes(5)))
struct ManPageTests {
    private static let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent().path

    private func pages(in folder: String) throws -> [String] {
        let make =
            "'\(CommandRun.executable.path)' --experimental-dump-help | python3 '\(Self.root)/config/man/pages.py' '\(folder)' 1"
        let run = try CommandRun(tool: "/bin/sh", ["-c", make])
        #expect(run.status == 0, "\(run.errors)")
        return run.output.split(separator: "\n").map(String.init)
    }

    @Test("each subcommand has one, with its options, examples and exit codes")
    func complete() throws {
        let fixture = try ReportsFixture()
        let pages = try pages(in: fixture.root)
        for subcommand in HelpTests.subcommands where !subcommand.contains(" ") {
            let page = fixture.root + "/stall-monitor-\(subcommand).1"
            #expect(pages.contains(page))
            let text = try String(contentsOfFile: page, encoding: .utf8)
            for part in [".SH NAME\n", ".SH EXIT STATUS\nExit code 0", ".SH \"EXAMPLES\"\n"] {
                #expect(text.contains(part), "\(subcommand): \(part)")
            }
        }
        let show = try String(contentsOfFile: fixture.root + "/stall-monitor-show.1", encoding: .utf8)
        #expect(show.contains("\\fB\\-\\-no\\-pager\\fR\nDo not show long output"))
        #expect(show.contains("\\fB\\-\\-index\\fR, \\fB\\-\\-no\\-index\\fR\nRead each report once"))
        let gate = try String(contentsOfFile: fixture.root + "/stall-monitor-gate.1", encoding: .utf8)
        #expect(gate.contains(".SH \"GATE BASELINE RECORD\"\n") && gate.contains("\nExit code 0: recorded."))
    }

    @Test(
        "man gives no warnings",
        .enabled(if: FileManager.default.isExecutableFile(atPath: "/usr/bin/man"), "man is not installed")
    )
    func warnings() throws {
        let fixture = try ReportsFixture()
        for page in try pages(in: fixture.root) {
            let command =
                "LC_ALL=C.UTF-8 MANWIDTH=80 man --warnings --encoding=UTF-8 --troff-device=utf8 --ditroff --local-file '\(page)' >/dev/null"
            let run = try CommandRun(tool: "/bin/sh", ["-c", command])
            #expect(run.status == 0 && run.errors.isEmpty, "\(page): \(run.errors)")
        }
    }
}
