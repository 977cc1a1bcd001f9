import Foundation
import StallGate
import StallReading
import StallReports
import Testing

// Stalls that were only counted: without a report of their own.

extension GateTests {
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

    func repeats(_ count: Int) -> StallReport.Repeats {
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
}
