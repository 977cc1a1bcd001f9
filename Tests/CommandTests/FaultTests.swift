import Foundation
import StallReading
import StallReports
import Testing

@testable import stall_monitor

@Suite("Faults")
struct FaultTests {
    private let span = TimeSpan(start: Sample.start, end: Sample.start.advanced(byNanoseconds: 12_000_000_000))

    private func stall(_ second: Int64, _ change: (inout StallReport) -> Void = { _ in }) -> StallOutline {
        var report = Sample.report(id: ULID(rawValue: UInt128(1_000_000 + second)))
        report.startedAt = Sample.start.advanced(byNanoseconds: second * 1_000_000_000)
        report.endedAt = report.startedAt.advanced(byNanoseconds: 500_000_000)
        (report.durationNs, report.suppressed) = (500_000_000, 0)
        change(&report)
        return StallOutline(report)
    }

    private func faults(_ stalls: [StallOutline], watchedNs: Int64 = 0, by order: FaultOrder = .total) -> [Fault] {
        var tally = FaultTally(span: span)
        stalls.forEach { tally.add($0) }
        return tally.all(watchedNs: watchedNs, by: order)
    }

    @Test("a fault is the sum of its stalls: count, total, worst, first, last, share, hosts, releases, verdicts")
    func sum() throws {
        let found = faults(
            [
                stall(3),
                stall(1) {
                    ($0.host.name, $0.durationNs) = ("web2", 2_000_000_000)
                    $0.service?.version = "1.3"
                },
                stall(7) { $0.cause.verdict = .starved },
            ],
            watchedNs: 30_000_000_000
        )
        let fault = try #require(found.first)
        #expect(found.count == 1 && fault.count == 3 && fault.totalNs == 3_000_000_000)
        #expect(fault.longestNs == 2_000_000_000 && fault.share == 0.1)
        #expect(fault.firstAt == stall(1).startedAt && fault.lastAt == stall(7).endedAt)
        #expect(fault.hosts == ["web1": 2, "web2": 1] && fault.releases == ["1.2": 2, "1.3": 1])
        #expect(fault.verdicts == ["waiting": 2, "starved": 1] && fault.latest == stall(7).id)
    }

    @Test("stalls that were only counted are included, with their times")
    func countedOnly() throws {
        let repeats = Sample.repeats(of: .make(), count: 37)
        let fault = try #require(faults([stall(1) { $0.repeats = repeats }]).first)
        #expect(fault.count == 38 && fault.reports == 1 && fault.totalNs == 4_500_000_000)
        #expect(fault.longestNs == 590_000_000)
        let old = try #require(faults([stall(1) { $0.suppressed = 3 }]).first)
        #expect(old.count == 4 && old.totalNs == 500_000_000)
    }

    @Test("stalls that were only counted come evenly in the trend, between the first and the last of them")
    func countedTrend() throws {
        let span = TimeSpan(start: Sample.start, end: Sample.start.advanced(byNanoseconds: 12_000_000_000))
        var fault = Fault(fingerprint: Sample.report().fingerprint, firstAt: span.start, lastAt: span.start)
        // From the second to the tenth second of twelve.
        fault.add(Sample.repeats(of: .make(), count: 37), in: span)
        #expect(fault.trend.counts == [0, 4, 4, 4, 4, 4, 4, 4, 4, 5, 0, 0] && fault.trend.direction == .steady)
        var backwards = Sample.repeats(of: .make(), count: 37)
        (backwards.firstAt, backwards.lastAt) = (backwards.lastAt, backwards.firstAt)
        fault.add(backwards, in: span)
        #expect(fault.trend.counts[1] == 41)
    }

    @Test(
        "a fault that was only counted has the host, service and release of its run, with 0 reports; a watcher's has no release"
    )
    func countedNames() throws {
        var run = Sample.run()
        let counted = RunRecord.Repeated(
            fingerprint: Sample.report().fingerprint,
            repeats: Sample.repeats(of: .make(), count: 37),
            label: "main",
            type: .runLoop
        )
        func fault() throws -> Fault {
            var tally = FaultTally(span: span)
            tally.add(counted, of: run)
            return try #require(tally.all(watchedNs: 0, by: .total).first)
        }
        run.service = .init(name: "shop", version: "1.2")
        #expect(try fault().hosts == [run.host.name: 0] && fault().services == ["shop": 0])
        #expect(try fault().releases == ["1.2": 0])
        run.targets = [run.process]
        #expect(try fault().hosts == [run.host.name: 0] && fault().releases.isEmpty)
    }

