import Foundation
import StallGate
import StallReading
import StallReports
import Testing

@testable import stall_monitor

@Suite("Selecting stalls")
struct SelectionTests {
    let stall = StallOutline(Sample.report())
    let end = Sample.start.advanced(byNanoseconds: 612_345_678)

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
        for text in ["2 hours ago", "120 minutes ago", "7200 Seconds ago"] { #expect(at(text) == at("2h"), "\(text)") }
        #expect(at("1 day ago") == "2026-02-28T12:30:00Z" && at("2 weeks ago") == "2026-02-15T12:30:00Z")
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
            "2 days", "2 months ago", "days ago", "-2 days ago", "2  ago", "2h hours ago", "99999999999 weeks ago",
        ]
        for text in wrong { #expect(at(text) == nil, "\(text)") }
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
