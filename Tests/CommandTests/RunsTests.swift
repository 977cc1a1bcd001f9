import Foundation
import StallReading
import StallReports
import Testing

@testable import stall_monitor

@Suite("runs", .timeLimit(.minutes(5)))
struct RunsTests {
    private static let second: Int64 = 1_000_000_000

    /// One minute each, an hour apart: web1 with two loops and one stall, web2 with one loop and four, three of them only counted.
    static var overview: ReportReader.Overview {
        var runs = (0..<2).map { number in
            var run = Sample.run()
            (run.id, run.host.name) = (ULID(rawValue: UInt128(number + 1) << 80), "web\(number + 1)")
            run.service = .init(name: "shop", version: "1.\(number)")
            run.startedAt = Sample.start.advanced(byNanoseconds: Int64(number) * 3600 * second)
            run.updatedAt = run.startedAt.advanced(byNanoseconds: 60 * second)
            run.stoppedAt = run.updatedAt
            run.watched = [.init(label: "main", watchedNs: 60 * second, turns: UInt64(600 - 540 * number))]
            return run
        }
        runs[0].watched[0].turnDurations = .init(count: 600, p50Ns: 1, p99Ns: 40_000_000, maxNs: 700_000_000)
        runs[0].watched.append(.init(label: "io", watchedNs: 30 * second))
        var contents = ReportReader.Contents()
        contents.reports = runs.enumerated().map { number, run in
            var report = Sample.report(id: ULID(rawValue: UInt128(number + 3) << 80))
            (report.run, report.host.name, report.service, report.suppressed) = (run.id, run.host.name, run.service, 0)
            report.startedAt = run.startedAt
            report.endedAt = run.startedAt.advanced(byNanoseconds: 6 * second)
            report.durationNs = (number == 0 ? 6 : 1) * second
            return report
        }
        runs[1].repeated = [
            .init(
                fingerprint: contents.reports[1].fingerprint,
                repeats: Sample.repeats(of: contents.reports[1].id, count: 3),
                label: "main",
                type: .runLoop,
                kind: .blocked
            )
        ]
        contents.runs = runs
        return .init(contents)
    }

    private static func rows(
        by grouping: WatchedTime.Grouping,
        _ selection: StallSelection = .everything
    ) -> [WatchedRow] {
        WatchedTime(overview, selection, by: grouping).sorted
    }

    @Test("each run has its time, its loops and its stalls, the newest last")
    func runs() {
        let rows = Self.rows(by: .run)
        #expect(rows.map(\.host) == ["web1", "web2"] && rows.map(\.release) == ["1.0", "1.1"])
        #expect(rows.map(\.loops) == [2, 1] && rows.map(\.watchedNs) == [90 * Self.second, 60 * Self.second])
        #expect(rows.map(\.stalls) == [1, 4] && rows.map(\.totalNs) == [6 * Self.second, 5 * Self.second])
        #expect(rows.map(\.longestNs) == [6 * Self.second, Self.second])
    }

    @Test("hosts and loops are added up, the greatest blocked share first")
    func groups() throws {
        #expect(Self.rows(by: .host).map(\.host) == ["web2", "web1"])
        let loops = Self.rows(by: .loop)
        #expect(loops.map(\.label) == ["main", "io"] && loops.map(\.runs) == [2, 1])
        let main = try #require(loops.first)
        #expect(main.service == "shop" && main.type == .runLoop && main.stalls == 5)
        #expect(main.turns == 660 && main.turnsPerSecond == 5.5 && main.maxTurnNs == 700_000_000)
        #expect(loops[1].turnsPerSecond == nil && loops[1].share == 0)
    }

    @Test("of a chosen time there are the runs in it, with the part of their time that lies in it, and no turns")
    func time() {
        let half = Sample.start.advanced(byNanoseconds: 3630 * Self.second)
        let rows = Self.rows(by: .loop, StallSelection(since: half))
        #expect(rows.map(\.watchedNs) == [30 * Self.second] && rows[0].turns == nil && rows[0].stalls == 0)
        #expect(Self.rows(by: .run, StallSelection(until: Sample.start)).map(\.host) == ["web1"])
        let gap = Sample.start.advanced(byNanoseconds: 1800 * Self.second)
        #expect(Self.rows(by: .run, StallSelection(since: gap, until: gap)).isEmpty)
    }

