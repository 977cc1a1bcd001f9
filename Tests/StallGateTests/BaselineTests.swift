import StallGate
import StallReading
import StallReports
import Testing

@Suite("Baselines")
struct BaselineTests {
    static func run(minutes: Int64 = 10, cpus: Int = 4, build: String = "release") -> RunRecord {
        var run = Sample.run()
        run.host = .init(name: "ci", kernel: "6.1.0-13", cpus: cpus)
        run.process.executable = "/srv/.build/x86_64-unknown-linux-gnu/\(build)/shop"
        run.watched = [.init(label: "main", watchedNs: minutes * 60_000_000_000)]
        return run
    }

    static func overview(_ stalls: [StallReport], _ runs: [RunRecord]) -> ReportReader.Overview {
        var contents = ReportReader.Contents()
        (contents.reports, contents.runs) = (stalls, runs)
        return .init(contents)
    }

    static func stalls(
        _ count: Int,
        ms: Int64 = 300,
        _ fingerprint: String = "v2:aaaa000000000000",
        verdict: Verdict = .onCPU
    ) -> [StallReport] {
        (0..<count).map { index in
            var report = Sample.report(fingerprint: fingerprint, ms: ms + Int64(index % 7))
            report.cause.verdict = verdict
            return report
        }
    }

    func baseline(_ stalls: [StallReport], minutes: Int64 = 10) throws -> Baseline {
        try #require(Baseline(Self.overview(stalls, [Self.run(minutes: minutes)]), at: Sample.start))
    }

    func judge(_ stalls: [StallReport], _ baseline: Baseline, _ run: RunRecord = Self.run()) -> GateResult {
        Gate.judge(.success(Self.overview(stalls, [run])), by: Budget(), against: baseline)
    }

