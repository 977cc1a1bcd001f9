import Foundation
import StallReports
import Testing

/// A zone without daylight saving time that needs no database: UTC+05:30.
@Suite("Times", .timeLimit(.minutes(5)))
struct ZoneTests {
    private let fixture: ReportsFixture
    private let local = ["TZ": "XYZ-5:30"]

    init() throws {
        fixture = try ReportsFixture()
        try fixture.store.write(Sample.report())
    }

    private func run(_ arguments: String...) throws -> CommandRun {
        try CommandRun(arguments: arguments, environment: local)
    }

    @Test("text uses the local zone, with --utc UTC; JSON always uses UTC")
    func zones() throws {
        #expect(try run("list", fixture.path).output.contains("2026-11-18T16:36:40+05:30"))
        #expect(try run("list", fixture.path, "--utc").output.contains("2026-11-18T11:06:40Z"))
        #expect(try run("tail", fixture.path).output.contains("2026-11-18T16:36:40.735+05:30"))
        #expect(try run("show", "latest", fixture.path).output.contains("When    2026-11-18T16:36:40.123+05:30"))
        #expect(try run("list", fixture.path, "--format", "json").output.contains("2026-11-18T11:06:40.123456789Z"))
    }

    @Test(
        "given times and days are in the local zone, with --utc in UTC, wherever the option is placed"
    )
    func given() throws {
        func isFound(_ options: String...) throws -> Bool {
            let run = try CommandRun(arguments: ["list", fixture.path] + options, environment: local)
            #expect(run.status == 0, "\(run.errors)")
            return !run.output.isEmpty
        }
        #expect(try isFound("--since", "2026-11-18 16:36") && !isFound("--since", "2026-11-18 16:37"))
        #expect(try isFound("--utc", "--since", "2026-11-18 11:06"))
        #expect(try !isFound("--since", "2026-11-18 11:07", "--utc"))
        #expect(try isFound("--since", "2026-11-18T11:06:40Z") && isFound("--since", "2026-11-18T16:36:40+05:30"))
        // The stall's day begins at 18:30 UTC of the day before, and ends at 18:30.
        var late = Sample.report(id: .make())
        late.startedAt = try #require(Timestamp(rfc3339: "2026-11-18T19:00:00Z"))
        late.endedAt = late.startedAt.advanced(byNanoseconds: late.durationNs)
        try fixture.store.write(late)
        try fixture.store.write(Sample.run())
        let days = try run("show", String(late.fingerprint.rawValue.dropFirst(3)), fixture.path).output
        #expect(days.contains("2026-11-18  ") && days.contains("2026-11-19  ") && !days.contains("(UTC)"), "\(days)")
        #expect(try run("show", String(late.fingerprint.rawValue), fixture.path, "--utc").output.contains("Days (UTC)"))
    }

    @Test("an hour that occurs twice, as summer time ends, is chosen from its first beginning to its second end")
    func doubleHour() throws {
        let (fixture, zone) = (try ReportsFixture(), ["TZ": "EST5EDT,M3.2.0,M11.1.0"])
        for moment in ["2026-11-01T05:55:00Z", "2026-11-01T06:55:00Z"] {
            var report = Sample.report(id: .make())
            report.startedAt = try #require(Timestamp(rfc3339: moment))
            report.endedAt = report.startedAt.advanced(byNanoseconds: report.durationNs)
            try fixture.store.write(report)
        }
        for range in [["--since", "2026-11-01 01:50"], ["--until", "2026-11-01 01:58"]] {
            let run = try CommandRun(arguments: ["list", fixture.path] + range, environment: zone)
            #expect(run.output.contains("01:55:00-04:00") && run.output.contains("01:55:00-05:00"), "\(range) \(run)")
        }
    }

    @Test("an allowance ends with its last day in UTC, whatever the local zone")
    func allowance() throws {
        let path = fixture.root + "/budget.yaml"
        func hasEnded(_ day: String, in zone: String) throws -> Bool {
            let allowance = "allowances: [{fingerprint: aaaa, reason: known, owner: me, expires: \(day)}]"
            try Data(allowance.utf8).write(to: URL(filePath: path))
            let run = try CommandRun("gate", fixture.path, "--budget", path, environment: ["TZ": zone])
            return run.output.contains("ended on \(day)")
        }
        func day(_ days: Int64) -> String {
            String(Timestamp.now().advanced(byNanoseconds: days * 86_400_000_000_000).description.prefix(10))
        }
        // At any time it is another day than in UTC in one of these zones.
        for zone in ["XYZ-14", "XYZ+12"] {
            var isSameDay = false
            while !isSameDay {
                let (yesterday, today) = (day(-1), day(0))
                let ended = (try hasEnded(yesterday, in: zone), try hasEnded(today, in: zone))
                isSameDay = day(0) == today
                #expect(!isSameDay || ended == (true, false), "\(zone)")
            }
        }
    }

    @Test("the gate's text uses the local zone, with --utc UTC; JSON always uses UTC")
    func gate() throws {
        var killed = Sample.run()
        (killed.state, killed.stoppedAt) = (.terminated, nil)
        try fixture.store.write(killed)
        let text = try run("gate", fixture.path)
        #expect(
            text.status == 1 && text.output.contains("nothing is known after 2026-11-18T16:36:40+05:30;"),
            "\(text.output)"
        )
        #expect(try run("gate", fixture.path, "--utc").output.contains("nothing is known after 2026-11-18T11:06:40Z;"))
        #expect(try run("gate", fixture.path, "--format", "json").output.contains("2026-11-18T11:06:40.123456789Z"))
    }
}
