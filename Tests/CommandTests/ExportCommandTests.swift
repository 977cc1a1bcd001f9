import Foundation
import StallReports
import Testing

@Suite("stall-monitor export", .timeLimit(.minutes(5)))
struct ExportCommandTests {
    private let fixture: ReportsFixture

    init() throws {
        fixture = try ReportsFixture()
        try fixture.store.write(Sample.report())
    }

    @Test("standard output contains only the data")
    func standardOutput() throws {
        let run = try CommandRun("export", fixture.path, "--format", "collapsed")
        #expect(run.status == 0 && run.errors.isEmpty)
        #expect(
            run.output
                == "shop: main;__libc_start_main;main;drain;swift_job_run;shop.Cart.total() -> Swift.Int;usleep;clock_nanosleep 612345\n"
        )
        #expect(
            try CommandRun("export", fixture.path, "--format", "csv", "--since", "1s").output.split(separator: "\n")
                .count == 1
        )
    }

    @Test(
        "export and show find a fault by an alias of another of its stalls; 'show latest' picks the newest match"
    )
    func names() throws {
        var named = Sample.report(id: .make())
        let old = try #require(Fingerprint(rawValue: "v2:1111222233334444"))
        (named.aliases, named.service) = ([old], .init(name: "shop"))
        try fixture.store.write(named)
        var other = Sample.report(id: .make())
        other.service = .init(name: "other")
        try fixture.store.write(other)
        let run = try CommandRun("export", fixture.path, "--format", "ndjson", "--fingerprint", "11112222")
        #expect(run.output.split(separator: "\n").count == 3, "\(run.output)")
        for (arguments, id) in [(["--fingerprint", "11112222"], other.id), (["--service", "shop"], named.id)] {
            let shown = try CommandRun(arguments: ["show", "latest", fixture.path, "--format", "json"] + arguments)
            #expect(shown.output.contains(id.description), "\(arguments) \(shown.errors)")
        }
    }

    @Test("no text of a report reaches the terminal as a control character, in any format; JSON has it as an escape")
    func hostile() throws {
        let name = "a\u{9B}31m\u{7F}\u{202E}b"
        var report = Sample.report(id: .make())
        (report.kind, report.state) = (.init(rawValue: name), .init(rawValue: name))
        (report.cause.verdict, report.severity) = (.init(rawValue: name), .init(rawValue: name))
        (report.watched.label, report.metadata) = (name, [name: name])
        try fixture.store.write(report)
        let formats = [
            "html", "svg", "speedscope", "collapsed", "chrome", "firefox", "otlp-logs", "otlp-metrics", "prometheus",
            "sentry", "csv", "ndjson",
        ]
        for format in formats {
            let run = try CommandRun("export", fixture.path, "--format", format)
            #expect(run.status == 0, "\(run.errors)")
            let controls = run.output.unicodeScalars.filter { (0x7F...0x9F).contains($0.value) || $0 == "\u{202E}" }
            #expect(controls.isEmpty, "\(format)")
        }
        let json = try CommandRun("export", fixture.path, "--format", "ndjson").output
        let reports = try json.split(separator: "\n").map { try StallReport(json: Array($0.utf8)) }
        #expect(reports.contains(report))
    }

    @Test("'-' is standard output; a note that there are no stalls goes to standard error")
    func nothing() throws {
        let run = try CommandRun("export", fixture.path, "--format", "ndjson", "--service", "none", "-o", "-")
        #expect(run.status == 0 && run.output.isEmpty)
        #expect(run.errors == "stall-monitor: no matching stalls among 1\n")
    }

    @Test("a directory and its copy give each stall and each run once")
    func copies() throws {
        try fixture.store.write(Sample.run())
        let copy = "\(fixture.root)/copy"
        try FileManager.default.copyItem(atPath: fixture.path, toPath: copy)
        let run = try CommandRun("export", fixture.path, copy, "--format", "prometheus")
        let series = run.output.split(separator: "\n").filter { $0.hasPrefix("stall_monitor_watched_seconds_total{") }
        #expect(run.status == 0 && series.count == 1, "\(run.output)")
    }

    @Test("metrics of a run in the chosen time are of the whole run: stalls, turns and watched time belong together")
    func wholeRuns() throws {
        var run = Sample.run()
        run.updatedAt = run.startedAt.advanced(byNanoseconds: 60_000_000_000)
        (run.stalls, run.watched[0].turns) = (["blocked": 3], 600)
        try fixture.store.write(run)
        func export(_ format: String, since second: Int64) throws -> String {
            let since = "\(run.startedAt.advanced(byNanoseconds: second * 1_000_000_000))"
            return try CommandRun("export", fixture.path, "--format", format, "--since", since).output
        }
        let late = try export("prometheus", since: 45)
        for (name, value) in [("stalls", "3.0"), ("turns", "600.0"), ("watched_seconds", "60.0")] {
            let line = late.split(separator: "\n").first { $0.hasPrefix("stall_monitor_\(name)_total{") }
            #expect(line?.hasSuffix(" \(value)") == true, "\(late)")
        }
        #expect(!(try export("prometheus", since: 61)).contains("_total{"))
        #expect(try export("otlp-metrics", since: 45) == export("otlp-metrics", since: 0))
    }

    @Test("a file gets its name when it is complete, and replaces an existing one")
    func file() throws {
        let file = "\(fixture.root)/stalls.csv"
        try "old".write(toFile: file, atomically: true, encoding: .utf8)
        let run = try CommandRun("export", fixture.path, "--format", "csv", "-o", file)
        #expect(run.status == 0 && run.output.isEmpty && run.errors == "stall-monitor: 1 stall in \(file)\n")
        #expect(try String(contentsOfFile: file, encoding: .utf8).hasPrefix("id,started_at,"))
        #expect(
            try FileManager.default.contentsOfDirectory(atPath: fixture.root).sorted() == ["reports", "stalls.csv"]
        )
        #expect(try CommandRun("export", fixture.path, "--format", "csv", "-o", "/dev/null").status == 0)
    }

    @Test("a signal leaves no incomplete output file behind")
    func cutShort() throws {
        let fixture = try ReportsFixture(inMemory: true)
        for _ in 0..<1000 { try fixture.store.write(Sample.report(id: .make())) }
        let page = fixture.root + "/page"
        func files() throws -> [String] { try FileManager.default.contentsOfDirectory(atPath: fixture.root).sorted() }
        var isCaught = false
        for _ in 0..<100 where !isCaught {
            let run = try RunningCommand("export", fixture.path, "--no-index", "--format", "html", "-o", page)
            // It waits for the incomplete file, unless the command has been quicker.
            while try files() == ["reports"], run.isRunning { usleep(200) }
            // Not SIGINT, which a shell's background command ignores: this command then does, too.
            run.send(SIGTERM)
            isCaught = run.status() == 128 + SIGTERM
            try? FileManager.default.removeItem(atPath: page)
            #expect(try files() == ["reports"])
        }
        #expect(isCaught)
    }

    @Test("unreadable files are reported and skipped; a failed write leaves nothing behind")
    func failures() throws {
        try fixture.plant("{ torn".utf8)
        let run = try CommandRun("export", fixture.path, "--format", "ndjson")
        #expect(run.status == 1 && run.errors.contains("stall-"))
        #expect(run.output.split(separator: "\n").count == 1)
        let refused = try CommandRun("export", fixture.path, "--format", "html", "-o", "/nowhere/page.html")
        #expect(refused.status == 1 && refused.output.isEmpty)
        #expect(refused.errors.contains("cannot write /nowhere/page.html: its folder does not exist"))
        let full = try CommandRun("export", fixture.path, "--format", "html", "-o", "/dev/full")
        #expect(full.status == 1 && full.errors.contains("/dev/full"))
        #expect(try CommandRun("export", fixture.path, "--format", "jpeg").status == 64)
        #expect(try CommandRun("export", fixture.path).status == 64)
    }
}
