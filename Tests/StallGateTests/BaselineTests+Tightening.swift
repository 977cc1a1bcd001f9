import StallGate
import StallReading
import StallReports
import Testing

// What a baseline takes over from a run, and how it is kept.

extension BaselineTests {
    @Test("tightening takes over proven improvements and nothing else")
    func tightened() throws {
        let before = try baseline(Self.stalls(40))
        let tighten = { (stalls: [StallReport]) in
            before.tightened(by: Self.overview(stalls, [Self.run()]), at: Sample.start)
        }
        #expect(tighten(Self.stalls(40)) == nil && tighten(Self.stalls(39)) == nil && tighten(Self.stalls(80)) == nil)
        // p = 0.0005: among many runs without a change, one is as good by chance.
        #expect(tighten(Self.stalls(15)) == nil)
        let fewer = try #require(tighten(Self.stalls(5)))
        #expect(fewer.faults.map(\.count) == [5])
        #expect(judge(Self.stalls(40), before).verdict == .within)
        #expect(judge(Self.stalls(40), fewer).verdict == .over)
        #expect(try #require(tighten([])).faults.map(\.count) == [0])
        let shorter = try #require(tighten(Self.stalls(40, ms: 100)))
        #expect(shorter.faults[0].lengthsNs.max() == 106_000_000 && shorter.faults[0].count == 40)
    }

    @Test("a run without its burst of stalls is no improvement, however many of them the baseline has")
    func tightenedByBursts() throws {
        let before = try baseline(Self.stalls(100))
        let overviews = { (counts: [Int]) in counts.map { Self.overview(Self.stalls($0), [Self.run()]) } }
        #expect(before.tightened(by: overviews([0, 100, 0, 0, 0]), at: Sample.start) == nil)
        let fewer = try #require(before.tightened(by: overviews([20, 22, 18, 21, 19]), at: Sample.start))
        #expect(fewer.faults.map(\.count) == [100] && fewer.faults.map(\.watchedNs) == [5 * 600_000_000_000])
        #expect(fewer.faults[0].dispersion != nil)
    }

    @Test("a fault that was gone at tightening, and occurs again, is compared with the run that tightened")
    func occursAgain() throws {
        let before = try baseline(Self.stalls(600), minutes: 100)
        let none = try #require(before.tightened(by: Self.overview([], [Self.run()]), at: Sample.start))
        let few = judge(Self.stalls(4), none)
        #expect(few.verdict == .inconclusive)
        let words = "occurs again: 4 stalls in 10m, none in the 10m by which the baseline was tightened"
        #expect(few.text.contains(words), "\(few.text)")
        #expect(judge(Self.stalls(60), none).verdict == .over)
        #expect(none.tightened(by: Self.overview(Self.stalls(4), [Self.run()]), at: Sample.start) == nil)
    }

    @Test("it is read back as written; one with impossible numbers, or of a later version, is refused")
    func coding() throws {
        let before = try baseline(Self.stalls(3))
        let json = try before.json()
        #expect(try Baseline(json: json) == before)
        let text = String(decoding: json, as: UTF8.self)
        for (from, to) in [
            (#""count":3"#, #""count":-3"#), ("stall-baseline/1", "stall-baseline/2"), (#""runs":1"#, #""runs":"a""#),
        ] {
            #expect(throws: ReportError.self) { try Baseline(json: Array(text.replacing(from, with: to).utf8)) }
        }
    }
}
