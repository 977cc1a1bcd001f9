import Foundation
import StallReading
import StallReports
import Testing

@testable import stall_monitor

@Suite("diff")
struct DiffTests {
    private let fixture: ReportsFixture

    init() throws { fixture = try ReportsFixture() }

    /// A directory with a run of ten minutes and this many stalls.
    private func directory(_ name: String, stalls: Int, release: String = "1.2") throws -> String {
        let path = "\(fixture.root)/\(name)"
        var run = Sample.run()
        run.id = .make()
        (run.service, run.suppressed, run.repeated) = (.init(name: "shop", version: release), 0, [])
        run.watched = [.init(label: "main", watchedNs: 600_000_000_000)]
        try ReportDirectory(path: path).write(run)
        for _ in 0..<stalls {
            var report = Sample.report(id: .make())
            (report.run, report.service, report.suppressed) = (run.id, run.service, 0)
            try ReportDirectory(path: path).write(report)
        }
        return path
    }

    @Test("two directories: a fault that occurs more often is worse; a directory against itself shows no change")
    func directories() throws {
        let (few, many) = (try directory("few", stalls: 2), try directory("many", stalls: 40))
        let run = try CommandRun("diff", few, many)
        #expect(run.status == 0 && run.errors.isEmpty, "\(run.errors)")
        #expect(run.output.contains("worse") && run.output.contains("p < 0.0001") && run.output.contains("shop.Cart"))
        #expect(run.output.contains("0 new, 1 worse, 0 gone, 0 better, 0 unchanged"))
        #expect(try CommandRun("diff", many, few).output.contains("0 new, 0 worse, 0 gone, 1 better, 0 unchanged"))
        let same = try CommandRun("diff", many, many)
        #expect(!same.output.contains("shop.Cart") && same.output.contains("1 unchanged"))
        #expect(try CommandRun("diff", many, many, "--all").output.contains("shop.Cart"))
        #expect(try CommandRun("diff", few, many, "--format", "json").output.contains("\"change\":\"worse\""))
    }

    @Test("a stall that passes midnight belongs to the day on which it began, and to no other")
    func midnight() throws {
        ShownTime.useUTC()
        let midnight = try #require(Timestamp(rfc3339: "2026-11-19T00:00:00Z"))
        let (before, after) = (
            midnight.advanced(byNanoseconds: -300_000_000), midnight.advanced(byNanoseconds: 312_345_678)
        )
        var report = Sample.report()
        (report.startedAt, report.endedAt) = (before, after)
        func counted(_ count: Int) -> RunRecord.Repeated {
            let repeats = StallReport.Repeats(
                count: count,
                report: report.id,
                firstAt: before,
                lastAt: after,
                totalNs: 600_000_000,
                longestNs: 300_000_000
            )
            return .init(fingerprint: report.fingerprint, repeats: repeats)
        }
        let days = try ["day=2026-11-18", "day=2026-11-19"].map { try StallSet($0).selection }
        #expect(days.map { $0.includes(StallOutline(report)) } == [true, false])
        #expect(days.map { counted(1).membership(in: $0) } == [.wanted, .unwanted])
        // Of several that were only counted, as many belong to each day as if they had come evenly.
        #expect(days.map { counted(100).membership(in: $0) } == [.wanted, .wanted])
        #expect(days.map { $0.part(of: counted(100)).repeats.count } == [49, 51])
    }

    @Test("--html: one page with the stacks and faults of both sides; a baseline file has no stacks")
    func page() throws {
        let (few, many) = (try directory("few", stalls: 2), try directory("many", stalls: 40))
        let file = fixture.root + "/diff.html"
        let run = try CommandRun("diff", few, many, "--html", file)
        #expect(run.status == 0 && run.output.contains("1 worse"), "\(run.errors)")
        let page = try String(contentsOfFile: file, encoding: .utf8)
        let data = page.components(separatedBy: #"id="data">"#)[1].components(separatedBy: "</script>")[0]
        let content = try #require(try JSONSerialization.jsonObject(with: Data(data.utf8)) as? [String: Any])
        let graph = try #require(content["graph"] as? [String: Any])
        // Six runs of ten minutes make an hour.
        #expect(graph["b"] as? Int == 612_345_678 * 2 * 6 && graph["t"] as? Int == 612_345_678 * 40 * 6)
        #expect((content["stalls"] as? [[String]])?.map(\.first) == ["worse"])
        #expect((content["sides"] as? [String: Any])?["rate"] as? Bool == true)
        let baseline = fixture.root + "/baseline.json"
        #expect(try CommandRun("gate", "baseline", "record", few, "--output", baseline).status == 0)
        let refused = try CommandRun("diff", baseline, many, "--html", file)
        #expect(refused.status == 1 && refused.errors.contains("is a baseline, which has no stacks"))
        let unwritten = try CommandRun("diff", few, many, "--html", "/nowhere/diff.html")
        #expect(unwritten.status == 1 && unwritten.errors.contains("cannot write /nowhere/diff.html"))
        #expect(unwritten.output == run.output, "the table is shown anyway")
    }

    @Test("two releases in one directory, a baseline file; a day without data is an error")
    func choices() throws {
        _ = try directory("all/a", stalls: 2, release: "1.4")
        _ = try directory("all/b", stalls: 40, release: "1.5")
        let all = "\(fixture.root)/all"
        let run = try CommandRun("diff", "release=1.4", "release=1.5", "--reports", all)
        #expect(run.status == 0 && run.output.contains("1 worse"), "\(run.output) \(run.errors)")
        let file = fixture.root + "/baseline.json"
        #expect(try CommandRun("gate", "baseline", "record", "\(all)/a", "--output", file).status == 0)
        #expect(try CommandRun("diff", file, "\(all)/b").output.contains("1 worse"))
        let empty = try CommandRun("diff", "day=1999-01-01", "day=today", "--reports", all)
        #expect(empty.status == 1 && empty.errors.contains("nobody knows how long it was watched"), "\(empty.errors)")
    }

    @Test(
        "an invalid side is wrong usage; the error lists what exists",
        arguments: ["colour=red", "release=", "release", "day=soon"]
    )
    func wrong(_ side: String) throws {
        let run = try CommandRun("diff", side, "release=1.5", "--reports", fixture.root)
        #expect(side == "release" ? run.status == 1 : run.status == 64, "\(run.status) \(run.errors)")
        #expect(!run.errors.isEmpty && run.output.isEmpty)
        #expect(side != "release" || run.errors.contains("stalls are chosen as in release=release"))
    }
}
