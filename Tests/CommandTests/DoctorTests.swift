import Foundation
import StallReading
import StallReports
import Testing

@testable import stall_monitor

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

    @Test("of the reports without a stack it names the latest, and not one that has a stack")
    func namesReportWithoutStack() throws {
        let fixture = try ReportsFixture()
        try fixture.store.prepare()
        let ids = (1...3).map { ULID(rawValue: 1 << 90 + $0 << 80) }
        for id in ids {
            var report = Sample.report(id: id)
            if id != ids[2] { (report.stacks, report.culprit) = ([], nil) }
            try fixture.store.write(report)
        }
        let facts = DoctorFacts().withDirectory(fixture.path)
        let stacks = Doctor(facts: facts).reports.first { $0.check == "stacks" }
        #expect(stacks?.found == "2 of the latest 3 reports have no stack")
        #expect(stacks?.fix == "Why: stall-monitor show \(ids[1]) \(fixture.path)")
    }

    @Test("code that was generated at run time, such as a script's, does not lack lines: no build would give it any")
    func generatedCode() throws {
        let fixture = try ReportsFixture()
        try fixture.store.prepare()
        var report = Sample.report(id: .make())
        report.stacks[0].frames[2].module = nil
        report.culprit?.function = "handle"
        report.culprit?.file = "/srv/app.py"
        try fixture.store.write(report)
        func lines() -> DoctorFinding? {
            let facts = DoctorFacts().withDirectory(fixture.path)
            return Doctor(facts: facts).reports.first { $0.check == "debug_information" }
        }
        #expect(lines()?.level == .ok && lines()?.found == "the only report does not lack debug information")
        try fixture.store.write(Sample.report(id: .make()))
        #expect(lines()?.found == "1 of the latest 2 reports has no source line")
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