    @Test("of stalls that were only counted, those in the chosen time count, as if they had come evenly")
    func countedPart() {
        let all = RunRecord.Repeated(
            fingerprint: Sample.report().fingerprint,
            repeats: Sample.repeats(of: .make(), count: 37)
        )
        func second(_ number: Int64) -> Timestamp { Sample.start.advanced(byNanoseconds: number * 1_000_000_000) }
        #expect(all.part(since: nil, until: nil) == all && all.part(since: second(1), until: second(9)) == all)
        let half = all.part(since: second(5), until: nil).repeats
        #expect(half.count == 19 && half.totalNs == 2_054_054_054 && half.longestNs == 590_000_000)
        #expect(half.firstAt == second(5) && half.lastAt == second(9))
        let last = all.part(since: second(9), until: nil).repeats
        #expect(last.count == 1 && last.totalNs == 108_108_108 && last.longestNs == last.totalNs)
        let end = all.part(since: nil, until: second(3)).repeats
        #expect(end.count == 9 && end.totalNs == 972_972_972 && end.lastAt == second(3))
    }

    @Test("fingerprints that are aliases form one fault, under the latest fingerprint")
    func aliases() throws {
        let names = try ["v2:1111111111111111", "v2:2222222222222222", "v2:3333333333333333"].map {
            try #require(Fingerprint(rawValue: $0))
        }
        let found = faults([
            stall(1) { $0.fingerprint = names[0] },
            stall(2) { ($0.fingerprint, $0.aliases) = (names[1], [names[0]]) },
            stall(3) { $0.fingerprint = names[2] },
        ])
        #expect(found.map(\.count) == [2, 1])
        #expect(found.first?.fingerprint == names[1] && found.first?.aliases == [names[0]])
    }

    @Test("order: by total, count, worst, last seen")
    func order() throws {
        let other = try #require(Fingerprint(rawValue: "v2:ffffffffffffffff"))
        let stalls = [
            stall(1), stall(2), stall(3), stall(9) { ($0.fingerprint, $0.durationNs) = (other, 600_000_000) },
        ]
        func first(_ order: FaultOrder) -> Fingerprint? { faults(stalls, by: order).first?.fingerprint }
        #expect(first(.total) != other && first(.count) != other)
        #expect(first(.worst) == other && first(.last) == other)
    }

    @Test("trend: changes that chance explains are steady; few stalls give no trend")
    func trend() {
        func direction(_ early: Int, _ late: Int) -> Trend.Direction {
            var trend = Trend()
            trend.add(Int64(early), at: span.start, in: span)
            trend.add(Int64(late), at: span.end, in: span)
            return trend.direction
        }
        #expect(direction(1, 2) == .few && direction(0, 4) == .new && direction(4, 0) == .gone)
        #expect(direction(10, 14) == .steady && direction(4, 20) == .rising && direction(20, 4) == .falling)
    }

    @Test("the largest possible numbers cause no trap")
    func extremes() throws {
        let huge = Timestamp(seconds: .max)
        let found = faults([
            stall(1) { ($0.durationNs, $0.startedAt, $0.suppressed) = (.max, huge, .max) },
            stall(2) { ($0.durationNs, $0.startedAt, $0.suppressed) = (.max, Timestamp(seconds: .min), .max) },
            stall(3) { ($0.durationNs, $0.suppressed) = (-5, -7) },
        ])
        #expect(found.first?.totalNs == .max && found.first?.count == .max)
        let table = FaultTable(
            faults: found,
            names: ShortFingerprints(found.map(\.fingerprint)),
            now: .now(),
            width: 20
        )
        #expect(table.lines.allSatisfy { $0.width <= 20 })
    }

    @Test("of many hosts and releases the table has the number, which is not cut where the columns are narrow")
    func manyHosts() {
        let stalls = (1...12).map { number in
            stall(Int64(number)) {
                $0.host.name = "web\(number)"
                $0.service?.version = "1.\(number)"
            }
        }
        let found = faults(stalls)
        let table = FaultTable(
            faults: found,
            names: ShortFingerprints(found.map(\.fingerprint)),
            now: span.end,
            width: 120
        )
        #expect(table.lines[0].plain.hasSuffix("HOSTS  RELEASES") && table.lines[1].plain.hasSuffix("  12     12"))
    }

