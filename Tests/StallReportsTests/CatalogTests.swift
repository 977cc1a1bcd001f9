import Glibc
import Testing

@testable import StallReading
@testable import StallReports

@Suite("Report catalog", .timeLimit(.minutes(2)))
struct CatalogTests {
    private let directory = TemporaryDirectory()

    private func liveFile(_ run: ULID, lastLook: UInt64 = 0, waiting: Int = 0) throws -> LiveRecordFile {
        let writer = LiveRecord.Writer(
            host: .current(),
            service: nil,
            process: .current(),
            startedAt: Sample.start,
            monitorVersion: "0.1.0",
            memory: nil
        )
        let status = LiveRecord.Status(
            updatedAt: Sample.start,
            lastLookMonotonicNs: lastLook,
            waitingReports: waiting
        )
        return try LiveRecordFile(in: directory.path, run: run, writer: writer, status: status)
    }

    private func stall(_ report: ULID) -> LiveStall {
        LiveStall(
            report: report,
            rule: .init(name: .blocked, tickNs: 50_000_000, ticks: 5),
            watched: .init(label: "main"),
            watch: 1,
            startedAt: Sample.start,
            startedMonotonicNs: 1,
            detectedAt: Sample.start,
            lastSeenAt: Sample.start,
            lastSeenMonotonicNs: 2,
            durationNs: 2_000_000_000,
            durationMinNs: 2_000_000_000,
            durationMaxNs: 2_000_000_000
        )
    }

    /// A record of this process whose update time is `age` seconds in the past.
    private func run(_ id: ULID, age: Int64, watching: Int) -> RunRecord {
        var run = Sample.run(id: id)
        run.disarmed = nil
        run.updatedAt = Timestamp.now().advanced(byNanoseconds: -age * 1_000_000_000)
        var time = timespec()
        unsafe clock_gettime(CLOCK_MONOTONIC, &time)
        run.updatedMonotonicNs = UInt64((Int64(time.tv_sec) - age) * 1_000_000_000)
        run.watched = [.init(label: "main", watchedNs: 5)]
        run.watched[0].watching = watching
        return run
    }

    @Test("of 1,100 reports read by several threads each is at its place, and every other file is an error")
    func many() throws {
        try directory.store.prepare()
        let report = Sample.recovered()
        let text = try String(decoding: report.json(), as: UTF8.self)
        let ids = (0..<1_100).map { _ in ULID.make() }
        for (number, id) in ids.enumerated() {
            let content = number % 100 == 7 ? "{" : text.replacing(report.id.description, with: id.description)
            directory.plant(content.utf8, as: ReportFileName(.stall, id).description)
        }
        let overview = try directory.reader.overview()
        let whole = ids.indices.filter { $0 % 100 != 7 }.map { ids[$0] }
        #expect(overview.stalls.map(\.id) == whole && overview.failures.count == 11)
        #expect(overview.failures.allSatisfy { $0.code == .torn })
    }

