import Foundation
import StallReports
import TestSupport
import Testing

@Suite("list and show", .timeLimit(.minutes(10)))
struct ListAndShowTests {
    let fixture: ReportsFixture

    init() throws { fixture = try ReportsFixture() }

    @Test("list: a table, the newest last, with ids long enough to be unique")
    func table() throws {
        let ids = [ULID(rawValue: 1 << 90), ULID(rawValue: 1 << 90 + 1 << 80)]
        for id in ids { try fixture.store.write(Sample.report(id: id)) }
        let run = try CommandRun("list", fixture.path)
        #expect(
            run.output == """
                ID          STARTED               STATE      DURATION  KIND     VERDICT  CULPRIT                         LABEL  FAULT
                0000000100  2026-11-18T11:06:40Z  recovered  612ms     blocked  waiting  shop.Cart.total() -> Swift.Int  main   aa296773
                0000000101  2026-11-18T11:06:40Z  recovered  612ms     blocked  waiting  shop.Cart.total() -> Swift.Int  main   aa296773

                """
        )
        #expect(run.status == 0 && run.errors.isEmpty)
    }

    @Test("list: given a file of a report directory, it names the directory to give")
    func fileOfDirectory() throws {
        let run = Sample.run()
        try fixture.store.write(run)
        let list = try CommandRun("list", "\(fixture.path)/\(ReportFileName(.run, run.id))")
        #expect(list.status == 1 && list.errors.contains(": a directory is expected, "), "\(list.errors)")
        #expect(list.errors.hasSuffix("; give \(fixture.path)\n"), "\(list.errors)")
    }

    @Test("list and show: counted-only stalls appear with the report that they repeat")
    func repeats() throws {
        let (first, second) = (Sample.report(), Sample.report(id: .make()))
        var (next, run) = (second, Sample.run())
        next.repeats = Sample.repeats(of: first.id, count: 3)
        run.repeated = [.init(fingerprint: next.fingerprint, repeats: Sample.repeats(of: next.id, count: 37))]
        for report in [first, next] { try fixture.store.write(report) }
        try fixture.store.write(run)
        let lines = try CommandRun("list", fixture.path).output.split(separator: "\n")
        #expect(lines[0].hasSuffix("LABEL  FAULT     REPEATS"))
        #expect(lines[1].hasSuffix("main   aa296773  ×3 since 2026-11-18T11:06:41Z"))
        #expect(lines[2].hasSuffix("main   aa296773  ×37 since 2026-11-18T11:06:41Z"))
        let page = try CommandRun("show", "latest", fixture.path).output
        #expect(page.contains("×37 since 2026-11-18T11:06:41Z, the last at 2026-11-18T11:06:49Z"))
        #expect(page.contains("4s together, the longest 590ms"))
        #expect(page.contains("3 more stalls were only counted before it: ×3 since 2026-11-18T11:06:41Z"))
    }

    @Test("list: counted-only stalls are also reported when there is no report to show them with")
    func countedOnly() throws {
        var run = Sample.run()
        let fault = Sample.report().fingerprint
        run.repeated = [.init(fingerprint: fault, repeats: Sample.repeats(of: .make(), count: 37))]
        try fixture.store.write(run)
        let list = try CommandRun("list", fixture.path)
        #expect(list.errors.contains("no stalls"))
        #expect(list.errors.contains("only counted: \(fault) ×37 since 2026-11-18T11:06:41Z"))
        let later = try CommandRun("list", fixture.path, "--since", "2026-11-18T11:06:50Z")
        #expect(!later.errors.contains("only counted"))
        // The report ended before this moment; some of the counted ones did not.
        let report = Sample.report()
        run.repeated = [.init(fingerprint: fault, repeats: Sample.repeats(of: report.id, count: 37), label: "main")]
        run.updatedAt = Sample.start.advanced(byNanoseconds: 60_000_000_000)
        try fixture.store.write(report)
        try fixture.store.write(run)
        #expect(!(try CommandRun("list", fixture.path).errors.contains("only counted")))
        let since = try CommandRun("list", fixture.path, "--since", "2026-11-18T11:06:45Z")
        #expect(since.errors.contains("only counted: \(fault) in shop.Cart.total()"), "\(since.errors)")
        // As if they had come evenly.
        #expect(since.errors.contains(" on main ×19 since 2026-11-18T11:06:45Z"), "\(since.errors)")
        for command in [["list"], ["tail"], ["show", "latest"], ["export", "--format", "csv"]] {
            let empty = try CommandRun(arguments: command + [fixture.path, "--since", "2026-11-18T11:06:45Z"])
            let note = "no matching stalls among 1, but 19 were only counted: 'stall-monitor faults' has them; 1 loop"
            #expect(empty.errors.contains(note), "\(command): \(empty.errors)")
        }
        run.repeated = try (10..<35).map { number in
            let other = try #require(Fingerprint(rawValue: "v2:00000000000000\(number)"))
            return .init(fingerprint: other, repeats: Sample.repeats(of: .make(), count: 2))
        }
        try fixture.store.write(run)
        let lines = try CommandRun("list", fixture.path).errors.split(separator: "\n")
        let many = lines.filter { $0.contains("only counted") }
        #expect(many.count == 21 && many[0].contains("only counted: 5 more; "), "\(many)")
        #expect(many.last?.contains("v2:0000000000000010 ") == true, "\(many)")
    }

    @Test("list --since: stalls that a listed report counted since an older report are noted, as faults counts them")
    func countedByReport() throws {
        let (old, repeats) = (Sample.report(), Sample.repeats(of: Sample.report().id, count: 37))
        var new = Sample.report(id: .make())
        new.startedAt = Sample.start.advanced(byNanoseconds: 10_000_000_000)
        new.endedAt = new.startedAt.advanced(byNanoseconds: 600_000_000)
        (new.suppressed, new.repeats) = (37, repeats)
        for report in [old, new] { try fixture.store.write(report) }
        let all = try CommandRun("list", fixture.path)
        #expect(all.output.contains("×37 since ") && !all.errors.contains("only counted"), "\(all.errors)")
        for (since, count) in [("11:06:45", 19), ("11:06:50", nil)] as [(String, Int?)] {
            let time = ["--since", "2026-11-18T\(since)Z"]
            let list = try CommandRun(arguments: ["list", fixture.path] + time)
            #expect(list.output.split(separator: "\n").count == 2, "\(list.output)")
            let note = count.map { " on main ×\($0) since 2026-11-18T\(since)Z" } ?? "only counted"
            #expect(list.errors.contains(note) == (count != nil), "\(list.errors)")
            let faults = try CommandRun(arguments: ["faults", fixture.path, "--format", "json"] + time)
            let document = try JSONSerialization.jsonObject(with: Data(faults.output.utf8)) as? [String: Any]
            let fault = (document?["faults"] as? [[String: Any]])?.first
            #expect(fault?["count"] as? Int == 1 + (count ?? 0), "\(faults.output)")
        }
    }

    @Test("list: long jobs are noted for the latest three task pools, with their host if there are several")
    func longJobs() throws {
        for index in 1...5 {
            var (run, pool) = (Sample.run(), RunRecord.Watched(type: .taskPool, label: "tasks"))
            pool.turnDurations = .init(count: 9, p50Ns: 1_000, p99Ns: 1_000, maxNs: 700_000_000)
            (run.host.name, run.watched) = ("web\(index)", [pool])
            try fixture.store.write(run)
        }
        func notes(_ options: String...) throws -> [String] {
            let run = try CommandRun(arguments: ["list", fixture.path] + options)
            return run.errors.split(separator: "\n").filter { $0.contains("jobs") }.map(String.init)
        }
        let all = try notes()
        #expect(all.first == "stall-monitor: task pools of earlier runs had long jobs, too")
        let latest = (3...5).map { "stall-monitor: tasks of process 4711 on web\($0): 9 jobs, the longest 700ms" }
        #expect(Array(all.dropFirst()) == latest)
        #expect(try notes("--host", "web2") == ["stall-monitor: tasks of process 4711: 9 jobs, the longest 700ms"])
    }

    @Test("list --sort: the most important comes last; JSON has the same order")
    func sorted() throws {
        var reports = (0..<3).map { _ in Sample.report(id: .make()) }
        (reports[0].durationNs, reports[0].severity, reports[0].watched.label) = (9_000_000_000, .warning, "b")
        (reports[1].severity, reports[1].watched.label) = (.critical, "a")
        (reports[2].durationNs, reports[2].watched.label) = (500_000_000, "c")
        for report in reports { try fixture.store.write(report) }
        func order(_ options: String...) throws -> [Int] {
            let run = try CommandRun(arguments: ["list", fixture.path, "--format", "json"] + options)
            return run.output.split(separator: "\n").compactMap { line in
                reports.firstIndex { line.contains("\"id\":\"\($0.id)\"") }
            }
        }
        #expect(try order() == [0, 1, 2])
        #expect(try order("--sort", "duration") == [2, 1, 0])
        #expect(try order("--sort", "severity") == [0, 2, 1])
        #expect(try order("--sort", "label") == [1, 0, 2])
        #expect(try CommandRun("list", fixture.path, "--sort", "size").status == 64)
    }

    @Test("show latest~1: the stall before the latest selected one; before the first there is none")
    func beforeLatest() throws {
        let ids = (0..<3).map { _ in ULID.make() }
        for id in ids { try fixture.store.write(Sample.report(id: id)) }
        func shown(_ name: String, _ options: String...) throws -> CommandRun {
            try CommandRun(arguments: ["show", name, fixture.path] + options)
        }
        #expect(try shown("latest").output.contains("\(ids[2])") && shown("latest~0").output.contains("\(ids[2])"))
        #expect(try shown("latest~1").output.contains("\(ids[1])") && shown("LATEST~").output.contains("\(ids[1])"))
        #expect(try shown("latest~2", "--verdict", "waiting").output.contains("\(ids[0])"))
        let none = try shown("latest~3")
        #expect(none.status == 1 && none.errors.contains("there are only 3 matching stalls"))
        var other = Sample.report(id: .make())
        other.watched.label = "worker"
        try fixture.store.write(other)
        #expect(try shown("latest~1", "--label", "worker").errors.contains("there is only 1 matching stall"))
        #expect(try shown("latest~x").status == 64 && shown("latest~-1").status == 64)
    }

    @Test("list --format json: one array of complete reports")
    func json() throws {
        let reports = (0..<3).map { _ in Sample.report(id: .make()) }
        for report in reports { try fixture.store.write(report) }
        let run = try CommandRun("list", fixture.path, "--format", "json")
        let array = try JSONSerialization.jsonObject(with: Data(run.output.utf8)) as? [[String: Any]]
        #expect(array?.map { $0["id"] as? String } == reports.map(\.id.description))
    }

    @Test("'no stalls' and 'no sign of a monitor' are distinguished")
    func empty() throws {
        try fixture.store.prepare()
        #expect(try CommandRun("list", fixture.path).errors.contains("no monitor has ever written here"))
        try fixture.store.write(Sample.run())
        let run = try CommandRun("list", fixture.path)
        #expect(run.errors == "stall-monitor: no stalls; 1 loop was watched, for 1m\n")
        #expect(run.status == 0 && run.output.isEmpty)
        #expect(try CommandRun("list", fixture.path, "--format", "json").output == "[]\n")
    }

    @Test(
        "reports that could not be written are mentioned: without them, a stall looks like none",
        arguments: ["list", "faults"]
    )
    func lost(command: String) throws {
        var run = Sample.run()
        run.lostWrites = 3
        try fixture.store.write(run)
        let note =
            "stall-monitor: 3 reports could not be written, or not completely; 'stall-monitor doctor' says more\n"
        let none = try CommandRun(command, fixture.path)
        #expect(none.status == 0 && none.errors == "stall-monitor: no stalls; 1 loop was watched, for 1m\n" + note)
        try fixture.store.write(Sample.report())
        #expect(try CommandRun(command, fixture.path).errors == note)
        #expect(try CommandRun(command, fixture.path, "--format", "json").errors.isEmpty)
        #expect(try !CommandRun(command, fixture.path, "--since", "2026-11-20").errors.contains(note))
    }

    @Test(
        "a directory with stalls was written by a monitor, even if its run records are gone",
        arguments: ["list", "faults"]
    )
    func withoutRuns(command: String) throws {
        try fixture.store.write(Sample.report())
        let run = try CommandRun(command, fixture.path, "--service", "other")
        #expect(run.errors.hasPrefix("stall-monitor: no matching stalls"), "\(run.errors)")
    }

    @Test("torn and hostile files: one line each; the rest is shown; exit code 1")
    func badFiles() throws {
        let report = Sample.report(id: .make())
        try fixture.store.write(report)
        try fixture.plant("{\"schema\"".utf8)
        try fixture.plant(String(repeating: "[", count: 100_000).utf8)
        try fixture.plant("\u{1B}[2J".utf8)
        let run = try CommandRun("list", fixture.path)
        #expect(run.output.contains("shop.Cart.total()"))
        #expect(run.errors.split(separator: "\n").count == 3)
        #expect(!run.errors.commandsTerminal)
        #expect(run.status == 1)
        try FileManager.default.removeItem(atPath: "\(fixture.path)/\(ReportFileName(.stall, report.id))")
        #expect(
            try CommandRun("list", fixture.path).errors.hasPrefix("stall-monitor: no stalls in what can be read")
        )
    }

    @Test("a report with terminal commands in every string sends none to the terminal, in any format")
    func hostileStrings() throws {
        let hostile = try Sample.hostile()
        try fixture.store.write(hostile)
        for arguments in [["list"], ["tail"], ["show", "latest"], ["gate", "--max-stalls", "0"]] {
            for format in arguments[0] == "gate" ? ["text", "json", "junit"] : ["text", "json"] {
                let run = try CommandRun(arguments: arguments + [fixture.path, "--format", format])
                #expect(!run.output.isEmpty)
                #expect(!run.output.commandsTerminal, "\(arguments) \(format)")
                #expect(!run.errors.commandsTerminal)
            }
        }
        let json = try CommandRun("show", "latest", fixture.path, "--format", "json").output
        #expect(try StallReport(json: Array(json.utf8)) == hostile)
    }

    @Test("show: latest, by id prefix in either case, from the environment's directory")
    func choice() throws {
        let (old, new) = (Sample.report(), Sample.report(id: .make()))
        try fixture.store.write(old)
        try fixture.store.write(new)
        #expect(try CommandRun("show", "latest", fixture.path).output.contains(new.id.description))
        #expect(try CommandRun("show", "0000000100", "--reports", fixture.path).output.contains(old.id.description))
        let prefix = String(new.id.description.prefix(12)).lowercased()
        let environment = ["STALL_MONITOR_DIRECTORY": fixture.path]
        #expect(try CommandRun("show", prefix, environment: environment).output.contains(new.id.description))
    }

    @Test("show: an id without its middle, as lists have it; list -n: those that are sorted last")
    func elidedChoice() throws {
        let ids = (1...3).map { ULID(rawValue: 1 << 100 + $0) }
        for id in ids { try fixture.store.write(Sample.report(id: id)) }
        for text in ["00000100…000002", "00000100..000002"] {
            #expect(try CommandRun("show", text, fixture.path).output.contains("Report  \(ids[1])"))
        }
        #expect(try CommandRun("show", "00000100…000009", fixture.path).status == 1)
        #expect(try CommandRun("show", "00000100…", fixture.path).status == 64)
        let list = try CommandRun("list", fixture.path, "-n", "2").output
        #expect(!list.contains("\(ids[0])") && list.contains("\(ids[1])") && list.contains("\(ids[2])"))
        #expect(try CommandRun("list", fixture.path, "-n", "-1").status == 64)
        for text in ["-n2", "-n=2"] { #expect(try CommandRun("list", text, fixture.path).output == list) }
        let tail = try CommandRun("tail", fixture.path, "-n", "2").output
        #expect(try CommandRun("tail", fixture.path, "-n2").output == tail)
        #expect(try CommandRun("faults", fixture.path, "-n0").errors.contains("raise -n to see all"))
    }

    @Test("show: an ambiguous or unknown id is a helpful error; an invalid id is wrong usage")
    func badChoice() throws {
        for _ in 0..<2 { try fixture.store.write(Sample.report(id: .make())) }
        let ambiguous = try CommandRun("show", "01", fixture.path)
        #expect(ambiguous.status == 1 && ambiguous.errors.contains("2 stalls' ids begin with 01"))
        #expect(try CommandRun("show", "7", fixture.path).errors.contains("no stall's id begins with 7"))
        #expect(try CommandRun("show", "../x", fixture.path).status == 64)
        #expect(try CommandRun("show", "latest", fixture.path, "--reports", fixture.path).status == 64)
    }

    @Test("missing symbol files are an error, for show and for symbolicate")
    func missingSymbols() throws {
        try fixture.store.write(Sample.report(id: .make()))
        for arguments in [["show", "latest"], ["symbolicate"]] {
            let run = try CommandRun(arguments: arguments + [fixture.path, "--symbols", "/nowhere"])
            #expect(run.status == 1 && run.errors.contains("--symbols /nowhere: No such file or directory"))
        }
    }

    @Test("without a directory: ./stall-reports; if there is none, how to give another one")
    func defaultDirectory() throws {
        let none = try CommandRun("list", directory: fixture.root)
        #expect(none.status == 1 && none.errors.contains("or set $STALL_MONITOR_DIRECTORY"), "\(none.errors)")
        try ReportDirectory(path: fixture.root + "/stall-reports").write(Sample.report())
        let run = try CommandRun("list", directory: fixture.root)
        #expect(run.output.contains("shop.Cart.total()"))
    }

    @Test("of many files that cannot be read for one reason, ten are named and the others counted")
    func unreadable() throws {
        try FileManager.default.createDirectory(atPath: fixture.path, withIntermediateDirectories: true)
        for _ in 0..<11 { try Data().write(to: URL(filePath: "\(fixture.path)/\(ReportFileName(.stall, .make()))")) }
        let eleven = try CommandRun("list", fixture.path)
        #expect(
            eleven.status == 1 && eleven.errors.split(separator: "\n").filter { $0.contains("cut off") }.count == 11
        )
        for _ in 0..<19 { try Data().write(to: URL(filePath: "\(fixture.path)/\(ReportFileName(.stall, .make()))")) }
        let many = try CommandRun("list", fixture.path)
        #expect(many.status == 1 && many.errors.split(separator: "\n").filter { $0.contains("cut off") }.count == 10)
        #expect(
            many.errors.hasSuffix(
                "stall-monitor: and 20 more files or directories cannot be read, for the same reason\n"
            ),
            "\(many.errors)"
        )
        let mixed = try ReportsFixture()
        try FileManager.default.createDirectory(atPath: mixed.path, withIntermediateDirectories: true)
        for index in 0..<20 {
            let json = index % 2 == 0 ? "{}" : #"{"schema":7}"#
            try Data(json.utf8).write(to: URL(filePath: "\(mixed.path)/\(ReportFileName(.stall, .make()))"))
        }
        let errors = try CommandRun("list", mixed.path).errors
        #expect(errors.hasSuffix("and 10 more files or directories cannot be read\n"), "\(errors)")
        let gate = try CommandRun("gate", fixture.path)
        #expect(
            gate.status == 1 && gate.output.contains("\n  cannot judge: … 11 more reasons; --format json has all\n")
        )
    }

    @Test("show latest: a later-named file that is no report is mentioned; the latest report is shown")
    func latestReadable() throws {
        let report = Sample.report()
        try fixture.store.write(report)
        let junk = fixture.path + "/stall-7ZZZZZZZZZZZZZZZZZZZZZZZZZ.json"
        try Data("no report".utf8).write(to: URL(filePath: junk))
        let run = try CommandRun("show", "latest", fixture.path)
        #expect(run.status == 0 && run.output.contains("\(report.id)") && run.errors.contains("7ZZZZZZZZZZZZ"))
    }

    @Test("an empty directory name is wrong usage; the error for a long path shows the reason")
    func odd() throws {
        for arguments in [["tail", "-f", ""], ["list", ""], ["gate", ""], ["show", "latest", "--reports", ""]] {
            let run = try CommandRun(arguments: arguments)
            #expect(run.status == 64 && run.errors.contains("the report directory's name is empty"), "\(arguments)")
        }
        let long = try CommandRun("list", "/tmp/" + String(repeating: "a", count: 5000))
        #expect(long.status == 1 && long.errors.contains("File name too long"))
    }
}
