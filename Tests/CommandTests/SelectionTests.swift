import Foundation
import StallGate
import StallReading
import StallReports
import Testing

@testable import stall_monitor

@Suite("Selecting stalls")
struct SelectionTests {
    private let stall = StallOutline(Sample.report())
    private let end = Sample.start.advanced(byNanoseconds: 612_345_678)

    init() { ShownTime.useUTC() }

    private func includes(_ change: (inout StallSelection) -> Void, _ stall: StallOutline? = nil) -> Bool {
        var selection = StallSelection()
        change(&selection)
        return selection.includes(stall ?? self.stall)
    }

    @Test("without conditions everything is included")
    func everything() {
        #expect(StallSelection.everything.isEverything && includes { _ in })
    }

    @Test("no stalls: the first four of the processes that are still watched are named, and how many others there are")
    func stillWatching() {
        let runs = (1...1_000).map { number in
            var run = Sample.run()
            (run.state, run.process.pid) = (.running, Int32(number))
            return run
        }
        let note = { StallSelection.everything.nothingFound(among: 0, Array(runs.prefix($0))) }
        #expect(note(4) == "no stalls; 4 loops were watched, for 4m in all; still watching: process 1, 2, 3, 4")
        #expect(note(1_000).hasSuffix("; still watching: process 1, 2, 3, 4 and 996 more"))
    }

