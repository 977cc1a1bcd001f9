import Foundation
import StallReading
import StallReports
import TestSupport
import Testing

/// Real commands: `stall-corpus --host`, which embeds a monitor, and programs without one. On a slow machine the
/// watched server stalls as well, or ends before it is watched.
@Suite("gate run", .serialized, .timeLimit(.minutes(60)), .repeatedWhenLate(by: .milliseconds(50)))
struct GateRunTests {
    private static let host = URL.built("stall-corpus").path

    private let fixture: ReportsFixture

    init() throws { fixture = try ReportsFixture(inMemory: true) }

    /// Shell code that waits up to a minute for a watched server's live record.
    static let untilWatched =
        #"i=0; until ls "$STALL_MONITOR_DIRECTORY"/live-* >/dev/null 2>&1 || [ $i -ge 600 ]; do i=$((i+1)); sleep 0.1; done;"#

    /// Shell code that waits up to a minute until a loop is watched from outside: the watcher's run record lists it.
    private static let untilFound =
        #"i=0; until grep -q '"watched_ns"' "${STALL_MONITOR_DIRECTORY%/inside}"/outside/run-* 2>/dev/null || [ $i -ge 600 ]; do i=$((i+1)); sleep 0.1; done;"#

    /// A shell line that gives the watched server orders and ends it cleanly: it carries out all of them before it ends. The
    /// server is watched for more than a second, however late it starts.
    private func server(_ orders: String, rest: String = "sleep 2.5") -> [String] {
        return [
            "--", "/bin/sh", "-c",
            "(\(Self.untilWatched) \(orders) \(rest)) | '\(Self.host)' --host \"$STALL_MONITOR_DIRECTORY\" >/dev/null",
        ]
    }

    private func gate(_ arguments: [String]) throws -> CommandRun {
        try CommandRun(arguments: ["gate", "run"] + arguments, environment: ["TMPDIR": fixture.root])
    }

    private var leftovers: [String] { get throws { try FileManager.default.contentsOfDirectory(atPath: fixture.root) } }

