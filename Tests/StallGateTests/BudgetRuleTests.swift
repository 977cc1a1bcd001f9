import StallGate
import StallReading
import StallReports
import Testing

/// Two loops of a shop, each watched for an hour; stalls of some of them.
@Suite("Budgets for some of the stalls")
struct BudgetRuleTests {
    private static let hour: Int64 = 3_600_000_000_000

    private static func run(turns: TurnDurations? = nil) -> RunRecord {
        var run = Sample.run()
        run.service = .init(name: "shop")
        run.watched = [
            .init(label: "main", watchedNs: hour, turnDurations: turns),
            .init(type: .eventLoop, label: "nio-1", watchedNs: hour),
        ]
        return run
    }

    private static func stall(
        _ run: RunRecord,
        on label: String = "main",
        ms: Int64 = 300,
        verdict: Verdict = .onCPU,
        fingerprint: String = "v2:aaaa000000000000",
        suppressed: Int = 0
    ) -> StallReport {
        var report = Sample.report(fingerprint: fingerprint, ms: ms, suppressed: suppressed)
        (report.run, report.service, report.cause.verdict) = (run.id, run.service, verdict)
        (report.watched.label, report.watched.type) = (label, run.watched.first { $0.label == label }?.type ?? .runLoop)
        return report
    }

    private func judge(_ reports: [StallReport], _ run: RunRecord, _ rules: [BudgetRule]) -> GateResult {
        var contents = ReportReader.Contents()
        (contents.reports, contents.runs) = (reports, [run])
        var budget = Budget()
        budget.rules = rules
        return Gate.judge(.success(contents), by: budget)
    }

    private static func rule(
        _ limits: (inout BudgetLimits) -> Void,
        severity: BudgetRule.Severity = .error,
        _ scope: (inout BudgetRule.Scope) -> Void = { _ in }
    ) -> BudgetRule {
        var rule = BudgetRule(name: "a budget", limits: BudgetLimits(), severity: severity)
        limits(&rule.limits)
        scope(&rule.scope)
        return rule
    }

    @Test("stalls that no limit is for are told in every format; the verdict does not change")
    func unlimited() throws {
        let run = Self.run(turns: .init(count: 9, p50Ns: 1_000, p99Ns: 1_000, maxNs: 1_000))
        let reports = (1...2).map { _ in Self.stall(run) }
        let line = "no limit is for 2 stalls of 1 fault: "
        let others = Self.rule({ $0.maxStalls = 0 }) { $0.label = "nio-1" }
        let result = judge(reports, run, [others])
        #expect(result.verdict == .within)
        #expect(result.text.contains("  not judged: \(line)"))
        #expect(result.text.contains("      in shop.Cart.total() (v2:aaaa"))
        #expect(result.markdown(sourceRoot: "/").contains(line) && result.html(sourceRoot: "/").contains(line))
        let json = String(decoding: try result.json(), as: UTF8.self)
        #expect(json.contains(#""unjudged":{"fingerprints":["v2:aaaa000000000000"],"stall_count":2}"#), "\(json)")
        // A budget for turns alone takes the stalls that it matches from the budgets after it.
        let all = Self.rule { $0.maxStalls = 9 }
        let turns = Self.rule { $0.maxTurnNs = 2_000 }
        #expect(judge(reports, run, [turns, all]).text.contains(line))
        #expect(!judge(reports, run, [all, turns]).text.contains("not judged"))
        var budget = Budget()
        (budget.limits.maxTurnNs, budget.rules) = (2_000, [others])
        var contents = ReportReader.Contents()
        (contents.reports, contents.runs) = (reports, [run])
        #expect(Gate.judge(.success(contents), by: budget).text.contains(line))
        // A limit for all turns takes nothing from the budgets for stalls, and a budget that is switched off says that its stalls do not matter.
        for rule in [all, Self.rule({ $0.maxStalls = 0 }, severity: .off)] {
            budget.rules = [rule]
            #expect(!Gate.judge(.success(contents), by: budget).text.contains("not judged"))
        }
        budget.rules = []
        #expect(Gate.judge(.success(contents), by: budget).text.contains(line))
        budget.limits.maxStalls = 9
        #expect(!Gate.judge(.success(contents), by: budget).text.contains("not judged"))
    }

    @Test("an allowance that fits faults of different runs of a command is ambiguous, as within one run")
    func ambiguousInRepeats() throws {
        let runs = (0...1).map { number in
            let run = Self.run()
            let report = Self.stall(run, fingerprint: "v2:aaaa00000000000\(number)")
            var contents = ReportReader.Contents()
            (contents.reports, contents.runs) = ([report], [run])
            return ReportReader.Overview(contents)
        }
        let prefix = try #require(FingerprintPrefix("aaaa"))
        let result = Gate.judge(repeats: runs, by: Budget(maxStalls: 0, allowed: [prefix]))
        #expect(result.doubts == [.ambiguous(prefix)])
    }

