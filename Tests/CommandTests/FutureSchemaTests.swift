import Foundation
import StallReports
import Testing

/// Files that a later version wrote, beside some of this version.
@Suite("Reports of a later version", .timeLimit(.minutes(3)))
struct FutureSchemaTests {
    private let fixture: ReportsFixture
    private let known = Sample.report(id: ULID(rawValue: 1 << 90))
    private let later = Sample.report(id: ULID(rawValue: 1 << 91))
    private let run = Sample.run()

    init() throws {
        fixture = try ReportsFixture()
        try fixture.store.write(run)
        try fixture.store.write(known)
        try fixture.store.write(later)
    }

    /// Sets a file's schema and adds an unknown key.
    private func rewrite(_ name: ReportFileName, _ old: String, _ new: String) throws {
        let file = "\(fixture.path)/\(name)"
        let text = try String(contentsOfFile: file, encoding: .utf8)
        #expect(text.contains("\"\(old)\""))
        try text.replacing("\"\(old)\"", with: "\"\(new)\",\"unheard_of\":{\"a\":[1]}")
            .write(toFile: file, atomically: false, encoding: .utf8)
    }

    private static let readers = [
        ["list"], ["list", "--format", "json"], ["tail"], ["tail", "--format", "json"], ["gate", "--max-stalls", "9"],
        ["gate", "--max-stalls", "9", "--format", "json"], ["symbolicate"], ["symbolicate", "--print"],
    ]

    @Test("reports of a later minor version are read as far as they are known", arguments: readers)
    func minor(_ reader: [String]) throws {
        try rewrite(ReportFileName(.stall, later.id), "stall-report/1", "stall-report/1.7")
        try rewrite(ReportFileName(.run, run.id), "stall-run/1", "stall-run/1.12")
        let result = try CommandRun(arguments: [reader[0], fixture.path] + reader.dropFirst())
        #expect(result.status == 0 && result.errors == "", "\(result.errors)")
        let isGateText = reader[0] == "gate" && reader.count < 4
        #expect(isGateText || result.output.contains("\(later.id)".prefix(8)), "\(result.output)")
        #expect(try CommandRun("show", "\(later.id)", fixture.path).status == 0)
    }

    @Test("reports of a later major version are reported in one line each and hide no others", arguments: readers)
    func major(_ reader: [String]) throws {
        try rewrite(ReportFileName(.stall, later.id), "stall-report/1", "stall-report/2")
        try rewrite(ReportFileName(.run, run.id), "stall-run/1", "stall-run/2")
        let result = try CommandRun(arguments: [reader[0], fixture.path] + reader.dropFirst())
        #expect(result.status == 1)
        let isGate = reader[0] == "gate"
        let lines = (isGate ? result.output : result.errors).components(separatedBy: "another schema")
        #expect(lines.count - 1 == (["list", "gate"].contains(reader[0]) ? 2 : 1), "\(result.errors)\(result.output)")
        #expect(isGate || result.output.contains("\(known.id)".prefix(8)))
        let page = try CommandRun("show", "\(later.id)", fixture.path)
        #expect(page.status == 1 && page.errors.contains("another schema"))
        #expect(try CommandRun("top", "--once", fixture.path).status == 0)
    }

    @Test(
        "a malformed version counts as another schema",
        arguments: ["stall-report/1.", "stall-report/1.x", "stall-report/11", "stall-report/1.-1", "stall-report", ""]
    )
    func noVersion(_ schema: String) throws {
        try rewrite(ReportFileName(.stall, later.id), "stall-report/1", schema)
        let result = try CommandRun("list", fixture.path)
        #expect(result.status == 1 && result.errors.contains("another schema"))
    }
}