    @Test("if no stall matches, the note says how much was watched of what was asked for")
    func coverage() {
        var run = Sample.run()
        run.updatedAt = Sample.start.advanced(byNanoseconds: 60_000_000_000)
        run.watched.append(.init(label: "requests", watchedNs: 30_000_000_000))
        let (half, later) = (
            Sample.start.advanced(byNanoseconds: 30_000_000_000), Sample.start.advanced(byNanoseconds: 1 << 40)
        )
        for (selection, note) in [
            (StallSelection(since: half), "; 2 loops were watched, for 45s in all"),
            (StallSelection(since: half, labels: [NamePattern("main")]), "; 1 loop was watched, for 30s"),
            (StallSelection(since: later), "; nothing that matches was watched"),
            (
                StallSelection(hosts: [NamePattern("web2")]),
                "; nothing that matches was watched: no run is of host web2; did you mean 'web1'?"
            ),
            (StallSelection(hosts: [NamePattern("db*")]), "; nothing that matches was watched"),
        ] {
            #expect(selection.nothingFound(among: 7, [run]) == "no matching stalls among 7" + note)
        }
        #expect(StallSelection.everything.nothingFound(among: 7, []) == "no stalls")
        // A monitor that still watches something else is not named.
        run.state = .running
        let elsewhere = StallSelection(hosts: [NamePattern("web2")]).nothingFound(among: 7, [run])
        #expect(
            elsewhere.hasPrefix(
                "no matching stalls among 7; nothing that matches was watched: no run is of host web2; "
            )
        )
        let far = StallSelection(hosts: [NamePattern("database")]).unknownName(in: [run])
        #expect(far == "no run is of host database; there are web1")
    }

    @Test("a run of 'watch' has the services of its loops; an older record, and one without loops, may have any")
    func watcher() {
        var run = Sample.run()
        var selection = StallSelection()
        selection.services = [NamePattern("elsewhere")]
        #expect(!selection.includes(run))
        run.targets = [run.process]
        #expect(selection.includes(run) && run.chosen(by: selection)?.watched.count == 1)
        run.watched.append(.init(type: .eventLoop, label: "node", watchedNs: 1))
        (run.watched[0].service, run.watched[1].service) = ("redis", "elsewhere")
        run.repeated = run.watched.map {
            .init(
                fingerprint: stall.fingerprint,
                repeats: Sample.repeats(of: stall.id, count: 1),
                label: $0.label,
                type: $0.type,
                kind: .blocked
            )
        }
        let chosen = run.chosen(by: selection)
        #expect(chosen?.watched.map(\.label) == ["node"] && chosen?.repeated?.map(\.label) == ["node"])
        // Of too many services to name them.
        run.watched.append(.init(type: .eventLoop, label: "(others)", watchedNs: 1))
        #expect(run.chosen(by: selection)?.watched.map(\.label) == ["node"])
        run.watched.removeLast()
        // Both have a loop of this name.
        for index in 0..<2 {
            (run.watched[index].label, run.watched[index].type) = ("main", .eventLoop)
            run.repeated?[index].label = "main"
            run.repeated?[index].type = .eventLoop
            run.repeated?[index].service = run.watched[index].service
        }
        #expect(run.chosen(by: selection)?.repeated?.map(\.service) == ["elsewhere"])
        selection.services = [NamePattern("nothing")]
        #expect(!selection.includes(run))
        run.watched = []
        #expect(selection.includes(run))
        selection.releases = [NamePattern("1")]
        #expect(!selection.includes(run))
        (selection.releases, selection.hosts) = ([], [NamePattern("nowhere")])
        #expect(!selection.includes(run))
    }

    @Test("since: the stall ended at that time or later, or is ongoing; until: it began at that time or earlier")
    func time() {
        #expect(includes { $0.since = end })
        #expect(!includes { $0.since = end.advanced(byNanoseconds: 1) })
        #expect(includes({ $0.since = end.advanced(byNanoseconds: 1) }, StallOutline(Sample.report(state: .ongoing))))
        #expect(includes { $0.until = Sample.start })
        #expect(!includes { $0.until = Sample.start.advanced(byNanoseconds: -1) })
    }

    @Test("each condition alone excludes what it does not match and keeps what it does")
    func conditions() throws {
        let digits = try #require(FingerprintPrefix(String(stall.fingerprint.rawValue.dropFirst(3).prefix(6))))
        let other = try #require(FingerprintPrefix("0000"))
        let pairs: [(yes: (inout StallSelection) -> Void, no: (inout StallSelection) -> Void)] = [
            ({ $0.services = [NamePattern("sh*")] }, { $0.services = [NamePattern("sh")] }),
            ({ $0.hosts = [NamePattern("WEB?")] }, { $0.hosts = [NamePattern("web?2")] }),
            ({ $0.releases = [NamePattern("1.*")] }, { $0.releases = [NamePattern("2.*")] }),
            ({ $0.labels = [NamePattern("main")] }, { $0.labels = [NamePattern("io")] }),
            ({ $0.types = [.queue, .runLoop] }, { $0.types = [.queue] }),
            ({ $0.kinds = [.blocked] }, { $0.kinds = [.congested] }),
            ({ $0.verdicts = [.waiting] }, { $0.verdicts = [.starved] }),
            ({ $0.severity = .warning }, { $0.severity = .critical }),
            ({ $0.states = [.recovered] }, { $0.states = [.ongoing] }),
            (
                { $0.functions = [NamePattern("cart.", isPart: true)] },
                { $0.functions = [NamePattern("order", isPart: true)] }
            ),
            ({ $0.fingerprints = [digits] }, { $0.fingerprints = [other] }),
            ({ $0.minDurationNs = 612_345_678 }, { $0.minDurationNs = 612_345_679 }),
        ]
        for (index, pair) in pairs.enumerated() {
            #expect(includes(pair.yes), "\(index)")
            #expect(!includes(pair.no), "\(index)")
        }
        #expect(
            !includes {
                $0.services = [NamePattern("shop")]; $0.hosts = [NamePattern("web2")]
            }
        )
        #expect(includes { $0.hosts = [NamePattern("web2"), NamePattern("web1")] })
    }

    @Test("a selection gets its part of the watched time; it is complete if the whole it was taken from is")
    func watchedTime() {
        var run = Sample.run()
        run.updatedAt = run.startedAt.advanced(byNanoseconds: 60_000_000_000)
        run.watched.append(.init(type: .eventLoop, label: "nio", watchedNs: 60_000_000_000))
        run.stalls = ["blocked": 3]
        let whole = ReportReader.Overview(run, (1...3).map { Sample.report(id: ULID(rawValue: $0)) })
        var selection = StallSelection()
        selection.since = run.startedAt.advanced(byNanoseconds: 45_000_000_000)
        #expect(run.chosen(by: selection)?.watched.map(\.watchedNs) == [15_000_000_000, 15_000_000_000])
        selection.labels = [NamePattern("nio")]
        let chosen = whole.chosen(by: selection)
        #expect(chosen.stalls.isEmpty && chosen.runs[0].watched.map(\.watchedNs) == [15_000_000_000])
        #expect(Gate.judge(.success(chosen), by: Budget(), against: nil, outOf: whole).verdict == .within)
        #expect(Gate.judge(.success(chosen), by: Budget(), against: nil, outOf: nil).verdict == .cannotJudge)
        selection.labels = [NamePattern("mian")]
        #expect(run.chosen(by: selection) == nil)
    }

    @Test("a run that says that it goes on was watched until its update: its record may be a copy from another host")
    func unknownEnd() {
        var run = Sample.run()
        run.state = .running
        run.updatedAt = run.startedAt.advanced(byNanoseconds: 60_000_000_000)
        var selection = StallSelection()
        selection.since = run.startedAt.advanced(byNanoseconds: 45_000_000_000)
        #expect(run.watched(in: selection).map(\.watchedNs) == [15_000_000_000])
        selection.since = run.updatedAt.advanced(byNanoseconds: 60_000_000_000)
        #expect(run.watched(in: selection).map(\.watchedNs) == [0])
    }

    /// This many stalls of the sample's fault without a report.
    private func counted(_ count: Int = 1, label: String? = "main") -> RunRecord.Repeated {
        let repeats = Sample.repeats(of: .make(), count: count)
        guard let label else { return .init(fingerprint: stall.fingerprint, repeats: repeats) }
        return .init(fingerprint: stall.fingerprint, repeats: repeats, label: label, type: .runLoop, kind: .blocked)
    }

    @Test(
        "of counted-only stalls a selection has as many as if they had come evenly, also of those that a report after its time counted"
    )
    func countedInTime() {
        func second(_ number: Int64) -> Timestamp { Sample.start.advanced(byNanoseconds: number * 1_000_000_000) }
        var (run, late) = (Sample.run(), Sample.report(id: .make()))
        (run.updatedAt, run.repeated) = (second(60), [counted(37)])
        (late.run, late.startedAt, late.endedAt) = (run.id, second(20), second(21))
        (late.suppressed, late.repeats) = (10, Sample.repeats(of: .make(), count: 10))
        var contents = ReportReader.Contents()
        (contents.runs, contents.reports) = ([run], [late])
        let whole = ReportReader.Overview(contents)
        func counts(_ since: Int64?, _ until: Int64?, _ counting: CountedPart = .even) -> [[Int]] {
            let selection = StallSelection(since: since.map(second), until: until.map(second))
            let chosen = whole.chosen(by: selection, counting: counting)
            return [chosen.stalls.map(\.suppressed), chosen.runs.flatMap { $0.repeated ?? [] }.map(\.repeats.count)]
        }
        #expect(counts(nil, nil) == [[10], [37]] && counts(0, 30) == [[10], [37]])
        #expect(counts(5, nil) == [[5], [19]] && counts(10, nil) == [[0], []])
        #expect(counts(nil, 5) == [[], [19, 5]] && counts(3, 5) == [[], [9, 3]])
        // No more than all of them can have come in that time.
        #expect(counts(5, nil, .whole) == [[10], [37]] && counts(nil, 5, .whole) == [[], [37, 10]])
    }

    private func membership(
        _ counted: RunRecord.Repeated,
        _ traits: FaultTraits = .unknown,
        _ change: (inout StallSelection) -> Void
    ) -> Membership {
        var selection = StallSelection()
        change(&selection)
        return counted.membership(in: selection, traits: traits)
    }

    @Test("counted-only stalls are selected by loop and kind; if the record does not name them it is unknown")
    func countedByLoop() {
        let conditions: [(yes: (inout StallSelection) -> Void, no: (inout StallSelection) -> Void)] = [
            ({ $0.labels = [NamePattern("ma*")] }, { $0.labels = [NamePattern("io")] }),
            ({ $0.types = [.runLoop] }, { $0.types = [.queue] }),
            ({ $0.kinds = [.blocked] }, { $0.kinds = [.congested] }),
        ]
        for (yes, no) in conditions {
            #expect(membership(counted(), .unknown, yes) == .wanted && membership(counted(), .unknown, no) == .unwanted)
            #expect(
                membership(counted(label: nil), .unknown, yes) == .unknown
                    && membership(counted(label: nil), .unknown, no) == .unknown
            )
        }
        #expect(membership(counted(label: nil)) { _ in } == .wanted)
        // One failed condition is enough.
        let late = end.advanced(byNanoseconds: 3_600_000_000_000)
        #expect(membership(counted(label: nil)) { ($0.labels, $0.since) = ([NamePattern("main")], late) } == .unwanted)
    }

    @Test(
        "counted-only stalls are selected by the longest's length, and by cause if the fault's reports agree"
    )
    func countedByReports() {
        #expect(membership(counted()) { $0.minDurationNs = 590_000_000 } == .wanted)
        #expect(membership(counted(2)) { $0.minDurationNs = 590_000_000 } == .unknown)
        #expect(membership(counted(2)) { $0.minDurationNs = 590_000_001 } == .unwanted)
        #expect(membership(counted()) { $0.severity = .error } == .unwanted)
        #expect(membership(counted()) { $0.states = [.ongoing] } == .unwanted)
        let traits = FaultTraits([stall])
        #expect(membership(counted()) { $0.verdicts = [.waiting] } == .unknown)
        #expect(membership(counted(), traits) { $0.verdicts = [.waiting] } == .wanted)
        #expect(membership(counted(), traits) { $0.verdicts = [.starved] } == .unwanted)
        #expect(membership(counted(), traits) { $0.functions = [NamePattern("cart", isPart: true)] } == .wanted)
        var other = Sample.report()
        other.cause.verdict = .starved
        let both = FaultTraits([stall, StallOutline(other)])
        #expect(membership(counted(), both) { $0.verdicts = [.starved] } == .unknown)
    }

    @Test("counted-only stalls are selected by function and verdict also under a former fingerprint of their fault")
    func countedUnderFormerName() throws {
        let former = try #require(Fingerprint(rawValue: "v2:1111222233334444"))
        var report = Sample.report()
        report.aliases = [former]
        let traits = FaultTraits([StallOutline(report)])
        var earlier = counted()
        earlier.fingerprint = former
        #expect(membership(earlier, traits) { $0.verdicts = [.blocked.canonical] } == .wanted)
        #expect(membership(earlier, traits) { $0.verdicts = [.starved] } == .unwanted)
        #expect(membership(earlier, traits) { $0.functions = [NamePattern("Cart", isPart: true)] } == .wanted)
        #expect(membership(earlier, traits) { $0.functions = [NamePattern("tax", isPart: true)] } == .unwanted)
    }

    @Test("a fault is found by its former fingerprints")
    func aliases() throws {
        var report = Sample.report()
        let old = try #require(Fingerprint(rawValue: "v2:1111222233334444"))
        report.aliases = [old]
        let stall = StallOutline(report)
        let prefix = try #require(FingerprintPrefix("1111"))
        #expect(includes({ $0.fingerprints = [prefix] }, stall))
        let names = FaultNames([stall])
        var selection = StallSelection()
        selection.fingerprints = [prefix]
        #expect(!selection.includes(self.stall) && selection.includes(self.stall, names: names))
    }

    @Test("a former fingerprint that only an older report has finds the later stalls of its fault, in lists and sums")
    func olderReportWithFormerFingerprint() throws {
        let fixture = try ReportsFixture()
        var report = Sample.report()
        report.aliases = [try #require(Fingerprint(rawValue: "v2:1111222233334444"))]
        try fixture.store.write(report)
        // An hour later.
        (report.id, report.aliases) = (ULID(rawValue: 1 << 91), nil)
        report.startedAt = report.startedAt.advanced(byNanoseconds: 3_600_000_000_000)
        report.endedAt = report.endedAt?.advanced(byNanoseconds: 3_600_000_000_000)
        try fixture.store.write(report)
        let later = report.startedAt.advanced(byNanoseconds: -1_000_000_000)
        let name = report.fingerprint.rawValue
        for reader in [
            ["list"], ["faults"], ["runs"], ["tail"], ["show", "latest"], ["show", "1111"], ["show", name],
        ] {
            let choice = ["--fingerprint", "1111", "--since", "\(later)", fixture.path]
            let run = try CommandRun(arguments: reader + choice)
            #expect(run.output.contains("612ms"), "\(reader): \(run.output) \(run.errors)")
        }
    }

    @Test("if no stall of a fault matches, the note has those that were counted by its former fingerprint")
    func countedByFormerFingerprint() throws {
        let fixture = try ReportsFixture()
        var report = Sample.report()
        let former = report.fingerprint
        report.fingerprint = try #require(Fingerprint(rawValue: "v2:bbbb000000000000"))
        report.aliases = [former]
        var run = Sample.run()
        run.updatedAt = Sample.start.advanced(byNanoseconds: 60_000_000_000)
        run.repeated = [.init(fingerprint: former, repeats: Sample.repeats(of: report.id, count: 40))]
        try fixture.store.write(report)
        try fixture.store.write(run)
        let choice = ["--fingerprint", "v2:bbbb000000000000", "--since", "2026-11-18T11:06:42Z", fixture.path]
        for reader in [["list"], ["tail"], ["export", "--format", "csv"], ["faults", "--flame"], ["show", "latest"]] {
            let run = try CommandRun(arguments: reader + choice)
            let note = "were only counted: 'stall-monitor faults' has them"
            #expect(run.errors.contains(note), "\(reader): \(run.errors)")
        }
        let faults = try CommandRun(arguments: ["faults"] + choice)
        #expect(faults.output.contains(former.rawValue.dropFirst(3).prefix(4)), "\(faults.output) \(faults.errors)")
    }

    @Test("patterns: stars and question marks, without exponential time")
    func patterns() {
        #expect(NamePattern("a*b*c").matches("aXXbYbZc") && !NamePattern("a*b*c").matches("aXXbYbZ"))
        #expect(NamePattern("*").matches("") && NamePattern("").matches("") && !NamePattern("").matches("x"))
        let stars = String(repeating: "a*", count: 50) + "b"
        #expect(!NamePattern(stars).matches(String(repeating: "a", count: 2000)))
    }

    @Test("times: lengths, days, times of day, RFC 3339, in UTC; anything else is invalid")
    func moments() throws {
        let now = try #require(Timestamp(rfc3339: "2026-03-01T12:30:00Z"))
        func at(_ text: String) -> String? { Moment(text, now: now)?.timestamp.toSeconds }
        #expect(at("2h") == "2026-03-01T10:30:00Z" && at("2h ago") == at("2h") && at("-2h") == at("2h"))
        #expect(at("now") == "2026-03-01T12:30:00Z" && at("today") == "2026-03-01T00:00:00Z")
        #expect(at("yesterday") == "2026-02-28T00:00:00Z" && at("Yesterday 08:15") == "2026-02-28T08:15:00Z")
        #expect(at("08:15") == "2026-03-01T08:15:00Z" && at("08:15:07") == "2026-03-01T08:15:07Z")
        #expect(at("8:15") == at("08:15") && at("yesterday 3:00") == "2026-02-28T03:00:00Z")
        #expect(at("12:30") == "2026-03-01T12:30:00Z" && at("23:00") == "2026-02-28T23:00:00Z")
        #expect(at("today 23:00") == "2026-03-01T23:00:00Z")
        #expect(at("2026-02-03") == "2026-02-03T00:00:00Z" && at("2026-02-03 04:05") == "2026-02-03T04:05:00Z")
        #expect(at("2026-02-03T04:05") == at("2026-02-03 04:05"))
        #expect(at("2026-02-03T04:05:06+01:00") == "2026-02-03T03:05:06Z")
        func end(_ text: String, after start: String) throws -> String? {
            Moment(text, now: now)?.timestamp(asEndAfter: try #require(Moment(start, now: now)).timestamp).toSeconds
        }
        #expect(try end("12:40", after: "12:20") == "2026-03-01T12:40:00Z")
        #expect(try end("23:30", after: "23:00") == "2026-02-28T23:30:00Z")
        #expect(try end("1:00", after: "yesterday 23:00") == "2026-03-01T01:00:00Z")
        #expect(try end("2h", after: "1h") == "2026-03-01T10:30:00Z")
        let wrong = [
            "", " ", "ago", "foo", "2026-13-01", "25:00", ":00", "2026-02-03 x", "yesterday yesterday", "-", "1 2 3",
        ]
        for text in wrong { #expect(at(text) == nil, "\(text)") }
    }
}

@Suite("Selecting on the command line", .timeLimit(.minutes(10)))
struct SelectionCommandTests {
    private let fixture: ReportsFixture

    init() throws { fixture = try ReportsFixture() }

    @Test("readers accept the options; a misspelt word, an invalid time and a reversed range are wrong usage")
    func options() throws {
        let report = Sample.report(id: .make())
        try fixture.store.write(report)
        for command in [["list"], ["tail"], ["show", "latest"]] {
            let yes = try CommandRun(arguments: command + [fixture.path, "--service", "SHOP", "--verdict", "waiting"])
            #expect(yes.status == 0 && yes.output.contains("shop.Cart.total()"), "\(command)")
            let no = try CommandRun(arguments: command + [fixture.path, "--service", "other"])
            #expect(!no.output.contains("shop.Cart.total()"), "\(command)")
        }
        for wrong in [["--verdict", "bloked"], ["--since", "foo"], ["--since", "1h", "--until", "2h"]] {
            let run = try CommandRun(arguments: ["list", fixture.path] + wrong)
            #expect(run.status == 64, "\(wrong) \(run.errors)")
        }
        #expect(try CommandRun("list", fixture.path, "--since", "foo").errors.contains("'yesterday'"))
        #expect(try CommandRun("list", fixture.path, "--kind", "x").errors.contains("one of blocked, repeated"))
    }

    @Test(
        "an unusable address, an empty name and a negative number are wrong usage, and the message says what to give",
        arguments: [
            (["ship", "--to", "foo"], "'foo' is not the address of a receiver: give one like https://"),
            (["ship", "--to", "ftp://example.com"], "'ftp://example.com' is not the address of a receiver"),
            (["ship", "--to", "http://localhost:99999"], "is not the address of a receiver"),
            (
                ["ship", "--collector", "localhost"],
                "'localhost' is not the address of a collector: give one like https://"
            ),
            (["list", "htp://stalls:4319"], "'htp://stalls:4319' is not the address of a collector"),
            (["faults", "http://stalls:99999"], "is not the address of a collector"),
            (["diff", "http:///", "day=today"], "is not the address of a collector"),
            (["gate", "baseline", "record", "htp://stalls"], "is not the address of a collector"),
            (["watch", "1", "--reports", "http://stalls:4319"], "'ship' sends"),
            (["list", "--service", ""], "the value of --service is empty"),
            (["gate", "--budget", ""], "the budget's name is empty"),
            (["show", "latest", "--symbols", ""], "the name of the symbols' directory is empty"),
            (["watch", "--", ""], "the command's name is empty"),
            (["gate", "run", "--", ""], "the command's name is empty"),
            (["faults", "--function", ""], "the value of --function is empty"),
            (["list", "--min-duration", "-5ms"], "'-5ms' is invalid for '--min-duration <length>'"),
            (["tail", "-n", "-3"], "-n is a number from 0"),
            (["faults", "--flame", "-n", "3"], "-n is for the table"),
            (["sample", "1", "--for", "-1s"], "'-1s' is invalid for '--for <length>'"),
            (["watch", "1", "--threshold", "-1s"], "'-1s' is invalid"),
            (["gate", "--max-duration", "-1s"], "'-1s' is invalid"),
        ]
    )
    func usage(_ arguments: [String], _ message: String) throws {
        let run = try CommandRun(arguments: arguments, directory: fixture.root)
        #expect(run.status == 64 && run.errors.contains(message), "\(run.errors)")
    }

    @Test("several directories, or one that contains some, are read as one; a missing one does not hide the others")
    func directories() throws {
        let reports = [Sample.report(id: .make()), Sample.report(id: .make())]
        for (name, report) in zip(["a", "deep/b"], reports) {
            try ReportDirectory(path: fixture.root + "/all/" + name).write(report)
        }
        let both = ["\(fixture.root)/all/a", "\(fixture.root)/all/deep/b"]
        for paths in [[fixture.root + "/all"], both, both + both] {
            let run = try CommandRun(arguments: ["list", "--format", "json"] + paths)
            let ids = run.output.split(separator: "\n").count { $0.contains("\"schema\"") }
            #expect(ids == 2 && run.status == 0, "\(paths) \(run.errors)")
        }
        let run = try CommandRun("list", both[0], fixture.root + "/none")
        #expect(run.status == 1 && run.output.contains("shop.Cart") && run.errors.contains("no such report directory"))
        #expect(try CommandRun("show", "\(reports[0].id)", fixture.root + "/all").output.contains("\(reports[0].id)"))
    }

    @Test(
        "a directory below is read at any depth, beside reports and behind a link; once, however it is reached"
    )
    func everyDirectoryBelow() throws {
        let top = fixture.root + "/fleet"
        for place in ["", "/cluster/zone/rack/host/service/run"] {
            try ReportDirectory(path: top + place).write(Sample.report(id: .make()))
        }
        let elsewhere = fixture.root + "/elsewhere"
        try ReportDirectory(path: elsewhere).write(Sample.report(id: .make()))
        for (link, target) in [("linked", elsewhere), ("again", elsewhere), ("circle", top), ("nowhere", "/none")] {
            try FileManager.default.createSymbolicLink(atPath: "\(top)/\(link)", withDestinationPath: target)
        }
        let run = try CommandRun("list", top, "--format", "json")
        #expect(
            run.output.split(separator: "\n").count { $0.contains("\"schema\"") } == 3 && run.status == 0,
            "\(run.errors)"
        )
    }

    @Test("a directory whose name is not UTF-8 is reported: below a given one, as an argument, and in the environment")
    func notUTF8() throws {
        let top = fixture.root + "/fleet"
        try ReportDirectory(path: top + "/a").write(Sample.report(id: .make()))
        let shell = ["-c", #"n=$(printf 'b\377'); mkdir "$1/$n" && shift && export ODD="$n" && exec "$@""#, "sh", top]
        let command = CommandRun.executable.path
        let below = try CommandRun(tool: "/bin/sh", shell + [command, "list", top])
        #expect(
            below.status == 1 && below.errors.contains("/b\u{FFFD}: the directory's name is not UTF-8"),
            "\(below.errors)"
        )
        #expect(below.output.contains("shop.Cart"))
        let gate = try CommandRun("gate", top, "--max-stalls", "9")
        #expect(gate.status == 1 && gate.output.contains("is not UTF-8"), "\(gate.output)")
        let given =
            #"n=$(printf 'b\377'); "$0" list "$1/$n"; a=$?; STALL_MONITOR_DIRECTORY=$n "$0" list; exit $((a + $?))"#
        let direct = try CommandRun(tool: "/bin/sh", ["-c", given, command, top])
        #expect(direct.status == 128, "\(direct.errors)")
        #expect(direct.errors.contains("the argument '\(top)/b\u{FFFD}' is not UTF-8; give a link"), "\(direct.errors)")
        #expect(direct.errors.contains("$STALL_MONITOR_DIRECTORY 'b\u{FFFD}' is not UTF-8"), "\(direct.errors)")
    }

    @Test("a command after '--' gets its arguments as they were given, UTF-8 or not")
    func rawCommand() throws {
        let script =
            #"exec "$0" watch --reports "$1" -- /bin/sh -c 'printf %s "$1" | od -An -tx1' sh "$(printf 'b\377')""#
        let run = try CommandRun(tool: "/bin/sh", ["-c", script, CommandRun.executable.path, fixture.path])
        #expect(run.status == 0 && run.output == " 62 ff\n", "\(run.output) \(run.errors)")
    }

    @Test("every reader reports a subdirectory that it cannot read, and the gate does not ignore it")
    func unreadableBelow() throws {
        let top = fixture.root + "/fleet"
        try ReportDirectory(path: top + "/a").write(Sample.report(id: .make()))
        // A name whose path is too long for any user, including root.
        let long = String(repeating: "d", count: 250)
        var places = [unsafe open(top, O_RDONLY | O_DIRECTORY)]
        for _ in 0..<17 {
            let place = try #require(places.last)
            try #require(unsafe mkdirat(place, long, 0o700) == 0)
            let next = unsafe openat(place, long, O_RDONLY | O_DIRECTORY)
            places.append(next)
        }
        // Deepest first, by descriptors: no path is short enough to name them.
        defer {
            for place in places.reversed() {
                _ = unsafe unlinkat(place, long, AT_REMOVEDIR)
                close(place)
            }
        }
        for arguments in [
            ["list"], ["faults"], ["runs"], ["tail"], ["top", "--once"], ["export", "--format", "csv"], ["doctor"],
        ] {
            let run = try CommandRun(arguments: arguments + [top])
            #expect(run.status == 1 && run.errors.contains(long), "\(arguments) \(run.status) \(run.errors)")
        }
        let run = try CommandRun("gate", top, "--max-stalls", "10")
        #expect(run.status == 1, "\(run.output)")
    }

    @Test("more directories than the limit are reported, and what was found is shown")
    func tooManyDirectories() throws {
        let top = fixture.root + "/fleet"
        try ReportDirectory(path: top).write(Sample.report(id: .make()))
        for number in 0...4096 { #expect(unsafe mkdir("\(top)/\(number)", 0o700) == 0) }
        let run = try CommandRun("list", top)
        #expect(run.status == 1 && run.output.contains("shop.Cart") && run.errors.contains("too many directories"))
    }
}

extension ReportReader.Overview {
    fileprivate init(_ run: RunRecord, _ reports: [StallReport]) {
        var contents = ReportReader.Contents()
        contents.runs = [run]
        contents.reports = reports.map { report in
            var report = report
            (report.run, report.suppressed) = (run.id, 0)
            return report
        }
        self.init(contents)
    }
}