    @Test(
        "counted stalls of which one is known to be long enough are left out, as in a list of faults, however few came in the time"
    )
    func unknownLengths() {
        // Three from the first to the ninth second: one of them in the last half second.
        let end = Sample.start.advanced(byNanoseconds: 3600 * Self.second)
        let late = end.advanced(byNanoseconds: 8 * Self.second + Self.second / 2)
        var overview = Self.overview
        overview.runs[1].repeated?[0].repeats.firstAt = end.advanced(byNanoseconds: Self.second)
        overview.runs[1].repeated?[0].repeats.lastAt = end.advanced(byNanoseconds: 9 * Self.second)
        func stalls(_ selection: StallSelection) -> [Int64] {
            WatchedTime(overview, selection, by: .run).sorted.map(\.stalls)
        }
        #expect(stalls(StallSelection(since: late)) == [1])
        let long = StallSelection(since: late, minDurationNs: 500_000_000)
        #expect(stalls(long) == [0])
        #expect(long.nothingFound(among: 2, overview.runs).hasPrefix("no matching stalls among 2; "))
    }

    @Test("of watch, the service is the process's own name, for each loop and in a run's row")
    func watchedServices() {
        var overview = Self.overview
        overview.runs.removeLast()
        overview.runs[0].targets = [.init(pid: 7, executable: "/usr/bin/python3.11")]
        (overview.runs[0].watched[0].service, overview.runs[0].watched[1].service) = ("shop", "node")
        let loops = WatchedTime(overview, .everything, by: .loop).sorted
        #expect(loops.map(\.service) == ["shop", "node"] && loops[0].stalls == 2 && loops[0].watchedNs > 0)
        let runs = WatchedTime(overview, .everything, by: .run).sorted
        #expect(runs.last?.service == "node, shop")
    }

    @Test("in older records of watch, the service is the watched program; a stall without its run is shown, too")
    func watch() {
        var overview = Self.overview
        overview.runs.removeLast()
        overview.runs[0].targets = [
            .init(pid: 7, executable: "/usr/bin/env"), .init(pid: 7, executable: "/opt/bin/redis-server"),
        ]
        let loops = WatchedTime(overview, .everything, by: .loop).sorted
        #expect(loops.map(\.service) == ["redis-server", "shop", "redis-server"])
        let runs = WatchedTime(overview, .everything, by: .run).sorted
        #expect(runs.map(\.host) == ["web2", "web1"] && runs[0].startedAt == nil && runs[0].share == nil)
        #expect(runs[1].service == "redis-server" && runs[1].release == nil)
    }

    @Test("no line is wider than the terminal", arguments: WatchedTime.Grouping.allCases, [60, 80, 120])
    func widths(grouping: WatchedTime.Grouping, width: Int) {
        ShownTime.useUTC()
        let lines = WatchedTable(rows: Self.rows(by: grouping), grouping: grouping, width: width).lines
        #expect(lines.count == 3 && lines.allSatisfy { $0.width <= width }, "\(lines.map(\.plain))")
        for title in ["WATCHED", "STALLS", "BLOCKED"] {
            #expect(lines[0].plain.contains(title), "\(lines[0].plain)")
        }
    }

    @Test("the command: text and JSON, with what it says if there is nothing")
    func command() throws {
        let fixture = try ReportsFixture()
        try fixture.store.prepare()
        #expect(try CommandRun("runs", fixture.path).errors.contains("is this the right directory?"))
        for run in Self.overview.runs { try fixture.store.write(run) }
        let text = try CommandRun("runs", fixture.path)
        #expect(text.status == 0 && text.output.hasPrefix("STARTED ") && text.output.contains("web2"), "\(text)")
        let json = try CommandRun("runs", fixture.path, "--by", "host", "-n1", "--format", "json")
        let document = try #require(
            try JSONSerialization.jsonObject(with: Data(json.output.utf8)) as? [String: Any]
        )
        #expect(document["schema"] as? String == "stall-runs/1" && document["by"] as? String == "host")
        let row = try #require((document["rows"] as? [[String: Any]])?.first)
        #expect(row["host"] as? String == "web2" && row["watched_ns"] as? Int == 60_000_000_000, "\(row)")
        let none = try CommandRun("runs", fixture.path, "--since", "2026-11-20")
        #expect(none.status == 0 && none.errors == "stall-monitor: no matching runs among 2\n", "\(none)")
        #expect(try CommandRun("runs", fixture.root + "/none").status == 1)
        #expect(try CommandRun("runs", fixture.path, "--by", "day").status == 64)
    }
}