    @Test(
        "an object's JSON can be read without some members; an incomplete object gives none",
        arguments: [
            (#"{"a":1,"stacks":[{"a":"]},"}],"b":"\"stacks\""}"#, #"{"a":1,"b":"\"stacks\""}"#),
            (#" {"modules":[] , "stacks" : {} , "z" : {"stacks":2} } "#, #"{"z" : {"stacks":2}}"#),
            (#"{"stacksOf":1}"#, #"{"stacksOf":1}"#), (#"{"stacks":1}"#, "{}"), ("{}", "{}"),
            (#"{"a":1,"stacks":["#, nil), (#"["stacks":1]"#, nil), (#"x{"a":1}"#, nil), ("", nil), (#"{"a":1} x"#, nil),
            (#"{"a":"\"#, nil), (#"{"a":1,}"#, nil), (#"{"a":}"#, nil), (#"{"a" 1}"#, nil), ("{", nil),
            (#"{"a":[}"#, nil),
        ]
    )
    func brief(object: String, expected: String?) {
        let brief = JSONMembers(Array(object.utf8))?.json(without: ["modules", "stacks"])
        #expect(brief.map { String(decoding: $0, as: UTF8.self) } == expected)
    }

    @Test(
        "plainly written members are read directly; everything else is left to a parser",
        arguments: [
            (#"{"v":"a b"}"#, "a b"), (#"{"v":"é"}"#, "é"), (#"{"v":null}"#, "none"), ("{}", "none"),
            (#"{"v":""}"#, ""),
            (#"{"v":"a\n"}"#, "irregular"), (#"{"v":1}"#, "irregular"), (#"{"v":"a","v":"b"}"#, "irregular"),
            ("{\"v\":\"\u{1}\"}", "irregular"),
        ]
    )
    func text(object: String, expected: String) throws {
        let members = try #require(JSONMembers(Array(object.utf8)))
        #expect((try? members.text("v").map(\.self) ?? "none") ?? "irregular" == expected)
    }

    @Test(
        "a number has up to 18 digits",
        arguments: [
            ("0", 0), ("-7", -7), ("123456789012345678", 123_456_789_012_345_678), ("1234567890123456789", nil),
            ("01", nil),
            ("-", nil), ("1.0", nil), ("1e3", nil), ("\"1\"", nil), ("true", nil),
        ] as [(String, Int64?)]
    )
    func number(text: String, expected: Int64?) throws {
        let members = try #require(JSONMembers(Array("{\"v\": \(text) }".utf8)))
        #expect((try? members.number("v")) == expected)
    }

    @Test("an outline is the same whether read directly or by a parser")
    func sameOutline() throws {
        for report in [Sample.recovered(), Sample.ongoing()] {
            var report = report
            report.aliases = [report.fingerprint]
            let plain = try report.json()
            // The same with an escape sequence, which a parser must decode.
            let escaped = String(decoding: plain, as: UTF8.self).replacing(
                "\"schema\":\"s",
                with: "\"schema\":\"\\u0073"
            )
            #expect(StallOutline(json: plain) == StallOutline(json: Array(escaped.utf8)))
            #expect(StallOutline(json: plain)?.aliases == [report.fingerprint])
        }
    }

    @Test("it has what the list shows: reports, and stalls known only from a dead process's record")
    func orphans() throws {
        let (report, orphan) = (Sample.recovered(), ULID.make())
        try directory.store.write(report)
        var file: LiveRecordFile? = try liveFile(.make())
        try file?.write(stall(orphan), to: 0)
        #expect(try directory.reader.catalog().stalls == [report.id], "its process may still report it")
        file = nil
        let catalog = try directory.reader.catalog()
        #expect(catalog.stalls == [report.id, orphan])
        #expect(try catalog.report(orphan).state == .terminated)
        #expect(try catalog.report(report.id) == report)
        #expect(try directory.reader.overview().stalls.map(\.id) == [report.id, orphan])
    }

    @Test("an outline equals the report, and an unreadable report gives the same error")
    func outlines() throws {
        var unnamed = Sample.recovered()
        unnamed.culprit = nil
        let reports = [Sample.recovered(), unnamed, Sample.ongoing()]
        for report in reports { try directory.store.write(report) }
        directory.plant(try reports[0].json().dropLast(40), as: ReportFileName(.stall, .make()).description)
        directory.plant(#"{"schema":"other/1"}"#.utf8, as: ReportFileName(.stall, .make()).description)
        let (contents, overview) = (try directory.reader.contents(), try directory.reader.overview())
        // Not compared if there is a culprit: it is not needed then.
        let comparable = { (stall: StallOutline) in
            var (stall, traits) = (stall, stall.traits.value)
            if traits.culprit != nil { traits.stackError = nil }
            stall.traits = Shared(traits)
            return stall
        }
        let found = overview.stalls.map(comparable)
        #expect(found == contents.reports.map { comparable(StallOutline($0)) } && found.count == 3)
        #expect(found[0].stackError == "ends early")
        #expect(overview.failures == contents.failures)
        #expect(overview.failures.map(\.code) == [.torn, .unsupportedSchema])
    }

    @Test("stalls counted after a report: from the run record, otherwise from the fault's next report")
    func repeats() throws {
        var (first, second) = (Sample.recovered(), Sample.recovered())
        var run = Sample.run(state: .stopped)
        (first.run, second.run, first.repeats) = (run.id, run.id, nil)
        second.repeats = Sample.repeats(of: first.id, count: 3)
        run.repeated?[0].repeats = Sample.repeats(of: second.id, count: 2)
        run.suppressed = 5
        for report in [first, second] { try directory.store.write(report) }
        try directory.store.write(run)
        let catalog = try directory.reader.catalog()
        #expect(catalog.repeats(of: first) == second.repeats)
        #expect(catalog.repeats(of: second) == run.repeated?[0].repeats)
        #expect(try directory.reader.contents().repeats[first.id] == second.repeats, "as the list says")
    }

    @Test("if the run record has all counted stalls, no other report is opened")
    func repeatsReadOne() throws {
        var (first, second) = (Sample.recovered(), Sample.recovered())
        var run = Sample.run(state: .stopped)
        (first.run, second.run) = (run.id, run.id)
        // A contradiction that is noticed only if the second report is read.
        second.repeats = Sample.repeats(of: first.id, count: 3)
        run.suppressed = 3
        for report in [first, second] { try directory.store.write(report) }
        try directory.store.write(run)
        #expect(try directory.reader.catalog().repeats(of: first) == nil)
    }

    @Test("a resting process writes nothing, but counts as watched until now while it lives")
    func watchedUntilNow() throws {
        var file: LiveRecordFile? = try liveFile(ULID(rawValue: 1))
        let runs = [run(ULID(rawValue: 1), age: 20, watching: 2), run(ULID(rawValue: 2), age: 20, watching: 1)]
        for run in runs { try directory.store.write(run) }
        let watched = { () throws -> [Int64] in try directory.reader.contents().runs.map { $0.watched[0].watchedNs } }
        #expect(try watched()[0] >= 40_000_000_005)
        let updated = try directory.reader.run(ULID(rawValue: 1)).updatedAt
        #expect(updated >= runs[0].updatedAt.advanced(byNanoseconds: 20_000_000_000), "as current as its counts")
        #expect(try watched()[1] == 5, "without a live record nobody can tell")
        try directory.store.write(run(ULID(rawValue: 1), age: 20, watching: 0))
        #expect(try watched()[0] == 5, "paused")
        try directory.store.write(run(ULID(rawValue: 1), age: -3600, watching: 1))
        #expect(try watched()[0] == 5, "the clock was set back")
        try directory.store.write(run(ULID(rawValue: 1), age: 20, watching: .max))
        #expect(try watched()[0] == .max)
        file = nil
        #expect(try watched()[0] == 5, "dead")
        _ = file
    }

    @Test("a dead process has watched until the last sample in its live record")
    func watchedUntilDeath() throws {
        var record = run(ULID(rawValue: 1), age: 20, watching: 2)
        let updated = try #require(record.updatedMonotonicNs)
        try directory.store.write(record)
        var file: LiveRecordFile? = try liveFile(record.id, lastLook: updated + 3_000_000_000)
        file = nil
        let dead = try directory.reader.run(record.id)
        #expect(dead.state == .terminated && dead.watched[0].watchedNs == 6_000_000_005)
        #expect(dead.updatedAt == record.updatedAt.advanced(byNanoseconds: 3_000_000_000))
        try directory.store.closeTerminated()
        #expect(try directory.reader.run(record.id).watched[0].watchedNs == 6_000_000_005)
        // The last sample may be that of a stall, or older than the run record.
        record.id = ULID(rawValue: 2)
        try directory.store.write(record)
        file = try liveFile(record.id, lastLook: 1)
        try file?.write(stall(.make()), to: 0)
        file = nil
        #expect(try directory.reader.run(record.id).watched[0].watchedNs == 5)
        record.id = ULID(rawValue: 3)
        try directory.store.write(record)
        file = try liveFile(record.id)
        var last = stall(.make())
        last.lastSeenMonotonicNs = updated + 1_000_000_000
        try file?.write(last, to: 0)
        file = nil
        #expect(try directory.reader.run(record.id).watched[0].watchedNs == 2_000_000_005)
        _ = file
    }

    @Test("reports that the disk refuses are counted in the live record, even after the process's death")
    func waiting() throws {
        var file: LiveRecordFile? = try liveFile(ULID(rawValue: 1), waiting: 3)
        try directory.store.write(run(ULID(rawValue: 1), age: 1, watching: 1))
        #expect(try directory.reader.contents().runs[0].writing?.waiting == 3)
        file = nil
        let dead = try #require(try directory.reader.contents().runs.first)
        #expect(dead.state == .terminated && dead.writing?.waiting == 3)
        _ = file
    }
}

@Suite("Amendment", .timeLimit(.minutes(2)))
struct AmendmentTests {
    private let directory = TemporaryDirectory()

    @Test(
        "unknown parts of a report are kept, unless they are excessive",
        arguments: [5000, 200_000]
    )
    func junk(values: Int) throws {
        let report = Sample.recovered()
        let junk = #""zz_later":["# + repeatElement("{}", count: values).joined(separator: ",") + "],"
        let text = "{" + junk + String(decoding: try report.json().dropFirst(), as: UTF8.self)
        try directory.store.prepare()
        directory.plant(text.utf8, as: ReportFileName(.stall, report.id).description)
        let amend = { (report: StallReport) in
            var culprit = report.culprit
            culprit?.line = 7
            let stacks = report.stacks.map { $0.frames.map { ReportAmendment.Frame(frame: $0) } }
            return ReportAmendment(stacks: stacks, culprit: culprit)
        }
        guard values > 10_000 else {
            #expect(try directory.store.amend(report.id, by: amend) == .written)
            #expect(try directory.reader.report(report.id).culprit?.line == 7)
            return
        }
        let error = #expect(throws: ReportError.self) { try directory.store.amend(report.id, by: amend) }
        #expect(error?.code == .malformed && error?.detail?.contains("values in it are none of a report's") == true)
        #expect(try directory.reader.report(report.id) == report, "left as it was")
    }
}
