import Foundation
import StallGate
import StallReading
import StallReports
import Testing

@Suite("Gate")
struct GateTests {
    private func judge(
        _ reports: [StallReport],
        runs: [RunRecord]? = nil,
        failures: [ReportError] = [],
        _ budget: Budget
    ) -> GateResult {
        var contents = ReportReader.Contents()
        contents.reports = reports
        contents.runs = runs ?? [Sample.run()]
        contents.failures = failures
        return Gate.judge(.success(contents), by: budget)
    }

    @Test("no stalls in a watched run are within any budget")
    func within() {
        let result = judge([], Budget(maxStalls: 0, maxDurationNs: 0))
        #expect(result.verdict == .within)
        #expect(result.watchedNs == 59_000_000_000)
    }

    @Test("the number of stalls: as many as permitted are within, one more is over")
    func count() {
        let reports = [Sample.report(), Sample.report()]
        #expect(judge(reports, Budget(maxStalls: 2)).verdict == .within)
        #expect(judge(reports, Budget(maxStalls: 1)).verdict == .over)
        #expect(judge(reports, Budget()).verdict == .within)
    }

    @Test("stalls that were counted but not reported count, whatever numbers a file claims")
    func suppressed() {
        let run = [Sample.run()]
        #expect(judge([Sample.report(suppressed: 4)], runs: run, Budget(maxStalls: 5)).verdict == .within)
        #expect(judge([Sample.report(suppressed: 4)], runs: run, Budget(maxStalls: 4)).verdict == .over)
        let hostile = [
            Sample.report(suppressed: .max), Sample.report(suppressed: .max), Sample.report(suppressed: .min),
        ]
        #expect(judge(hostile, runs: run, Budget(maxStalls: 4)).stallCount == .max)
    }

    private func repeats(_ count: Int) -> StallReport.Repeats {
        .init(count: count, report: nil, firstAt: Sample.start, lastAt: Sample.start, totalNs: 1, longestNs: 1)
    }

