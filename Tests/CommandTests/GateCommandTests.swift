import Foundation
import StallReports
import Testing

@Suite("gate", .timeLimit(.minutes(10)))
struct GateCommandTests {
    private let fixture: ReportsFixture

    init() throws {
        fixture = try ReportsFixture()
        try fixture.store.write(Sample.run())
    }

    @Test("exit codes: 0 within budget, 2 over budget, 64 wrong usage")
    func exitCodes() throws {
        #expect(try CommandRun("gate", fixture.path).status == 0)
        let report = Sample.report()
        try fixture.store.write(report)
        #expect(try CommandRun("gate", fixture.path).status == 2)
        #expect(try CommandRun("gate", fixture.path, "--max-stalls", "4").status == 0)
        #expect(try CommandRun("gate", fixture.path, "--max-stalls", "3").status == 2)
        #expect(try CommandRun("gate", fixture.path, "--max-duration", "613ms").status == 0)
        #expect(try CommandRun("gate", fixture.path, "--max-duration", "0.6123s").status == 2)
        let prefix = String(report.fingerprint.rawValue.prefix(9))
        #expect(try CommandRun("gate", fixture.path, "--max-stalls", "0", "--allow", prefix).status == 0)
        #expect(try CommandRun("gate", fixture.path, "--allow", "v1:ffff", "--allow", prefix).status == 0)
        for wrong in [
            ["--max-stalls", "-1"], ["--max-duration", "5"], ["--allow", "x"], ["--format", "xml"], ["--nope"],
        ] {
            #expect(try CommandRun(arguments: ["gate", fixture.path] + wrong).status == 64, "\(wrong)")
        }
    }