    @Test("unchanged faults pass; more frequent, longer and new ones are over, each with its figures")
    func changes() throws {
        let before = try baseline(Self.stalls(20))
        #expect(judge(Self.stalls(20), before).verdict == .within)
        #expect(judge([], before).verdict == .within)
        let often = judge(Self.stalls(60), before)
        #expect(often.verdict == .over && often.findings.map(\.rule) == [.worseRate])
        #expect(
            often.text.contains("  worse: shop.Cart.total() stalls 3 times as often: 60 in 10m, before 20 in 10m (p")
        )
        let longer = judge(Self.stalls(20, ms: 600), before)
        #expect(longer.verdict == .over && longer.findings.map(\.rule) == [.longerStalls])
        #expect(longer.text.contains("stalls 1.99 times as long: 603ms at the median of 20, before 303ms of 20"))
        let new = judge(Self.stalls(20) + Self.stalls(10, "v2:bbbb000000000000"), before)
        #expect(new.verdict == .over && new.findings.map(\.rule) == [.newFault])
        #expect(new.text.contains("is new: 10 stalls in 10m, none in the baseline's 10m"))
        #expect(new.text.contains("  baseline: 1 run, 10m watched; a new fault is proven by 7 stalls"))
    }

    @Test(
        "stalls that come in bursts, in some runs many and in others none, are not proven to be more; a real change is"
    )
    func bursts() throws {
        let overviews = { (counts: [Int]) in counts.map { Self.overview(Self.stalls($0), [Self.run()]) } }
        let baseline = try #require(Baseline(repeats: overviews([0, 100, 0, 0, 0]), at: Sample.start))
        let restored = try Baseline(json: baseline.json())
        #expect(restored == baseline)
        let judge = { Gate.judge(repeats: overviews($0), by: Budget(), against: restored) }
        #expect(judge([0, 0, 100]).verdict == .within)
        let often = judge([300, 0, 290, 310, 0])
        #expect(often.verdict == .within || often.verdict == .inconclusive, "\(often.text)")
        let new = Gate.judge(
            repeats: overviews([0, 0, 50, 0]),
            by: Budget(),
            against: Baseline(repeats: overviews([0, 0, 0, 0]), at: Sample.start)
        )
        #expect(new.verdict == .inconclusive, "\(new.text)")
        #expect(new.text.contains("come in bursts, so 50 of them count as one"), "\(new.text)")
        let steady = try #require(Baseline(repeats: overviews([20, 22, 18, 21, 19]), at: Sample.start))
        #expect(Gate.judge(repeats: overviews([60, 62, 58]), by: Budget(), against: steady).verdict == .over)
    }

    @Test("a new rare fault, another machine or build, and a run that was too short are inconclusive")
    func inconclusive() throws {
        let before = try baseline(Self.stalls(20))
        let new = judge(Self.stalls(1, "v2:bbbb000000000000"), before)
        #expect(new.verdict == .inconclusive && new.findings.map(\.severity) == [.doubtful])
        for run in [Self.run(cpus: 2), Self.run(build: "debug")] {
            let elsewhere = judge(Self.stalls(60), before, run)
            #expect(elsewhere.verdict == .inconclusive && elsewhere.text.contains("only like is compared"))
        }
        let short = judge([], before, Self.run(minutes: 4))
        #expect(
            short.verdict == .inconclusive
                && short.text.contains("it watched for 4m, and a run of the baseline for 10m")
        )
    }

    @Test("a run that watched nothing does not decide of which machine and build the runs are")
    func emptyRun() throws {
        let (whole, empty) = (Self.run(), Self.run(minutes: 0, build: "debug"))
        let both = try #require(Baseline(Self.overview([], [whole, empty]), at: Sample.start))
        #expect(both.environment == Baseline.Environment(whole))
        let alone = try #require(Baseline(Self.overview([], [empty]), at: Sample.start))
        #expect(alone.environment == Baseline.Environment(empty))
    }

    @Test(
        "runs of several machines or builds are not compared, unless the user chose both sides; an unknown build is no other one"
    )
    func severalEnvironments() throws {
        let before = try baseline(Self.stalls(20))
        func judge(_ runs: [RunRecord], _ baseline: Baseline) -> GateResult {
            Gate.judge(.success(Self.overview(Self.stalls(20), runs)), by: Budget(), against: baseline)
        }
        for other in [Self.run(cpus: 2), Self.run(build: "debug")] {
            for runs in [[Self.run(), other], [other, Self.run()]] {
                let mixed = judge(runs, before)
                #expect(mixed.verdict == .inconclusive, "\(mixed.text)")
                #expect(
                    mixed.text.contains("of several environments (2 processors")
                        || mixed.text.contains("debug build; 4")
                )
                var any = before
                any.isOfAnyEnvironment = true
                #expect(judge(runs, any).verdict == .within)
                #expect(Baseline.Environment.different(in: runs).count == 2)
            }
        }
        let script = Self.run(build: "bin")
        for runs in [[Self.run(), script], [script, Self.run()]] {
            let mixed = judge(runs, before)
            #expect(mixed.verdict == .within, "\(mixed.text)")
        }
        #expect(Baseline.Environment.different(in: [Self.run(), Self.run(minutes: 0, cpus: 2)]).isEmpty)
    }

    @Test("stalls for lack of a CPU are listed separately; many of them make the result inconclusive")
    func starved() throws {
        let before = try baseline(Self.stalls(20))
        let some = judge(Self.stalls(20) + Self.stalls(3, verdict: .starved), before)
        #expect(
            some.verdict == .within
                && some.text.contains("3 stalls starved of CPU: caused by the machine, and judged separately")
        )
        let many = judge(Self.stalls(20) + Self.stalls(40, verdict: .starved), before)
        #expect(many.verdict == .inconclusive && many.text.contains("which is not the code's fault"))
        let both = judge(Self.stalls(60) + Self.stalls(40, verdict: .starved), before)
        #expect(both.verdict == .inconclusive && both.text.contains("too little CPU to compare it"))
        let new = judge(
            Self.stalls(20) + Self.stalls(40, verdict: .starved) + Self.stalls(1, "v2:bbbb000000000000"),
            before
        )
        #expect(new.findings.first { $0.rule == .newFault }?.message.contains("machine") == false)
        // Twice as long, but without a CPU for half of the time.
        let delayed = Self.stalls(20, ms: 600).map { report in
            var report = report
            report.cause.evidence = .init(runDelayNs: 300, windowNs: 600)
            return report
        }
        #expect(judge(delayed, before).verdict == .within)
    }

    @Test("a fault of which only counts are left has the function that the baseline knows")
    func countedOnly() throws {
        var run = Self.run()
        let fault = try #require(Self.stalls(1).first).fingerprint
        run.repeated = [
            .init(
                fingerprint: fault,
                repeats: .init(
                    count: 200,
                    report: nil,
                    firstAt: Sample.start,
                    lastAt: Sample.start,
                    totalNs: 1,
                    longestNs: 1
                )
            )
        ]
        let result = judge([], try baseline(Self.stalls(20)), run)
        #expect(result.text.contains("worse: shop.Cart.total() stalls 10 times as often"), "\(result.text)")
    }

    @Test("a fault that has got names since is the same fault")
    func names() throws {
        let before = try baseline(Self.stalls(20))
        var named = Self.stalls(20, "v2:bbbb000000000000")
        for index in named.indices { named[index].aliases = [Self.stalls(1)[0].fingerprint] }
        #expect(judge(named, before).verdict == .within)
    }

    @Test("faults gone from a loop that nobody watches any more are inconclusive; its label has no numbers")
    func unwatched() throws {
        func stalls(_ count: Int, on label: String) -> [StallReport] {
            Self.stalls(count).map { report in
                var report = report
                (report.watched.label, report.watched.type) = (label, .eventLoop)
                return report
            }
        }
        func run(_ labels: String...) -> RunRecord {
            var run = Self.run()
            run.watched += labels.map { .init(type: .eventLoop, label: $0, watchedNs: 600_000_000_000) }
            return run
        }
        func recorded(_ stalls: [StallReport]) throws -> Baseline {
            let baseline = try #require(Baseline(Self.overview(stalls, [run("nio-1")]), at: Sample.start))
            return try Baseline(json: baseline.json())
        }
        let before = try recorded(stalls(40, on: "nio-1"))
        let gone = judge([], before, run())
        #expect(gone.verdict == .inconclusive)
        #expect(gone.text.contains("  inconclusive: nio-* was not watched, where the baseline has 40 stalls"))
        #expect(judge([], before, run("nio-7")).verdict == .within)
        // So few need not occur.
        #expect(judge([], try recorded(stalls(2, on: "nio-1")), run()).verdict == .within)
        // A file of an earlier version does not say where.
        var old = before
        old.faults[0].loops = nil
        #expect(judge([], old, run()).verdict == .within)
    }

    @Test("a choice of loops is compared with the time for which the baseline watched these, not with that of all")
    func choiceOfLoops() throws {
        var run = Self.run()
        run.watched.append(.init(type: .eventLoop, label: "nio-1", watchedNs: 600_000_000_000))
        let recorded = try #require(Baseline(Self.overview(Self.stalls(40), [run]), at: Sample.start))
        let before = try Baseline(json: recorded.json())
        var chosen = run
        chosen.watched.removeLast()
        let (some, whole) = (Self.overview(Self.stalls(40), [chosen]), Self.overview(Self.stalls(40), [run]))
        let result = Gate.judge(.success(some), by: Budget(), against: before, outOf: whole)
        #expect(result.verdict == .within, "\(result.text)")
        let worse = Self.overview(Self.stalls(90), [chosen])
        #expect(Gate.judge(.success(worse), by: Budget(), against: before, outOf: worse).verdict == .over)
    }

    @Test("of a fault of several loops, a choice of them is compared with its part of the stalls")
    func choiceOfPartsOfFaults() throws {
        var run = Self.run()
        run.watched.append(.init(type: .eventLoop, label: "nio-1", watchedNs: 600_000_000_000))
        let elsewhere = Self.stalls(40).map { report in
            var report = report
            (report.watched.label, report.watched.type) = ("nio-1", .eventLoop)
            return report
        }
        let before = try #require(
            Baseline(Self.overview(Self.stalls(40) + elsewhere, [run]), at: Sample.start)
        )
        var chosen = run
        chosen.watched.removeLast()
        func judged(_ count: Int) -> GateResult {
            let some = Self.overview(Self.stalls(count), [chosen])
            return Gate.judge(.success(some), by: Budget(), against: before, outOf: some)
        }
        #expect(judged(40).verdict == .within, "\(judged(40).text)")
        // All loops together had nearly as many.
        #expect(judged(90).verdict == .over, "\(judged(90).text)")
    }

    @Test("allowed faults are not compared")
    func allowed() throws {
        let new = Self.overview(Self.stalls(12, "v2:bbbb000000000000"), [Self.run()])
        let budget = Budget(allowed: [try #require(FingerprintPrefix("v2:bbbb"))])
        #expect(Gate.judge(.success(new), by: budget, against: try baseline([])).verdict == .within)
    }

    @Test("a fleet's rare new faults are warnings while no more of them are new than its baseline lets expect")
    func rareFaults() throws {
        let rare = { (range: Range<Int>) in
            range.flatMap { Self.stalls(1, Simulation.fingerprint($0).rawValue) }
        }
        let before = try baseline(Self.stalls(50) + rare(0..<20))
        let few = judge(Self.stalls(50) + rare(15..<25), before)
        #expect(
            few.verdict == .within && few.findings.map(\.severity) == [Finding.Severity](repeating: .warning, count: 5)
        )
        let figures = "5 such faults are new, about 20 expected (20 of the baseline's came fewer than ten times)"
        #expect(few.text.contains("; only a warning, though it may be a regression: \(figures)"), "\(few.text)")
        let many = judge(rare(100..<140), before)
        #expect(many.verdict == .inconclusive && many.findings.allSatisfy { $0.severity == .doubtful })
        // What is proven is not excused, nor what is hardly chance.
        #expect(judge(rare(15..<25) + Self.stalls(12, "v2:bbbb000000000000"), before).verdict == .over)
        // Two such faults of a baseline say little about a third.
        #expect(judge(rare(2..<3), try baseline(rare(0..<2))).verdict == .inconclusive)
        // Nor do frequent ones, whose number can be odd or even.
        let frequent = (0..<20).flatMap { Self.stalls(101, Simulation.fingerprint($0).rawValue) }
        #expect(judge(frequent + rare(20..<21), try baseline(frequent)).verdict == .inconclusive)
    }

    @Test("repeats: over in most runs is over, in few it is intermittent; an unwatched run cannot be judged")
    func repeats() {
        let (bad, good) = (Self.overview(Self.stalls(1), [Self.run()]), Self.overview([], [Self.run()]))
        let judge = { Gate.judge(repeats: $0, by: Budget(maxStalls: 0)) }
        #expect(judge([good, good, good]).verdict == .within)
        let flaky = judge([good, bad, good])
        #expect(flaky.verdict == .inconclusive)
        #expect(flaky.junit().contains(#"failures="0" errors="1""#) && flaky.junit().contains("it comes and goes"))
        #expect(flaky.text.contains("inconclusive: 1 stall, 0 permitted (in 1 of 3 runs: it comes and goes)"))
        let real = judge([bad, bad, good])
        #expect(real.verdict == .over && real.text.contains("over budget: 1 stall, 0 permitted (in 2 of 3 runs)"))
        #expect(judge([good, Self.overview([], [])]).verdict == .cannotJudge)
    }

    @Test("repeats: if the figures of the runs differ, the finding says whose they are")
    func repeatsThatDiffer() {
        let runs = [1, 2].map { Self.overview(Self.stalls($0), [Self.run()]) }
        let text = Gate.judge(repeats: runs, by: Budget(maxStalls: 0)).text
        let expected = "over budget: 1 stall, 0 permitted (in 2 of 2 runs; the figures are of the first of them)"
        #expect(text.contains(expected), "\(text)")
    }
}
