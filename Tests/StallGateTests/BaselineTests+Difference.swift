import StallGate
import StallReading
import StallReports
import Testing

// The differences of two sets of faults, and faults that were joined or divided since.

extension BaselineTests {
    @Test("a difference lists new, gone, worse and better faults, whether they are proven, and unchanged ones")
    func difference() throws {
        let (same, often, seldom, long, short) = ("v2:1111", "v2:2222", "v2:3333", "v2:4444", "v2:5555")
        let (new, once, gone) = ("v2:6666", "v2:7777", "v2:8888")
        func all(_ counts: [(String, Int, Int64)]) -> [StallReport] {
            counts.flatMap { Self.stalls($1, ms: $2, $0 + "000000000000") }
        }
        let before = try baseline(
            all([
                (same, 20, 300), (often, 20, 300), (seldom, 80, 300), (long, 20, 300), (short, 20, 900),
                (gone, 30, 300),
            ])
                + Self.stalls(9, "v2:9999000000000000", verdict: .starved)
        )
        let after = try baseline(
            all([
                (same, 21, 300), (often, 80, 300), (seldom, 20, 300), (long, 20, 900), (short, 20, 300), (new, 30, 300),
                (once, 1, 300),
            ])
        )
        let difference = FaultDifference(before, after)
        let told = difference.items.map { item in
            "\(item.fingerprint.rawValue.dropFirst(3).first ?? "?") \(item.change)\(item.isProven ? "" : ", not proven")"
        }
        #expect(
            told == [
                "6 new", "7 new, not proven", "2 worse", "4 worse", "8 gone", "3 better", "5 better",
                "1 unchanged, not proven",
            ]
        )
        #expect(difference.items.first { $0.change == .new && !$0.isProven }?.probability == 1)
        #expect(difference.starvedBefore == 9 && difference.starvedAfter == 0 && difference.count(.worse) == 2)
    }

    @Test("a change is proven exactly if its probability is at most that of a false alarm")
    func probability() throws {
        let before = try baseline(Self.stalls(20))
        for count in 30...60 {
            let item = try #require(FaultDifference(before, try baseline(Self.stalls(count))).items.first)
            #expect(item.isProven == (item.probability <= Comparison.Rule().alarm), "\(count): \(item.probability)")
        }
    }

    @Test("equal sets have no difference, and a fault under another name is the same fault")
    func noDifference() throws {
        let before = try baseline(Self.stalls(20))
        #expect(FaultDifference(before, before).items.map(\.change) == [.unchanged])
        var countless = before
        countless.faults[0].count = .max
        let same = FaultDifference(countless, countless).items
        #expect(same.map(\.change) == [.unchanged] && same.map(\.before.count) == [.max])
        let renamed = Self.stalls(20, "v2:bbbb000000000000").map { report in
            var report = report
            report.aliases = [Fingerprint(rawValue: "v2:aaaa000000000000")!]
            return report
        }
        #expect(FaultDifference(before, try baseline(renamed)).items.map(\.change) == [.unchanged])
    }

    @Test("two faults of the baseline that are now one are summed, and tightened as one")
    func merged() throws {
        let names = ["v2:aaaa000000000000", "v2:bbbb000000000000"]
        let before = try baseline(Self.stalls(20, names[0]) + Self.stalls(20, names[1]))
        let now = { (count: Int) in
            var stalls = Self.stalls(count, "v2:cccc000000000000")
            for index in stalls.indices { stalls[index].aliases = names.compactMap { Fingerprint(rawValue: $0) } }
            return stalls
        }
        #expect(judge(now(40), before).verdict == .within)
        #expect(judge(now(90), before).verdict == .over)
        let fewer = try #require(before.tightened(by: Self.overview(now(5), [Self.run()]), at: Sample.start))
        #expect(fewer.faults.map(\.count) == [5])
    }

    @Test("a fault of the baseline that is two now, in reports without names, is compared with both together")
    func split() throws {
        let names = ["v2:aaaa000000000000", "v2:bbbb000000000000"]
        var named = Self.stalls(40, "v2:cccc000000000000")
        for index in named.indices { named[index].aliases = names.compactMap { Fingerprint(rawValue: $0) } }
        let before = try baseline(named)
        let now = { (count: Int) in Self.stalls(count, names[0]) + Self.stalls(count, names[1]) }
        #expect(judge(now(20), before).verdict == .within)
        #expect(judge(now(45), before).verdict == .over)
        let items = FaultDifference(before, try baseline(now(20))).items
        #expect(items.map(\.change) == [.unchanged] && items.map(\.after.count) == [40])
        #expect(before.tightened(by: Self.overview(now(20), [Self.run()]), at: Sample.start) == nil)
    }
}
