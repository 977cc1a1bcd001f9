import StallGate
import StallReading
import StallReports
import Testing

// Faults that a budget allows, and the names by which it does.

extension GateTests {
    @Test("a fault is allowed by its name or an earlier one, in reports and where it was only counted")
    func aliases() throws {
        let before = try #require(Fingerprint(rawValue: "v2:aaaa000000000000"))
        var named = Sample.report(fingerprint: "v2:bbbb000000000000")
        named.aliases = [before]
        let nameless = Sample.report(fingerprint: before.rawValue)
        let repeats = StallReport.Repeats(
            count: 3,
            report: named.id,
            firstAt: Sample.start,
            lastAt: Sample.start,
            totalNs: 1,
            longestNs: 1
        )
        var run = Sample.run()
        run.repeated = [.init(fingerprint: before, repeats: repeats)]
        for text in ["v2:aaaa", "v2:bbbb"] {
            let result = judge(
                [named, nameless],
                runs: [run],
                Budget(maxStalls: 0, allowed: [try #require(FingerprintPrefix(text))])
            )
            #expect(result.verdict == .within && result.allowed.count == 2, "\(text)")
            #expect(result.unusedAllowances.isEmpty)
        }
        let other = [try #require(FingerprintPrefix("v2:cccc"))]
        #expect(judge([named, nameless], runs: [run], Budget(maxStalls: 4, allowed: other)).stallCount == 5)
    }

    @Test("faults that had a name in common are one, over any number of reports; no other is included")
    func aliasesOfAliases() throws {
        let names = "abcdef".map { "v2:" + String(repeating: $0, count: 16) }
        let fingerprints = try names.map { try #require(Fingerprint(rawValue: $0)) }
        // One earlier name became two names, and one of these is the predecessor of a third; the fifth and the sixth
        // belong to another fault.
        let reports = [(1, 0), (2, 0), (3, 2), (5, 4)].map { name, before in
            var report = Sample.report(fingerprint: names[name])
            report.aliases = [fingerprints[before]]
            return report
        }
        for order in [reports, Array(reports.reversed())] {
            let known = FaultNames(order)
            for fingerprint in fingerprints[..<4] { #expect(known.all(of: fingerprint) == Set(fingerprints[..<4])) }
            for fingerprint in fingerprints[4...] { #expect(known.all(of: fingerprint) == Set(fingerprints[4...])) }
        }
        let allowed = [try #require(FingerprintPrefix(names[1]))]
        let result = judge(reports, runs: [Sample.run()], Budget(maxStalls: 0, allowed: allowed))
        #expect(result.allowed.count == 3 && result.stallCount == 1)
    }

    @Test("an allowed fault that did not occur is named: it is fixed or misspelt")
    func unusedAllowances() throws {
        let reports = [Sample.report(fingerprint: "v1:aaaa000000000000")]
        let (used, unused) = (try #require(FingerprintPrefix("aaaa")), try #require(FingerprintPrefix("v1:bbbb")))
        let result = judge(reports, Budget(maxStalls: 0, allowed: [used, unused]))
        #expect(result.verdict == .within && result.unusedAllowances == [unused])
        #expect(result.text.contains("unused: --allow v1:bbbb: no stall has this fingerprint"))
        #expect(String(decoding: try result.json(), as: UTF8.self).contains(#""unused_allowances":["v1:bbbb"]"#))
    }

    @Test("an allowance with a version allows no fingerprint of another version")
    func allowanceOfVersion() throws {
        let reports = [Sample.report(fingerprint: "v1:aaaa000000000000")]
        for (allowed, verdict) in [("v1:aaaa", GateResult.Verdict.within), ("v2:aaaa", .over), ("v11:aaaa", .over)] {
            let budget = Budget(maxStalls: 0, allowed: [try #require(FingerprintPrefix(allowed))])
            #expect(judge(reports, budget).verdict == verdict, "\(allowed)")
        }
    }

    @Test("an allowed fingerprint, in full or as a prefix, counts for neither limit")
    func allowed() throws {
        let reports = [Sample.report(fingerprint: "v1:aaaa000000000000", ms: 9000)]
        for text in ["v1:aaaa000000000000", "v1:aaaa", "aaaa0"] {
            let prefix = try #require(FingerprintPrefix(text))
            let result = judge(reports, Budget(maxStalls: 0, maxDurationNs: 1, allowed: [prefix]))
            #expect(result.verdict == .within)
            #expect(result.allowed == reports.map { StallOutline($0) } && result.counted.isEmpty)
        }
        let other = try #require(FingerprintPrefix("v1:aaab"))
        #expect(judge(reports, Budget(maxStalls: 0, allowed: [other])).verdict == .over)
    }

    @Test("a prefix that matches two faults, by any of their fingerprints, makes it impossible to judge")
    func ambiguousPrefix() throws {
        let reports = ["v1:aaaa000000000000", "v1:aaaa000000000001"].map { Sample.report(fingerprint: $0) }
        let prefix = try #require(FingerprintPrefix("aaaa"))
        let result = judge(reports, Budget(allowed: [prefix]))
        #expect(result.doubts == [.ambiguous(prefix)])
        #expect(result.verdict == .cannotJudge)
        let (one, other) = (reports[0], try #require(Fingerprint(rawValue: "v1:aaaa000000000001")))
        var named = Sample.report(fingerprint: "v1:bbbb000000000000")
        named.aliases = [other]
        #expect(judge([one, named], Budget(allowed: [prefix])).doubts == [.ambiguous(prefix)])
        var run = Sample.run()
        run.repeated = [.init(fingerprint: other, repeats: repeats(1))]
        #expect(judge([one], runs: [run], Budget(allowed: [prefix])).doubts == [.ambiguous(prefix)])
        named.aliases = reports.map(\.fingerprint)
        #expect(judge([one, named], Budget(allowed: [prefix])).doubts.isEmpty, "it is one fault")
    }

    @Test(
        "an invalid prefix is refused",
        arguments: ["", "v1:", "aaa", "v1:aaaaaaaaaaaaaaaaa", "x1:aaaa", "v1:v1:aaaa", "*"]
    )
    func refusesPrefix(text: String) {
        #expect(FingerprintPrefix(text) == nil)
    }
}
