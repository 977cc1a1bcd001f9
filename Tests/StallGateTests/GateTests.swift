import StallGate
import StallReading
import StallReports
import Testing

@Suite("Gate")
struct GateTests {
    func judge(
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
}