    @Test(
        "a finding names first the fault that contributed most: stalls to their number, time to their share, else the longest"
    )
    func worstFirst() {
        let run = Self.run()
        let (often, long, longest) = ("v2:0000000000000001", "v2:0000000000000002", "v2:0000000000000003")
        let reports =
            (0..<9).map { _ in Self.stall(run, ms: 100, fingerprint: often) }
            + (0..<3).map { _ in Self.stall(run, ms: 500, fingerprint: long) } + [
                Self.stall(run, ms: 1000, fingerprint: longest)
            ]
        let worst = { (limits: (inout BudgetLimits) -> Void) in
            judge(reports, run, [Self.rule(limits)]).findings.first?.faults.map(\.rawValue)
        }
        #expect(worst { $0.maxStalls = 0 } == [often, long, longest])
        #expect(worst { $0.maxPerHour = 0 } == [often, long, longest])
        #expect(worst { $0.maxBlockedPercent = 0 } == [long, longest, often])
        #expect(worst { $0.maxDurationNs = 0 } == [longest, long, often])
    }

    @Test("each limit: the permitted value is within, a little more is over, and the message has both figures")
    func limits() {
        let run = Self.run(turns: .init(count: 900, p50Ns: 1000, p99Ns: 80_000_000, maxNs: 400_000_000))
        // Two hours are watched: six stalls are three per hour, and 3.6 s of 7200 s.
        let reports = [Self.stall(run, ms: 300, suppressed: 2)] + (0..<3).map { _ in Self.stall(run, ms: 1100) }
        let cases: [((inout BudgetLimits, Bool) -> Void, Finding.Rule, String)] = [
            ({ $0.maxStalls = $1 ? 6 : 5 }, .stallCount, "6 stalls, 5 permitted"),
            ({ $0.maxPerHour = $1 ? 3 : 2.9 }, .stallRate, "3 stalls per hour watched (6 in 2h), 2.9 permitted"),
            ({ $0.maxDurationNs = $1 ? 1_100_000_000 : 1_099_999_999 }, .stallLength, "the longest 1.1s, "),
            ({ $0.maxBlockedPercent = $1 ? 0.051 : 0.049 }, .blockedShare, "(3.6s of 2h), 0.049 % permitted"),
            ({ $0.maxTurnP99Ns = $1 ? 80_000_000 : 79_000_000 }, .turnP99, "up to 80ms on main, 79ms permitted"),
            ({ $0.maxTurnNs = $1 ? 400_000_000 : 399_000_000 }, .turnLength, "took 400ms on main, 399ms permitted"),
        ]
        for (set, kind, words) in cases {
            #expect(judge(reports, run, [Self.rule { set(&$0, true) }]).verdict == .within, "\(kind)")
            let over = judge(reports, run, [Self.rule { set(&$0, false) }])
            #expect(over.verdict == .over && over.findings.map(\.rule) == [kind])
            #expect(over.text.contains("  over budget: a budget: ") && over.text.contains(words), "\(over.text)")
            let warned = judge(reports, run, [Self.rule({ set(&$0, false) }, severity: .warning)])
            #expect(warned.verdict == .within && warned.text.contains("  warning: a budget: "))
        }
    }

