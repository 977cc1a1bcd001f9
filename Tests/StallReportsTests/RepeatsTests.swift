import StallReading
import StallReports
import Testing

@Suite("Stalls that were only counted")
struct RepeatsTests {
    @Test("they are shown with the report that they repeat, whether the next report or the run record has them")
    func besideTheirReport() throws {
        let (first, second) = (ULID(rawValue: 1), ULID(rawValue: 2))
        var (next, run) = (Sample.recovered(), Sample.run())
        next.repeats = Sample.repeats(of: first, count: 3)
        let fingerprint = next.fingerprint
        run.repeated = [second, second, nil].map {
            .init(fingerprint: fingerprint, repeats: Sample.repeats(of: $0, count: 20))
        }
        var contents = ReportReader.Contents()
        (contents.reports, contents.runs) = ([next], [run])
        #expect(contents.repeats.mapValues(\.count) == [first: 3, second: 40])
    }

    @Test("they add up, from the first to the last of both")
    func joined() {
        let early = Sample.repeats(count: 3)
        var late = Sample.repeats(of: nil, count: 4)
        late.firstAt = late.firstAt.advanced(byNanoseconds: 5)
        late.lastAt = late.lastAt.advanced(byNanoseconds: 5)
        (late.totalNs, late.longestNs) = (.max, 900_000_000)
        let both = early.joined(by: late)
        #expect(both.count == 7 && both.report == early.report)
        #expect(both.firstAt == early.firstAt && both.lastAt == late.lastAt)
        #expect(both.totalNs == .max && both.longestNs == 900_000_000)
    }

    @Test("older reports and run records are read without any")
    func older() throws {
        var (report, run) = (Sample.recovered(), Sample.run())
        (report.repeats, run.repeated, run.suppressedBy) = (nil, nil, nil)
        let text = String(decoding: try report.json(), as: UTF8.self)
        #expect(!text.contains("repeats"))
        #expect(try StallReport(json: report.json()) == report && RunRecord(json: run.json()) == run)
    }
}