    @Test("a fault's page says that its days are the latest ones, if there are more")
    func latestDays() throws {
        let stalls = (0..<15).map { day in
            stall(0) { $0.startedAt = Sample.start.advanced(byNanoseconds: day * 86_400_000_000_000) }
        }
        func heading(_ stalls: some Collection<StallOutline>) throws -> String? {
            var evidence = FaultEvidence()
            for stall in stalls { evidence.add(stall) }
            let page = FaultPage(
                fault: try #require(faults(Array(stalls)).first),
                evidence: evidence,
                ids: ShortIDs(stalls.map(\.id)),
                now: span.end,
                style: .init(width: 80)
            )
            return page.lines.map(\.plain).first { $0.hasPrefix("Days") }
        }
        #expect(try heading(stalls)?.hasSuffix(", the latest 14 of 15") == true)
        #expect(try heading(stalls.prefix(14))?.contains("latest") == false)
    }

    @Test("short fingerprints: as long as needed to be unique")
    func short() throws {
        let names = try ["v2:1111111111111111", "v2:1111111112222222"].map { try #require(Fingerprint(rawValue: $0)) }
        #expect(ShortFingerprints(names.prefix(1)).short(names[0]) == "11111111")
        #expect(names.map(ShortFingerprints(names).short) == ["1111111111", "1111111112"])
    }
}

@Suite("faults", .timeLimit(.minutes(5)))
struct FaultsCommandTests {
    private let fixture: ReportsFixture

    init() throws { fixture = try ReportsFixture() }

    @Test("text and JSON agree; --fingerprint, -n and --sort work")
    func output() throws {
        for second in 0..<3 {
            var report = Sample.report(id: ULID(rawValue: UInt128(second + 1) << 90))
            report.suppressed = 0
            try fixture.store.write(report)
        }
        try fixture.store.write(Sample.run())
        let text = try CommandRun("faults", fixture.path)
        #expect(text.status == 0 && text.errors.isEmpty)
        let line = try #require(text.output.split(separator: "\n").last)
        #expect(line.hasPrefix("aa296773  3      1.84s  612ms  3.1 %"), "\(line)")
        let json = try CommandRun("faults", fixture.path, "--format", "json", "--sort", "worst")
        let document = try #require(
            try JSONSerialization.jsonObject(with: Data(json.output.utf8)) as? [String: Any]
        )
        let fault = try #require((document["faults"] as? [[String: Any]])?.first)
        #expect(document["schema"] as? String == "stall-faults/1")
        #expect(fault["count"] as? Int == 3 && fault["total_ns"] as? Int == 1_837_037_034)
        #expect(try CommandRun("faults", fixture.path, "-n", "0").errors.contains("1 more fault; raise -n to see all"))
        #expect(try CommandRun("faults", fixture.path, "--fingerprint", "ffff").errors.contains("no matching stalls"))
        #expect(try CommandRun("faults", fixture.root + "/none").status == 1)
    }

    @Test("without any report the time of the trends begins with the first stall that was counted")
    func countedSpan() throws {
        var run = Sample.run()
        let fault = Sample.report().fingerprint
        run.repeated = [.init(fingerprint: fault, repeats: Sample.repeats(of: .make(), count: 37))]
        try fixture.store.write(run)
        let json = try CommandRun("faults", fixture.path, "--format", "json")
        let document = try JSONSerialization.jsonObject(with: Data(json.output.utf8)) as? [String: Any]
        let found = (document?["faults"] as? [[String: Any]])?.first
        let trend = try #require(found?["trend"] as? [String: Any])
        // They came within eight seconds, long ago.
        #expect(trend["direction"] as? String == "gone" && (trend["counts"] as? [Int])?.first == 37, "\(json.output)")
    }