    @Test("stalls that are in no report yet count, except those of an allowed fault")
    func countedOnly() throws {
        var run = Sample.run()
        run.repeated = try ["v2:aaaa000000000000", "v2:bbbb000000000000"].map {
            .init(fingerprint: try #require(Fingerprint(rawValue: $0)), repeats: repeats(3))
        }
        #expect(judge([], runs: [run], Budget(maxStalls: 5)).verdict == .over)
        let allowed = [try #require(FingerprintPrefix("v2:aaaa"))]
        #expect(judge([], runs: [run], Budget(maxStalls: 3, allowed: allowed)).verdict == .within)
        #expect(judge([], runs: [run], Budget(maxStalls: 2, allowed: allowed)).verdict == .over)
        #expect(judge([], runs: [run], Budget(allowed: allowed)).unusedAllowances.isEmpty)
    }

    @Test("the number of allowed stalls includes those that were only counted, before a report and after it")
    func allowedCountedOnly() throws {
        var report = Sample.report(fingerprint: "v2:aaaa000000000000")
        report.suppressed = 2
        var run = Sample.run()
        run.repeated = [.init(fingerprint: report.fingerprint, repeats: repeats(500), label: "main")]
        let budget = Budget(maxStalls: 0, allowed: [try #require(FingerprintPrefix("v2:aaaa"))])
        let result = judge([report], runs: [run], budget)
        #expect(result.text.hasPrefix("within budget: 0 stalls and 503 allowed, "), "\(result.text)")
        #expect(result.text.contains("  allowed: 500 only counted"), "\(result.text)")
        #expect(String(decoding: try result.json(), as: UTF8.self).contains(#""allowed_count":503,"#))
        let silent = judge([], runs: [run], budget)
        #expect(silent.text.hasPrefix("within budget: 0 stalls and 500 allowed, "), "\(silent.text)")
    }

    @Test("allowed stalls that were only counted are in JSON; without a report also in SARIF and Markdown, once")
    func allowedCountedOnlyForPrograms() throws {
        let report = Sample.report(fingerprint: "v2:aaaa000000000000")
        let runs = [Sample.run(), Sample.run()].map { run in
            var run = run
            run.repeated = [.init(fingerprint: report.fingerprint, repeats: repeats(3), label: "main")]
            return run
        }
        let budget = Budget(maxStalls: 0, allowed: [try #require(FingerprintPrefix("v2:aaaa"))])
        let silent = judge([], runs: runs, budget)
        let json = try JSONSerialization.jsonObject(with: Data(silent.json())) as? [String: Any]
        let counted = try #require(json?["counted_only"] as? [[String: Any]])
        #expect(counted.map { $0["result"] as? String } == ["allowed", "allowed"])
        let sarif = String(decoding: try silent.sarif(sourceRoot: "/", version: "1"), as: UTF8.self)
        #expect(sarif.contains("6 only counted") && !sarif.contains("3 only counted"), "\(sarif)")
        let page = silent.markdown(sourceRoot: "/")
        #expect(page.components(separatedBy: "| allowed |").count == 2, "\(page)")
        // A report of the fault stands for it.
        let reported = judge([report], runs: runs, budget).markdown(sourceRoot: "/")
        #expect(reported.components(separatedBy: "| allowed |").count == 2 && reported.contains("612ms"), "\(reported)")
    }

    @Test("a fault with a former name that was only counted under both is in SARIF and Markdown once, allowed or not")
    func countedOnlyUnderTwoNames() throws {
        let former = try #require(Fingerprint(rawValue: "v2:bbbb000000000000"))
        var report = Sample.report(fingerprint: "v2:aaaa000000000000")
        report.aliases = [former]
        report.culprit?.file = "/srv/Cart.swift"
        report.culprit?.line = 12
        var contents = ReportReader.Contents()
        contents.runs = [former, report.fingerprint].map { name in
            var run = Sample.run()
            run.repeated = [.init(fingerprint: name, repeats: repeats(3), label: "main")]
            return run
        }
        // The report, which alone has both names, is not in the chosen time.
        let chosen = ReportReader.Overview(contents)
        contents.reports = [report]
        let whole = ReportReader.Overview(contents)
        func results(_ budget: Budget) throws -> (sarif: String, page: String, text: String) {
            let result = Gate.judge(.success(chosen), by: budget, against: nil, outOf: whole)
            let sarif = String(decoding: try result.sarif(sourceRoot: "/srv", version: "1"), as: UTF8.self)
            return (sarif, result.markdown(sourceRoot: "/srv"), result.text)
        }
        let allowed = try results(Budget(maxStalls: 0, allowed: [try #require(FingerprintPrefix("v2:aaaa"))]))
        #expect(allowed.sarif.components(separatedBy: #""ruleId":"allowed""#).count == 2, "\(allowed.sarif)")
        #expect(allowed.page.components(separatedBy: "| allowed |").count == 2, "\(allowed.page)")
        #expect(allowed.sarif.contains("6 only counted"), "\(allowed.sarif)")
        let over = try results(Budget(maxStalls: 0))
        #expect(over.sarif.components(separatedBy: #""ruleId":"stall_count""#).count == 2, "\(over.sarif)")
        #expect(
            over.sarif.contains("shop.Cart.total() stalled") && !over.sarif.contains("among others"),
            "\(over.sarif)"
        )
    }

    @Test("a rule for a verdict judges stalls that were only counted, also under a former fingerprint of their fault")
    func verdictOfFormerName() throws {
        let former = try #require(Fingerprint(rawValue: "v2:bbbb000000000000"))
        var report = Sample.report(fingerprint: "v2:aaaa000000000000")
        report.aliases = [former]
        var run = Sample.run()
        run.repeated = [.init(fingerprint: former, repeats: repeats(3), label: "main")]
        var scope = BudgetRule.Scope()
        scope.verdict = .onCPU
        let rule = BudgetRule(name: "computing", scope: scope, limits: BudgetLimits(maxStalls: 3, maxDurationNs: nil))
        var budget = Budget()
        budget.rules = [rule]
        let result = judge([report], runs: [run], budget)
        #expect(result.findings.map(\.rule) == [.stallCount], "\(result.text)")
    }

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

    @Test("a stall that was only counted can be the one that was too long, with or without a report")
    func longestCountedOnly() throws {
        let repeats = StallReport.Repeats(
            count: 3,
            report: nil,
            firstAt: Sample.start,
            lastAt: Sample.start,
            totalNs: 2_000_000_000,
            longestNs: 1_150_000_000
        )
        let budget = Budget(maxDurationNs: 700_000_000)
        var report = Sample.report(ms: 300)
        report.repeats = repeats
        let told = judge([report], budget)
        #expect(told.verdict == .over && told.tooLong == [StallOutline(report)])
        #expect(told.text.contains("before it 3 only counted, the longest 1.15s, 700ms permitted"))
        var run = Sample.run()
        run.repeated = [
            .init(fingerprint: try #require(Fingerprint(rawValue: "v2:aaaa000000000000")), repeats: repeats)
        ]
        let untold = judge([], runs: [run], budget)
        #expect(untold.verdict == .over && untold.tooLongCountedOnly.count == 1)
        #expect(untold.text.contains("  over budget: 3 only counted, the longest 1.15s (v2:aaaa000000000000), 700ms"))
        #expect(untold.junit().contains("3 only counted, the longest 1.15s"))
        #expect(String(decoding: try untold.json(), as: UTF8.self).contains(#""result":"too_long""#))
        let counts = judge([], runs: [run], Budget(maxStalls: 0))
        #expect(counts.text.contains("  stalls: 3 only counted, the longest 1.15s (v2:aaaa000000000000)"))
        #expect(judge([], runs: [run], Budget(maxDurationNs: 2_000_000_000)).verdict == .within)
    }

    @Test(
        "stalls that were only counted have their fault's function, line and cause from a report that the choice leaves out"
    )
    func countedAfterReport() throws {
        var report = Sample.report()
        report.cause.verdict = .starved
        report.culprit = .init(function: "shop.Cart.total()", file: "Cart.swift", line: 12, stack: 0, frame: 0)
        var run = Sample.run()
        run.repeated = [.init(fingerprint: report.fingerprint, repeats: repeats(3))]
        let later = ReportReader.Overview(contents([], [run]))
        let whole = ReportReader.Overview(contents([report], [run]))
        var budget = Budget()
        budget.rules = [BudgetRule(name: "all", limits: BudgetLimits(maxStalls: 0))]
        func judge(_ whole: ReportReader.Overview?) -> GateResult {
            Gate.judge(
                .success(later),
                by: budget,
                against: Baseline(later, at: Sample.start),
                outOf: whole
            )
        }
        let result = judge(whole)
        #expect(result.text.contains("      in shop.Cart.total() (v1:"), "\(result.text)")
        #expect(result.text.contains("3 stalls starved of CPU"), "\(result.text)")
        #expect(result.gitHubAnnotations(sourceRoot: "/").contains("file=Cart.swift,line=12"))
        #expect(try #require(Baseline(later, at: Sample.start, outOf: whole)).faults.first?.starved == 3)
        let unreported = judge(nil)
        #expect(unreported.text.contains("      in code that no report here names (v1:"), "\(unreported.text)")
    }

    private func contents(_ reports: [StallReport], _ runs: [RunRecord]) -> ReportReader.Contents {
        var contents = ReportReader.Contents()
        (contents.reports, contents.runs) = (reports, runs)
        return contents
    }

    @Test("an ongoing stall cannot be judged by its length until it is too long")
    func underWay() {
        var report = Sample.report(ms: 300)
        report.state = .ongoing
        let open = judge([report], Budget(maxDurationNs: 700_000_000))
        #expect(open.verdict == .cannotJudge && open.doubts == [.underWay(report.id)])
        var twice = Budget(maxDurationNs: 700_000_000)
        twice.rules = [BudgetRule(name: "all", limits: .init(maxDurationNs: 700_000_000))]
        #expect(judge([report], twice).doubts == [.underWay(report.id)])
        #expect(judge([report], Budget(maxDurationNs: 200_000_000)).verdict == .over)
        #expect(judge([report], Budget(maxStalls: 1)).verdict == .within)
        #expect(judge([report], Budget(maxStalls: 0)).text.contains(" 300ms+ in "))
    }

    @Test("the length of stalls: the limit itself is within, a nanosecond more is over, the longest first")
    func length() {
        let reports = [Sample.report(ms: 300), Sample.report(ms: 900), Sample.report(ms: 500)]
        #expect(judge(reports, Budget(maxDurationNs: 900_000_000)).verdict == .within)
        #expect(judge(reports, Budget(maxDurationNs: 899_999_999)).verdict == .over)
        let result = judge(reports, Budget(maxDurationNs: 400_000_000))
        #expect(result.tooLong.map(\.durationNs) == [900_000_000, 500_000_000])
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

    @Test("without a run record nothing was watched, even if there are reports")
    func noRun() {
        #expect(judge([], runs: [], Budget()).doubts == [.noRun])
        #expect(judge([Sample.report()], runs: [], Budget()).verdict == .cannotJudge)
    }

    @Test("each run must have watched something, and kept watching")
    func watchedNothing() {
        var idle = Sample.run()
        idle.watched = [.init(label: "main", watchedNs: 0)]
        var disarmed = Sample.run()
        disarmed.disarmed = "no memory"
        let result = judge([], runs: [Sample.run(), idle, disarmed], Budget())
        #expect(result.doubts == [.watchedNothing(run: idle.id), .disarmed(run: disarmed.id)])
    }

    @Test("for a running process the result says that it runs, even if it has only just started")
    func running() {
        var run = Sample.run()
        run.state = .running
        let result = judge([], runs: [run], Budget())
        #expect(result.verdict == .within)
        #expect(result.text == "within budget: 0 stalls, 59s watched in 1 run, still running\n")
        #expect(judge([], runs: [run, Sample.run()], Budget()).text.contains("in 2 runs, 1 of them still running"))
        run.watched = [.init(label: "main", watchedNs: 999_999_999)]
        let young = judge([], runs: [run], Budget())
        #expect(young.doubts == [.justStarted(run: run.id)])
        #expect(young.text.contains("it has watched for less than a second, and goes on; judge later"))
    }

    @Test("counted-only stalls that no fault accounts for make it impossible to judge")
    func unaccounted() throws {
        var run = Sample.run()
        (run.stalls, run.suppressed) = (["blocked": 500], 499)
        var report = Sample.report()
        report.run = run.id
        let budgets = [Budget(maxStalls: 1), Budget(maxDurationNs: 1_000_000_000), Budget()]
        for budget in budgets {
            #expect(judge([report], runs: [run], budget).doubts == [.unaccounted(run: run.id, count: 499)])
        }
        report.suppressed = 400
        #expect(judge([report], runs: [run], Budget()).doubts == [.unaccounted(run: run.id, count: 99)])
        let repeats = StallReport.Repeats(
            count: 99,
            report: nil,
            firstAt: Sample.start,
            lastAt: Sample.start,
            totalNs: 1,
            longestNs: 1
        )
        run.repeated = [.init(fingerprint: report.fingerprint, repeats: repeats)]
        #expect(judge([report], runs: [run], Budget()).doubts == [])
        run.repeated?[0].repeats.count = .max
        (report.suppressed, run.suppressed) = (.min, .max)
        #expect(judge([report], runs: [run], Budget()).doubts == [])
    }

    @Test("reports that wait for the disk are missing, whether the process is alive or dead")
    func waitingReports() {
        var run = Sample.run()
        (run.state, run.writing) = (.running, .init(waiting: 2))
        #expect(judge([], runs: [run], Budget()).doubts == [.missingReports(run: run.id, count: 2)])
        for (count, words) in [(1, "1 of its reports is missing;"), (2, "2 of its reports are missing;")] {
            #expect(Doubt.missingReports(run: run.id, count: Int64(count)).description.contains(words))
        }
        (run.state, run.processEnd) = (.terminated, .init(cause: .killedOrCrashed, summary: "Killed."))
        #expect(judge([], runs: [run], Budget()).doubts == [.missingReports(run: run.id, count: 2)])
        run.stalls = ["blocked": 2]
        #expect(judge([], runs: [run], Budget()).doubts == [.missingReports(run: run.id, count: 2)], "not twice")
        (run.stalls, run.writing) = (["blocked": 1], nil)
        #expect(judge([], runs: [run], Budget()).doubts == [.missingReports(run: run.id, count: 1)], "a single one")
    }

    @Test(
        "a run that was not closed is judged by its records, with a note; without a live record it is in doubt"
    )
    func cutShort() throws {
        var run = Sample.run()
        (run.state, run.processEnd) = (.terminated, .init(cause: .killedOrCrashed, summary: "A signal ended it."))
        let within = judge([], runs: [run], Budget(maxStalls: 0))
        #expect(within.verdict == .within && within.cutShort == [run])
        #expect(within.text.contains("  cut short: run \(run.id) of process 7 was not closed, and is judged by what"))
        #expect(within.text.contains("left: A signal ended it."))
        #expect(String(decoding: try within.json(), as: UTF8.self).contains(#""cut_short":["\#(run.id)"]"#))
        #expect(judge([Sample.report()], runs: [run], Budget(maxStalls: 0)).verdict == .over)
        run.processEnd = nil
        let doubted = judge([], runs: [run], Budget(maxStalls: 0))
        #expect(doubted.doubts == [.endUnknown(run: run.id, since: run.updatedAt)])
        #expect(doubted.verdict == .cannotJudge && doubted.doubts.map(\.code) == ["end_unknown"])
        #expect(judge([], runs: [Sample.run()], Budget(maxStalls: 0)).cutShort.isEmpty)
    }

    @Test("the stalls of a fault are one line with the longest; a length that looks like its limit is exact")
    func oneLine() {
        var reports = [300, 900, 700].map { Sample.report(ms: $0) }
        reports[0].repeats = .init(
            count: 4,
            report: nil,
            firstAt: Sample.start,
            lastAt: Sample.start,
            totalNs: 1,
            longestNs: 250_123_456
        )
        let fault = "in shop.Cart.total() on main (on_cpu, v1:0123456789abcdef), the longest of"
        let counted = judge(reports, Budget(maxStalls: 0)).text
        let sum = "\(fault) 3, besides 4 only counted, the longest 250ms"
        #expect(counted.hasSuffix("  stall: \(reports[1].id) 900ms \(sum)\n"), "\(counted)")
        let both = judge(reports, Budget(maxStalls: 0, maxDurationNs: 500_000_000)).text
        #expect(both.contains("  over budget: \(reports[1].id) 900ms \(fault) 2, 500ms permitted\n  stall: "))
        reports[1].durationNs += 1
        let barely = judge(reports, Budget(maxDurationNs: 900_000_000)).text
        #expect(barely.contains("  over budget: \(reports[1].id) 900.000001ms in "))
    }

    @Test("thousands of faults over both budgets are each listed once")
    func many() {
        let reports = (0..<20_000).map {
            Sample.report(fingerprint: "v1:\(String((1 << 60) + $0, radix: 16))", ms: $0 % 2 == 0 ? 300 : 900)
        }
        let text = judge(reports, Budget(maxStalls: 0, maxDurationNs: 500_000_000)).text
        let lines = text.split(separator: "\n")
        #expect(lines.count { $0.hasPrefix("  over budget: ") } == 10_001)
        #expect(lines.count { $0.hasPrefix("  stall: ") } == 10_000)
    }

    @Test("reports that the run counted but that do not exist make it impossible to judge")
    func missingReports() {
        var run = Sample.run()
        run.stalls = ["blocked": 3, "repeated": 2]
        run.suppressed = 1
        var report = Sample.report(suppressed: 1)
        report.run = run.id
        #expect(judge([report], runs: [run], Budget()).doubts == [.missingReports(run: run.id, count: 3)])
        run.state = .running
        #expect(judge([report], runs: [run], Budget()).doubts == [])
        run.lostWrites = 2
        #expect(judge([report], runs: [run], Budget()).doubts == [.missingReports(run: run.id, count: 2)])
        run.state = .stopped
        (run.stalls, run.suppressed) = (["blocked": 1], 0)
        #expect(judge([report], runs: [run], Budget()).doubts == [])
        run.writing = .init(dropped: ["stalls": 4, "samples": 9])
        #expect(judge([report], runs: [run], Budget()).doubts == [.missingReports(run: run.id, count: 4)])
        (run.stalls, run.suppressed) = (["a": .max, "b": .max, "c": .min], .min)
        #expect(judge([report], runs: [run], Budget()).verdict == .cannotJudge)
    }

    @Test("a torn report hides nothing: stalls over budget are listed anyway")
    func tornReport() {
        let error = ReportError(.torn, path: "x")
        let result = judge([Sample.report()], failures: [error], Budget(maxStalls: 0))
        #expect(result.verdict == .cannotJudge)
        #expect(result.doubts == [.file(error)])
        #expect(result.hasTooMany)
    }

    @Test("a directory that cannot be read cannot be judged")
    func missingDirectory() {
        let error = ReportError(.missingDirectory, path: "/nowhere")
        let nothing = Result<ReportReader.Overview, ReportError>.failure(error)
        let result = Gate.judge(nothing, by: Budget(maxStalls: 0))
        #expect(result.verdict == .cannotJudge)
        #expect(result.text.contains("/nowhere: there is no such report directory"))
    }
}