    @Test("a stalling server is over budget and its reports stay; one without stalls is within and leaves nothing")
    func embedded() throws {
        let well = try gate(server(""))
        #expect(well.status == 0 && well.errors.hasPrefix("within budget: 0 stalls"), "\(well.errors)")
        #expect(try leftovers.isEmpty)
        let stalled = try gate(server("echo sleep 2000; sleep 1;"))
        #expect(
            stalled.status == 2 && stalled.errors.contains("over budget: 1 stall, 0 permitted"),
            "\(stalled.errors)"
        )
        let folder = try #require(try leftovers.first)
        #expect(stalled.errors.contains("reports are in \(fixture.root)/\(folder)"))
        #expect(try ReportReader(path: "\(fixture.root)/\(folder)/run-1/inside").overview().stalls.count == 1)
    }

    @Test("a command's own exit status is kept; a program that nobody watched cannot be judged")
    func endings() throws {
        let failed = try gate(["--", "/bin/sh", "-c", "exit 7"])
        #expect(failed.status == 7 && failed.errors.contains("/bin/sh ended with exit status 7"))
        #expect(try gate(["--", "/bin/sh", "-c", "exit 3"]).status == 1, "3 would be read as inconclusive")
        let unwatched = try gate(["--keep", fixture.root + "/kept", "--", "/bin/true"])
        #expect(unwatched.status == 1 && unwatched.errors.hasPrefix("cannot judge: "), "\(unwatched.errors)")
        #expect(try gate(["--keep", fixture.root + "/kept", "--", "/bin/true"]).status == 1)
        let before = try leftovers
        #expect(try gate(["--", fixture.root + "/none"]).status == 127)
        #expect(try gate(["--", fixture.root]).status == 126)
        #expect(try leftovers == before, "a command that cannot be started leaves no folder")
        let once = fixture.root + "/once"
        try Data("#!/bin/sh\nrm \"$0\"\n".utf8).write(to: URL(filePath: once))
        try FileManager.default.setAttributes([.posixPermissions: 0o700], ofItemAtPath: once)
        let second = try gate(["--repeat", "2", "--", once])
        #expect(
            second.status == 127 && second.errors.contains("ended after 1 whole run; reports are in "),
            "\(second.errors)"
        )
        let named = fixture.root + "/named"
        #expect(try gate(["--keep", named, "--", fixture.root + "/none"]).status == 127)
        #expect(!FileManager.default.fileExists(atPath: named), "nor one of --keep that it has made")
        try FileManager.default.createDirectory(atPath: named, withIntermediateDirectories: false)
        for _ in 0..<2 {
            let misspelt = try gate(["--keep", named, "--", fixture.root + "/none"])
            #expect(misspelt.status == 127, "the user's own stays, and stays empty: \(misspelt.errors)")
        }
        let unbased = try gate(["--baseline", fixture.root + "/none.json", "--", "/bin/echo", "it ran"])
        #expect(unbased.status == 1 && unbased.output.isEmpty, "a missing baseline is reported before the command runs")
        #expect(unbased.errors.contains("there is no baseline \(fixture.root)/none.json"), "\(unbased.errors)")
        try "budgets: []".write(toFile: fixture.root + "/budget.yaml", atomically: true, encoding: .utf8)
        let other = try gate(["--baseline", fixture.root + "/budget.yaml", "--", "/bin/true"])
        #expect(other.errors.contains("/budget.yaml is not a baseline: not JSON"), "\(other.errors)")
        let healthy = try ReportsFixture()
        try healthy.store.write(Sample.run())
        let fixed = try gate(["--baseline", healthy.path, "--tighten", "--", "/bin/echo", "it ran"])
        #expect(fixed.status == 1 && fixed.output.isEmpty, "so is one that cannot be tightened")
        #expect(fixed.errors.contains("--tighten needs a baseline in a file"), "\(fixed.errors)")
        #expect(try gate([]).status == 64)
        #expect(try gate(["--repeat", "0", "--", "/bin/true"]).status == 64)
    }

    @Test("after SIGTERM no other run is started, although the command ended well")
    func terminated() throws {
        let script = "trap 'exit 0' TERM; echo started; while :; do sleep 0.1; done"
        let run = try RunningCommand(
            arguments: ["gate", "run", "--repeat", "2", "--", "/bin/sh", "-c", script],
            environment: ["TMPDIR": fixture.root]
        )
        #expect(try run.line() == "started")
        run.send(SIGTERM)
        try #require(try run.line() == nil)
        #expect(run.status() == 143)
        var lines: [String] = []
        while let line = try run.errorLine() { lines.append(line) }
        #expect(lines.last?.contains("ended after 0 whole runs; reports are in \(fixture.root)/") == true, "\(lines)")
    }

    @Test("an empty $TMPDIR counts as none: the reports are in /tmp")
    func emptyVariable() throws {
        let run = try CommandRun("gate", "run", "--", "/bin/sh", "-c", "exit 7", environment: ["TMPDIR": ""])
        let folder = run.errors.firstMatch(of: /reports are in (\/tmp\/stall-gate-[A-Za-z0-9]+)/).map { String($0.1) }
        #expect(run.status == 7 && folder != nil, "\(run.errors)")
        if let folder { try FileManager.default.removeItem(atPath: folder) }
    }

    @Test("a server with another working directory reports into the folder of --keep, although its name is relative")
    func workingDirectory() throws {
        var arguments = ["gate", "run", "--keep", "kept"] + server("")
        arguments[arguments.endIndex - 1] = "mkdir elsewhere && cd elsewhere && " + arguments[arguments.endIndex - 1]
        let run = try CommandRun(arguments: arguments, directory: fixture.root)
        #expect(run.status == 0 && run.errors.contains("within budget: 0 stalls"), "\(run.errors)")
        #expect(try ReportReader(path: fixture.root + "/kept/run-1/inside").overview().runs.count == 1)
    }

    @Test("stalls in the warm-up do not count, although the monitor's own configuration has no grace")
    func warmUp() throws {
        let kept = fixture.root + "/kept"
        let run = try gate(["--warm-up", "1h", "--keep", kept] + server("echo sleep 2000; sleep 1;"))
        #expect(run.status == 0 && run.errors.contains("within budget: 0 stalls"), "\(run.errors)")
        let found = try ReportReader(path: kept + "/run-1/inside").overview()
        #expect(found.stalls.isEmpty && (found.runs.first?.dismissed?["startup"] ?? 0) >= 1, "\(found.runs)")
    }

    @Test("a warm-up of a part of a millisecond is not none; one of 0 is, whatever a configuration file says")
    func shortWarmUp() throws {
        for (length, told) in [("500us", "1"), ("1001us", "2"), ("2ms", "2"), ("0", "0")] {
            let script = "echo ${STALL_MONITOR_STARTUP_GRACE_MILLISECONDS:-none}"
            let run = try gate(["--warm-up", length, "--", "/bin/sh", "-c", script])
            #expect(run.output == told + "\n", "\(length): \(run.output) \(run.errors)")
        }
    }

    @Test("if nothing could be watched, it says what the threads did instead")
    func withoutLoop() throws {
        let run = try gate(["--", "/bin/sleep", "8"])
        #expect(run.status == 1 && run.errors.contains("cannot judge: "), "\(run.errors)")
        #expect(run.errors.contains("no event loop was found in process "), "\(run.errors)")
        #expect(run.errors.contains("(sleep) so far; what its threads do: clock_nanosleep"), "\(run.errors)")
    }

    @Test("a program without a monitor is watched from outside", .needsBreakpoints)
    func outside() throws {
        let python = try #require(Python.asyncio, "there is no Python")
        let stalls = "(\(Self.untilFound) sleep 2; echo sleep 2000; sleep 1.5) | '\(python)' -c '\(Python.program)'"
        let over = try gate(["--keep", fixture.root + "/kept", "--", "/bin/sh", "-c", stalls])
        #expect(over.status == 2 && over.errors.contains("over budget: 1 stall, 0 permitted"), "\(over.errors)")
        #expect(try !ReportReader(path: fixture.root + "/kept/run-1/outside").overview().runs.isEmpty)
    }

    @Test("stalls seen from outside before a monitor in the command reports are noted, not judged", .needsBreakpoints)
    func outsideBefore() throws {
        let python = try #require(Python.asyncio, "there is no Python")
        let stalls = "(\(Self.untilFound) sleep 2; echo sleep 2000; sleep 1.5) | '\(python)' -c '\(Python.program)'"
        let run = try gate(["--", "/bin/sh", "-c", "\(stalls); \(try #require(server("").last))"])
        #expect(run.status == 0 && run.errors.contains("within budget: 0 stalls"), "\(run.errors)")
        #expect(run.errors.contains(", seen from outside before a monitor of the command reported, "), "\(run.errors)")
    }

    @Test("a program whose main thread polls like a client is judged with --main-loop, which the output names")
    func mainLoop() throws {
        func judge(_ options: [String], _ orders: String) throws -> CommandRun {
            let script = "(\(orders) echo exit 0) | '\(TargetProcess.executable.path)' timed"
            return try gate(options + ["--", "/bin/sh", "-c", script])
        }
        let doubtful = try judge([], "sleep 8;")
        #expect(doubtful.status == 1 && doubtful.errors.contains("--main-loop judges it"), "\(doubtful.errors)")
        let over = try judge(["--main-loop"], "\(Self.untilFound) sleep 1; echo sleep 2000; sleep 1;")
        #expect(over.status == 2 && over.errors.contains("over budget: 1 stall, 0 permitted"), "\(over.errors)")
    }

    @Test("a main thread that may run a loop is named beside a loop that is judged")
    func unjudged() throws {
        let python = try #require(Python.asyncio, "there is no Python")
        let run = try gate(["--", python, "-c", Self.pollsBesideLoop])
        #expect(run.errors.contains("these threads are not judged, "), "\(run.errors)")
        #expect(run.errors.contains("--main-loop judges it"), "\(run.errors)")
        #expect(!run.errors.contains("no event loop was found"), "\(run.errors)")
    }

    /// A loop on a second thread; the main one polls like a client.
    private static let pollsBesideLoop = """
        import os, select, threading, time
        def serve():
            events = select.epoll()
            while True: events.poll(0.02)
        threading.Thread(target=serve, daemon=True).start()
        polled = select.poll()
        polled.register(os.pipe()[0], select.POLLIN)
        end = time.monotonic() + 8
        while time.monotonic() < end: polled.poll(100)
        """

    @Test("a server whose start script has ended before anything is watched is watched, too", .needsBreakpoints)
    func orphan() throws {
        let python = try #require(Python.asyncio, "there is no Python")
        let (script, done) = (fixture.root + "/start.sh", fixture.root + "/done")
        let orders = "\(Self.untilFound) sleep 2; echo sleep 2000; sleep 1.5"
        try "((\(orders)) | '\(python)' -c '\(Python.program)'; touch '\(done)') >/dev/null 2>&1 &\n"
            .write(toFile: script, atomically: true, encoding: .utf8)
        let command = "/bin/sh '\(script)'; until [ -e '\(done)' ]; do sleep 0.1; done"
        let over = try gate(["--keep", fixture.root + "/kept", "--", "/bin/sh", "-c", command])
        #expect(over.status == 2 && over.errors.contains("over budget: 1 stall, 0 permitted"), "\(over.errors)")
    }

    @Test("an orphan that ends while its server watches itself does not stay a zombie")
    func reaped() throws {
        let zombies = fixture.root + "/zombies"
        let count = #"cat /proc/[0-9]*/stat 2>/dev/null | awk -v parent=$PPID '$3 == "Z" && $4 == parent'"#
        let wait = "i=0; until [ -z \"$(\(count))\" ] || [ $i -ge 200 ]; do i=$((i+1)); sleep 0.1; done;"
        let run = try gate(server("sleep 2; (sleep 0.1 &); sleep 1; \(wait) (\(count)) > '\(zombies)';"))
        #expect(run.status == 0, "\(run.errors)")
        #expect(try String(contentsOfFile: zombies, encoding: .utf8).isEmpty)
    }

    @Test("--tighten takes nothing over from a command that failed; if it cannot write, the verdict is shown anyway")
    func tighten() throws {
        let (healthy, better) = (try ReportsFixture(), try ReportsFixture())
        for fixture in [healthy, better] {
            var run = Sample.run()
            run.id = .make()
            try fixture.store.write(run)
            for _ in 0..<(fixture === healthy ? 40 : 0) {
                var report = Sample.report(id: .make())
                (report.run, report.suppressed) = (run.id, 0)
                try fixture.store.write(report)
            }
        }
        let file = fixture.root + "/baseline.json"
        #expect(try CommandRun("gate", "baseline", "record", healthy.path, "-o", file).status == 0)
        let before = try String(contentsOfFile: file, encoding: .utf8)
        func tighten(_ file: String, status: Int, _ options: String...) throws -> CommandRun {
            // Its monitor has left these reports.
            let script = "cp -R '\(better.path)' \"$STALL_MONITOR_DIRECTORY\"; exit \(status)"
            return try gate(["--baseline", file, "--tighten"] + options + ["--", "/bin/sh", "-c", script])
        }
        let failed = try tighten(file, status: 7)
        #expect(failed.status == 7 && failed.errors.hasPrefix("within budget: 0 stalls"), "\(failed.errors)")
        #expect(try String(contentsOfFile: file, encoding: .utf8) == before)
        // No file beside it can have a longer name.
        let (full, junit) = (fixture.root + "/" + String(repeating: "b", count: 250), fixture.root + "/gate.xml")
        try before.write(toFile: full, atomically: false, encoding: .utf8)
        let unwritten = try tighten(full, status: 0, "--junit", junit)
        #expect(unwritten.status == 1 && unwritten.errors.hasPrefix("within budget: "), "\(unwritten.errors)")
        #expect(unwritten.errors.contains("cannot write \(full)"), "\(unwritten.errors)")
        #expect(FileManager.default.fileExists(atPath: junit))
        let well = try tighten(file, status: 0)
        #expect(well.status == 0 && well.errors.contains("tightened \(file)"), "\(well.errors)")
        #expect(try String(contentsOfFile: file, encoding: .utf8) != before)
    }

    @Test("several runs: recording a baseline, an unchanged result, and a proven regression")
    func baseline() throws {
        let (kept, file) = (fixture.root + "/kept", fixture.root + "/baseline.json")
        let well = try gate(["--repeat", "3", "--keep", kept] + server(""))
        #expect(well.status == 0, "status \(well.status): \(well.errors)")
        let runs = (1...3).map { "\(kept)/run-\($0)" }
        let record = try CommandRun(arguments: ["gate", "baseline", "record", "--output", file] + runs)
        #expect(record.status == 0 && record.errors.contains("recorded 0 faults of 3 runs"), "\(record.errors)")
        let same = try gate(["--baseline", file] + server(""))
        #expect(same.status == 0, "status \(same.status): \(same.errors)")
        // One occurrence in a run as long as each of the baseline's may be chance.
        let once = try gate(["--baseline", file] + server("echo sleep 2000; sleep 0.7;"))
        #expect(
            once.status == 3 && once.errors.contains("inconclusive: ") && once.errors.contains(" is new: 1 stall in "),
            "status \(once.status): \(once.errors)"
        )
        // Half of these stalls prove it. A slow machine makes a run longer, and then more are needed.
        let regression = "for i in 1 2 3 4 5 6 7 8 9 10; do echo sleep 400; sleep 0.6; done;"
        let regressed = fixture.root + "/regressed"
        let worse = try gate(
            ["--baseline", file, "--repeat", "2", "--keep", regressed] + server(regression, rest: "")
        )
        for run in 1...2 { try noteLateness(ofStallsEvery: .milliseconds(600), in: "\(regressed)/run-\(run)/inside") }
        #expect(
            worse.status == 2 && worse.errors.contains("  worse: ") && worse.errors.contains(" is new: "),
            "status \(worse.status): \(worse.errors)"
        )
    }

    /// Notes how much later than it should each stall came after the one before. A starved shell can be late although other threads are not.
    private func noteLateness(ofStallsEvery interval: Duration, in directory: String) throws {
        let starts = try ReportReader(path: directory).overview().stalls.map(\.startedAt)
        for (earlier, later) in zip(starts, starts.dropFirst()) {
            LatenessWitness.note(.nanoseconds(later.nanoseconds(since: earlier)) - interval)
        }
    }
}