    @Test("a budget matches by service, label, type, verdict and fault; * matches any text")
    func scopes() {
        let run = Self.run()
        let report = Self.stall(run, on: "nio-1", verdict: .blocked)
        let fits: [(inout BudgetRule.Scope) -> Void] = [
            { _ in }, { $0.service = "shop" }, { $0.service = "s*p" }, { $0.label = "nio-*" }, { $0.label = "*" },
            { $0.type = .eventLoop }, { $0.verdict = Verdict(rawValue: "waiting") }, { $0.verdict = .blocked },
            { $0.fingerprint = FingerprintPrefix("v2:aaaa") },
        ]
        for scope in fits { #expect(judge([report], run, [Self.rule({ $0.maxStalls = 0 }, scope)]).verdict == .over) }
        let misses: [(inout BudgetRule.Scope) -> Void] = [
            { $0.label = "main" }, { $0.label = "m*n" }, { $0.type = .runLoop }, { $0.verdict = .onCPU },
            { $0.fingerprint = FingerprintPrefix("v2:bbbb") },
        ]
        for scope in misses {
            #expect(judge([report], run, [Self.rule({ $0.maxStalls = 0 }, scope)]).verdict == .within)
        }
    }

    @Test("each stall is judged by the first budget that matches; a budget that is off judges none")
    func first() {
        let run = Self.run()
        let reports = [Self.stall(run, verdict: .starved), Self.stall(run), Self.stall(run, on: "nio-1")]
        let off = Self.rule({ _ in }, severity: .off) { $0.verdict = .starved }
        let main = Self.rule({ $0.maxStalls = 1 }) { $0.label = "main" }
        let rest = Self.rule { $0.maxStalls = 1 }
        let result = judge(reports, run, [off, main, rest])
        #expect(result.verdict == .within && result.stallCount == 2 && result.allowed.count == 1)
        #expect(judge(reports, run, [main, rest]).verdict == .over)
        #expect(judge(reports, run, [rest]).verdict == .over)
    }

    @Test("of 'watch', a budget for a service applies to the loops of that service")
    func watcher() {
        var run = Self.run()
        (run.service, run.targets) = (.init(name: "stall-monitor"), [run.process])
        for index in run.watched.indices { run.watched[index].service = ["shop", "node"][index] }
        let (at, fault) = (Sample.start, Sample.report().fingerprint)
        let repeats = StallReport.Repeats(count: 1, report: nil, firstAt: at, lastAt: at, totalNs: 1, longestNs: 1)
        run.repeated = run.watched.map {
            .init(
                fingerprint: fault,
                repeats: repeats,
                label: $0.label,
                type: $0.type,
                kind: .blocked
            )
        }
        let rule = Self.rule({ $0.maxStalls = 0 }) { $0.service = "node" }
        #expect(judge([], run, [rule]).findings.map(\.rule) == [.stallCount])
        let other = Self.rule({ $0.maxStalls = 0 }) { $0.service = "redis" }
        #expect(judge([], run, [other]).doubts == [.unwatchedBudget("a budget")])
        // Both services have a loop of this name: a report of the same fault says whose it is.
        for index in run.watched.indices { (run.watched[index].label, run.watched[index].type) = ("main", .runLoop) }
        run.repeated = [.init(fingerprint: fault, repeats: repeats, label: "main", type: .runLoop, kind: .blocked)]
        var report = Self.stall(run, fingerprint: fault.rawValue)
        report.service = .init(name: "node")
        let most = Self.rule({ $0.maxStalls = 1 }) { $0.service = "node" }
        #expect(judge([report], run, [most]).findings.map(\.rule) == [.stallCount])
        // The record says it itself.
        run.repeated?[0].service = "shop"
        #expect(judge([report], run, [most]).findings.isEmpty)
    }

    @Test("a budget for loops that were not watched, or for turns that were not timed, cannot be judged")
    func unwatched() {
        let run = Self.run()
        let misspelt = Self.rule({ $0.maxStalls = 0 }) { $0.label = "mian" }
        #expect(judge([], run, [misspelt]).doubts == [.unwatchedBudget("a budget")])
        #expect(judge([], run, [Self.rule { $0.maxTurnNs = 1 }]).doubts == [.noTurnDurations("a budget")])
        let warning = Self.rule({ $0.maxStalls = 0 }, severity: .warning) { $0.label = "mian" }
        #expect(judge([], run, [warning]).verdict == .within)
    }

    @Test("an allowance counts until its day; the day after, the gate fails; an unused one is reported")
    func allowances() throws {
        let run = Self.run()
        var contents = ReportReader.Contents()
        (contents.reports, contents.runs) = ([Self.stall(run)], [run])
        var budget = Budget(maxStalls: 0)
        budget.allowances = [
            Allowance(
                fault: try #require(FingerprintPrefix("v2:aaaa")),
                reason: "known",
                owner: "media",
                expires: try #require(CalendarDay("2027-01-31"))
            )
        ]
        for (today, verdict) in [("2027-01-31", GateResult.Verdict.within), ("2027-02-01", .over)] {
            budget.today = CalendarDay(today)
            let result = Gate.judge(.success(contents), by: budget)
            #expect(result.verdict == verdict && result.unusedAllowances.isEmpty)
        }
        contents.reports = []
        let result = Gate.judge(.success(contents), by: budget)
        #expect(result.verdict == .over && result.findings.map(\.rule) == [.expiredAllowance])
        #expect(result.text.contains("ended on 2027-01-31: media mends the fault"))
        #expect(result.text.contains("unused: allowance of v2:aaaa: no stall has this fingerprint"))
    }

    @Test("days: only those of the calendar")
    func days() {
        for text in ["2027-01-31", "2028-02-29", "2000-02-29"] { #expect(CalendarDay(text)?.description == text) }
        for text in ["2027-02-29", "1900-02-29", "2027-13-01", "2027-00-10", "2027-1-31", "27-01-31", "2027-01-32", ""]
        {
            #expect(CalendarDay(text) == nil, "\(text)")
        }
    }
}