    @Test("exit code 1: missing directory, torn report, no run record, nothing watched")
    func cannotJudge() throws {
        #expect(try CommandRun("gate", fixture.root + "/none", "--max-stalls", "9").status == 1)
        let empty = try ReportsFixture()
        #expect(try CommandRun("gate", empty.root, "--max-stalls", "9").status == 1, "no run record")
        var idle = Sample.run()
        idle.watched[0].watchedNs = 0
        try fixture.store.write(idle)
        let run = try CommandRun("gate", fixture.path, "--max-stalls", "9")
        #expect(
            run.status == 1 && run.output.contains("run \(idle.id): the monitor watched for less than a second")
        )
        #expect(run.output.contains("from outside only event loops and task pools can be watched"))
    }

    @Test("a killed process is judged by its records, with a note; without a live record it cannot be judged")
    func killed() throws {
        var run = Sample.run()
        (run.id, run.state, run.stoppedAt) = (.make(), .terminated, nil)
        run.processEnd = .init(cause: .killedOrCrashed, summary: "Something ended it.")
        try fixture.store.write(run)
        let within = try CommandRun("gate", fixture.path)
        #expect(within.status == 0)
        #expect(within.output.contains("  cut short: run \(run.id) of process "))
        #expect(within.output.contains("Something ended it."))
        try fixture.store.write(Sample.report())
        #expect(try CommandRun("gate", fixture.path).status == 2)
        run.processEnd = nil
        try fixture.store.write(run)
        let doubted = try CommandRun("gate", fixture.path)
        #expect(doubted.status == 1 && doubted.output.contains("run \(run.id): its process ended without closing it"))
    }

    @Test("a torn report prevents a judgement; what is over budget is listed anyway")
    func torn() throws {
        try fixture.store.write(Sample.report())
        try fixture.plant(try Sample.report().json().dropLast(100))
        let run = try CommandRun("gate", fixture.path, "--max-stalls", "0")
        #expect(run.status == 1)
        #expect(run.output.hasPrefix("cannot judge: 4 stalls"))
        #expect(run.output.contains("over budget: 4 stalls, 0 permitted"))
    }

    @Test("counted-only stalls belong to their loop; an older record that does not name it prevents a judgement")
    func countedOfLoop() throws {
        var run = Sample.run()
        run.watched.append(.init(type: .eventLoop, label: "nio", watchedNs: 60_000_000_000))
        let repeats = Sample.repeats(of: .make(), count: 37)
        let fault = Sample.report().fingerprint
        run.repeated = [.init(fingerprint: fault, repeats: repeats, label: "nio", type: .eventLoop, kind: .blocked)]
        (run.suppressed, run.stalls) = (37, ["blocked": 37])
        try fixture.store.write(run)
        #expect(try CommandRun("gate", fixture.path, "--label", "main").status == 0)
        let other = try CommandRun("gate", fixture.path, "--label", "nio")
        #expect(other.status == 2 && other.output.contains("37 only counted, the longest 590ms on nio"))
        #expect(try CommandRun("gate", fixture.path, "--type", "run_loop").status == 0)
        #expect(try CommandRun("gate", fixture.path, "--label", "nio", "--kind", "congested").status == 0)
        run.repeated = [.init(fingerprint: fault, repeats: repeats)]
        try fixture.store.write(run)
        let old = try CommandRun("gate", fixture.path, "--label", "main")
        #expect(old.status == 1 && old.output.contains("nothing tells whether they are among those asked for"))
        #expect(try CommandRun("gate", fixture.path, "--max-stalls", "40").status == 0)
    }

    @Test(
        "--since counts stalls without a report as if they had come evenly; if more may have come than is permitted, it cannot judge"
    )
    func countedSince() throws {
        let fixture = try ReportsFixture()
        var run = Sample.run()
        run.updatedAt = Sample.start.advanced(byNanoseconds: 60_000_000_000)
        run.repeated = [
            .init(
                fingerprint: Sample.report().fingerprint,
                repeats: Sample.repeats(of: .make(), count: 37),
                label: "main"
            )
        ]
        (run.suppressed, run.stalls) = (37, ["blocked": 37])
        try fixture.store.write(run)
        func gate(_ options: String...) throws -> CommandRun {
            try CommandRun(arguments: ["gate", fixture.path, "--since", "2026-11-18T11:06:45Z"] + options)
        }
        let within = try gate("--max-stalls", "37")
        #expect(within.status == 0 && within.output.hasPrefix("within budget: 19 stalls"), "\(within.output)")
        #expect(
            within.errors.contains("of 37 stalls that were only counted, 19 are taken as within the time asked for")
        )
        let unknown = try gate("--max-stalls", "36")
        #expect(unknown.status == 1 && unknown.output.contains(": 18 stalls were only counted"), "\(unknown.output)")
        #expect(try gate("--max-stalls", "18").status == 2)
    }

    @Test("--until counts stalls that only a report after that time has counted")
    func countedUntil() throws {
        let fixture = try ReportsFixture()
        var (run, late) = (Sample.run(), Sample.report(id: .make()))
        run.updatedAt = Sample.start.advanced(byNanoseconds: 60_000_000_000)
        (run.suppressed, run.stalls) = (10, ["blocked": 11])
        (late.run, late.startedAt) = (run.id, Sample.start.advanced(byNanoseconds: 20_000_000_000))
        late.endedAt = late.startedAt.advanced(byNanoseconds: late.durationNs)
        (late.suppressed, late.repeats) = (10, Sample.repeats(of: .make(), count: 10))
        try fixture.store.write(run)
        try fixture.store.write(late)
        let until = [fixture.path, "--until", "2026-11-18T11:06:45Z"]
        let gate = try CommandRun(arguments: ["gate"] + until)
        #expect(gate.status == 2 && gate.output.hasPrefix("over budget: 5 stalls"), "\(gate.output)")
        for command in ["faults", "runs"] {
            let reader = try CommandRun(arguments: [command, "--format", "json"] + until)
            #expect(reader.output.contains("\"\(command == "faults" ? "count" : "stalls")\":5,"), "\(reader.output)")
        }
    }

    @Test("a fault or function that no stall has is noted: wrong digits would look like a fault that is gone")
    func unknownFault() throws {
        let report = Sample.report()
        try fixture.store.write(report)
        let digits = String(report.fingerprint.rawValue.suffix(16).prefix(8))
        for (options, isKnown) in [
            (["--fingerprint", "ffff0000"], false), (["--fingerprint", digits, "--release", "1.2"], true),
            (["--function", "Crat"], false), (["--function", "Cart", "--max-stalls", "9"], true),
        ] {
            let gate = try CommandRun(arguments: ["gate", fixture.path] + options)
            #expect(gate.errors.contains("no stall in these directories, at any time, ") == !isKnown, "\(gate.errors)")
        }
    }

    @Test("--tighten refuses a selection: what it leaves out would count as gone")
    func tightensWholeRuns() throws {
        let baseline = fixture.root + "/baseline.json"
        #expect(try CommandRun("gate", "baseline", "record", fixture.path, "-o", baseline).status == 0)
        let gate = ["gate", fixture.path, "--baseline", baseline, "--tighten"]
        #expect(try CommandRun(arguments: gate).status == 0)
        let refused = try CommandRun(arguments: gate + ["--label", "main"])
        #expect(refused.status == 64 && refused.errors.contains("--tighten needs a whole run"))
    }

    @Test("--against compares with other stalls of the same directories instead of a baseline")
    func against() throws {
        for (release, stalls) in [("1.4", 2), ("1.5", 40)] {
            var run = Sample.run()
            (run.id, run.suppressed, run.repeated) = (.make(), 0, [])
            run.service = .init(name: "shop", version: release)
            // From two machines, as in a fleet.
            run.host.kernel = "\(release).0"
            run.watched = [.init(label: "main", watchedNs: 600_000_000_000)]
            try fixture.store.write(run)
            for _ in 0..<stalls {
                var report = Sample.report(id: .make())
                (report.run, report.service, report.suppressed) = (run.id, run.service, 0)
                try fixture.store.write(report)
            }
        }
        func gate(_ release: String, _ other: String) throws -> CommandRun {
            try CommandRun("gate", fixture.path, "--release", release, "--against", other)
        }
        let worse = try gate("1.5", "release=1.4")
        #expect(worse.status == 2 && worse.output.contains("shop.Cart"), "\(worse.output) \(worse.errors)")
        #expect(try gate("1.4", "release=1.5").status == 0)
        #expect(try gate("1.5", "release=1.5").status == 0)
        let unknown = try gate("1.5", "release=1.3")
        #expect(
            unknown.status == 1 && unknown.errors.contains("release=1.3: no run is of release 1.3; did you mean '1.4'?")
        )
        let unchosen = try CommandRun("gate", fixture.path, "--service", "shops")
        #expect(unchosen.status == 1 && unchosen.errors.contains("no run is of service shops; did you mean 'shop'?"))
        let earlier = try CommandRun("gate", fixture.path, "--service", "shop", "--until", "2020-01-01T00:00:00Z")
        #expect(earlier.status == 1 && earlier.errors.contains("leaves out every run record"), "\(earlier.errors)")
        #expect(try gate("1.5", "colour=red").status == 64)
        #expect(try gate("1.5", fixture.path).status == 64)
        let bare = try gate("1.5", "1.3")
        let advice = "'1.3' is not a choice of stalls: for the release give release=1.3, for a directory --baseline 1.3"
        #expect(bare.status == 64 && bare.errors.contains(advice), "\(bare.errors)")
        #expect(
            try CommandRun("gate", fixture.path, "--against", "release=1.4", "--baseline", "x").status == 64
        )
    }

    @Test("--format json and junit can be read by other programs")
    func formats() throws {
        try fixture.store.write(Sample.report())
        let json = try CommandRun("gate", fixture.path, "--format", "json").output
        let object = try JSONSerialization.jsonObject(with: Data(json.utf8)) as? [String: Any]
        #expect(object?["verdict"] as? String == "over")
        let junit = try CommandRun("gate", fixture.path, "--format", "junit")
        #expect(junit.output.contains(#"<testsuites tests="5" failures="1" errors="0">"#))
        #expect(junit.status == 2)
    }
}
