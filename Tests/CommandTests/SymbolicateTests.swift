import Foundation
import StallReports
import Testing

@testable import stall_monitor

@Suite("symbolicate", .timeLimit(.minutes(10)))
struct SymbolicateTests {
    @Test("it says for each report what it found, and once what is missing; exit code 0")
    func directory() throws {
        let fixture = try ReportsFixture()
        try fixture.store.write(Sample.report())
        try fixture.store.write(Sample.report(id: .make()))
        let run = try CommandRun("symbolicate", fixture.path)
        #expect(run.status == 0)
        #expect(run.output.split(separator: "\n").allSatisfy { $0.hasSuffix(": nothing to add") })
        #expect(run.output.split(separator: "\n").count == 2)
    }

    @Test("it prints one report as JSON and leaves its file unchanged")
    func prints() throws {
        let fixture = try ReportsFixture()
        let report = Sample.report()
        try fixture.store.write(report)
        let file = "\(fixture.path)/\(ReportFileName(.stall, report.id))"
        let before = try Data(contentsOf: URL(filePath: file))
        let run = try CommandRun("symbolicate", file, "--print")
        #expect(run.status == 0)
        #expect(try StallReport(json: Array(run.output.utf8)) == report)
        #expect(try Data(contentsOf: URL(filePath: file)) == before)
    }

    @Test("an unreadable report does not stop it, but gives exit code 1; so does a missing directory")
    func failures() throws {
        let fixture = try ReportsFixture()
        try fixture.store.write(Sample.report())
        try fixture.plant("{".utf8)
        let run = try CommandRun("symbolicate", fixture.path)
        #expect(run.status == 1)
        #expect(run.output.contains("nothing to add"))
        #expect(run.errors.contains("cut off"))
        #expect(try CommandRun("symbolicate", fixture.root + "/none").status == 1)
    }

    @Test("in a directory without stalls it says so, and where there are some below it")
    func noStalls() throws {
        let fixture = try ReportsFixture()
        let empty = "\(fixture.root)/empty"
        try FileManager.default.createDirectory(atPath: empty, withIntermediateDirectories: true)
        let run = try CommandRun("symbolicate", empty)
        #expect(run.status == 0 && run.output.isEmpty && run.errors == "stall-monitor: no stalls\n")
        try fixture.store.write(Sample.report())
        let above = try CommandRun("symbolicate", fixture.root)
        #expect(above.status == 0 && above.output.isEmpty)
        #expect(above.errors.contains("no stalls in \(fixture.root) itself") && above.errors.contains(fixture.path))
    }

    @Test("what refuses the drafts of all reports is said once, of the directory")
    func drafts() {
        let errors = (0..<3).map { _ in
            ReportError(.permissionDenied, path: "/r/.draft-\(ULID.make())", errorNumber: EACCES)
        }
        let told = Set(errors.map { SymbolicationWork.ofDirectory($0, "/r") })
        #expect(told == [ReportError(.permissionDenied, path: "/r", errorNumber: EACCES)])
        let other = ReportError(.torn, path: "/r/stall.json")
        #expect(SymbolicationWork.ofDirectory(other, "/r") == other)
    }

    @Test("a file with the same path from another build is not used; this is reported once")
    func otherBuild() throws {
        let fixture = try ReportsFixture()
        var report = Sample.report(id: .make())
        report.modules = [.init(path: "/usr/bin/env", buildID: "0123456789abcdef", loadBase: 0)]
        report.stacks[0].frames = [.init(address: 0x2000, module: 0, offset: 0x2000)]
        report.culprit = nil
        try fixture.store.write(report)
        for command in [["symbolicate", fixture.path], ["show", "latest", fixture.path]] {
            let run = try CommandRun(arguments: command)
            #expect(run.status == 0)
            #expect(
                run.errors.split(separator: "\n").count { $0.contains("/usr/bin/env: is of another build") } == 1
            )
        }
        // The page comes first, where both go to a terminal.
        let words = "exec '\(CommandRun.executable.path)' show latest '\(fixture.path)' 2>&1"
        let lines = try CommandRun(tool: "/bin/sh", ["-c", words]).output.split(separator: "\n")
        #expect(lines.count > 2 && lines.last?.contains("/usr/bin/env: is of another build") == true, "\(lines)")
    }
}