    @Test("--verdict and --function count stalls without a report as the gate does: by the reports of their fault")
    func countedOnly() throws {
        var (report, run) = (Sample.report(), Sample.run())
        (report.run, report.suppressed, report.repeats) = (run.id, 0, nil)
        let repeats = Sample.repeats(of: report.id, count: 37)
        run.repeated = [
            .init(fingerprint: report.fingerprint, repeats: repeats, label: "main", type: .runLoop, kind: .blocked)
        ]
        (run.suppressed, run.stalls) = (37, ["blocked": 38])
        run.updatedAt = Sample.start.advanced(byNanoseconds: 60_000_000_000)
        try fixture.store.write(report)
        try fixture.store.write(run)
        for choice in [[], ["--verdict", "waiting"], ["--function", "Cart"]] {
            let faults = try CommandRun(arguments: ["faults", fixture.path, "--format", "json"] + choice)
            #expect(faults.output.contains("\"count\":38,"), "\(choice): \(faults.output)")
            let gate = try CommandRun(arguments: ["gate", fixture.path, "--max-stalls", "37"] + choice)
            #expect(gate.status == 2, "\(choice): \(gate.output)")
        }
        // The report ended before this moment; some of the counted ones did not.
        let later = try CommandRun("faults", fixture.path, "--since", "2026-11-18T11:06:45Z", "--format", "json")
        // 19 of 37: from 11:06:41 to 11:06:49 they came evenly, as far as is known.
        for part in [
            "\"count\":19,", "\"reports\":0,", "\"culprit\":\"shop.Cart", "\"verdicts\":{\"waiting\":0}",
            "\"hosts\":{\"web1\":0}",
        ] {
            #expect(later.output.contains(part), "\(part): \(later.output)")
        }
        let other = try CommandRun("faults", fixture.path, "--verdict", "on_cpu")
        #expect(other.errors.contains("no matching stalls"), "\(other.output)")
        // A report of another verdict: it is not known any more how many of the counted ones match.
        var different = Sample.report(id: .make())
        (different.run, different.suppressed, different.repeats) = (run.id, 0, nil)
        different.cause.verdict = .onCPU
        try fixture.store.write(different)
        let some = try CommandRun("faults", fixture.path, "--format", "json", "--verdict", "waiting")
        #expect(some.output.contains("\"count\":1,"), "\(some.output)")
    }

    @Test("of a watcher of several services, --service counts stalls without a report of that service only")
    func countedOfOneService() throws {
        var run = Sample.run()
        (run.targets, run.suppressed) = ([run.process], 37)
        run.watched = ["shop", "cart"].map { service in
            var loop = RunRecord.Watched(label: service, watchedNs: 60_000_000_000)
            loop.service = service
            return loop
        }
        let fault = Sample.report().fingerprint
        run.repeated = [
            .init(
                fingerprint: fault,
                repeats: Sample.repeats(of: .make(), count: 37),
                label: "shop",
                type: .runLoop
            )
        ]
        try fixture.store.write(run)
        for (service, isItsOwn) in [("shop", true), ("cart", false)] {
            let faults = try CommandRun("faults", fixture.path, "--service", service)
            #expect(faults.output.contains("37") == isItsOwn, "\(service): \(faults.output)\(faults.errors)")
            let list = try CommandRun("list", fixture.path, "--service", service)
            #expect(list.errors.contains("only counted: \(fault)") == isItsOwn, "\(service): \(list.errors)")
        }
    }
}

@Suite("Reports of which only the list data can be read", .timeLimit(.minutes(5)))
struct HalfReadableReportTests {
    @Test("show FAULT and faults --flame name them, and exit with 1")
    func named() throws {
        let fixture = try ReportsFixture()
        let report = Sample.report(id: .make())
        let file = try plant(report, in: fixture)
        for command in [["show", "\(report.fingerprint)", fixture.path], ["faults", fixture.path, "--flame"]] {
            let run = try CommandRun(arguments: command)
            #expect(run.status == 1 && run.errors.contains(file), "\(command): \(run.errors)")
            #expect(!run.errors.contains("no matching stalls") && !run.errors.contains("no stalls among"))
        }
    }

    @Test("faults --flame reads whole only what is chosen")
    func unchosen() throws {
        let fixture = try ReportsFixture()
        try fixture.store.write(Sample.report(id: .make()))
        var other = Sample.report(id: .make())
        other.service = .init(name: "cart")
        let file = try plant(other, in: fixture)
        let flames = ["faults", fixture.path, "--flame", "--service"]
        let run = try CommandRun(arguments: flames + ["shop"])
        #expect(run.status == 0 && run.output.contains("Flame graph of 1 stall"), "\(run.errors)")
        let its = try CommandRun(arguments: flames + ["cart"])
        #expect(its.status == 1 && its.errors.contains(file), "\(its.errors)")
    }

    /// Writes a report whose stacks cannot be read.
    ///
    /// - Returns: Its file.
    private func plant(_ report: StallReport, in fixture: ReportsFixture) throws -> String {
        var report = report
        report.stacks = []
        let json = String(decoding: try report.json(), as: UTF8.self)
        let damaged = json.replacing("\"stacks\":[]", with: "\"stacks\":[{}]")
        try #require(damaged != json)
        let file = "\(fixture.path)/\(ReportFileName(.stall, report.id))"
        try FileManager.default.createDirectory(atPath: fixture.path, withIntermediateDirectories: true)
        try Data(damaged.utf8).write(to: URL(filePath: file))
        return file
    }
}
