import Foundation
import StallReading
import StallReports
import Testing

/// How readers use a collector, tested with a server that answers what the test wants. `scripts/collector` uses a
/// real one.
@Suite("A collector's address in place of a directory", .timeLimit(.minutes(10)))
struct CollectorReadingTests {
    private let fixture: ReportsFixture
    private let server: CannedServer
    private let temporary: String

    init() throws {
        fixture = try ReportsFixture()
        server = try CannedServer(in: fixture.root + "/server")
        temporary = fixture.root + "/temporary"
        try FileManager.default.createDirectory(atPath: temporary, withIntermediateDirectories: true)
    }

    private func run(_ arguments: String..., token: String? = nil) throws -> CommandRun {
        var environment = ["TMPDIR": temporary]
        environment["STALL_MONITOR_TOKEN"] = token
        let run = try CommandRun(arguments: arguments, environment: environment)
        #expect(try FileManager.default.contentsOfDirectory(atPath: temporary).isEmpty, "left behind")
        return run
    }

    @Test("its records are read like a directory's; the reader applies conditions that it cannot send as a query")
    func records() throws {
        let report = Sample.report()
        var other = Sample.report(id: .make())
        other.service?.name = "bakery"
        let known = Sample.run()
        try server.answer("200 OK", known.json() + report.json() + other.json())
        for one in [report, other] { try fixture.store.write(one) }
        try fixture.store.write(known)
        for command in ["list", "show latest", "gate", "export"] {
            let words = command.split(separator: " ").map(String.init)
            let arguments = command == "export" ? ["--format", "csv"] : ["--format", "json"]
            let there = try CommandRun(arguments: words + [fixture.path] + arguments)
            let here = try CommandRun(
                arguments: words + [server.url] + arguments,
                environment: ["TMPDIR": temporary]
            )
            #expect(here.status == there.status && here.errors == there.errors, "\(command): \(here.errors)")
            #expect(!here.output.isEmpty && here.output == there.output, "\(here.output) \(there.output)")
        }
        let chosen = try run(
            "list",
            server.url,
            "--format",
            "json",
            "--service",
            "ba*",
            "--since",
            "2020-01-01",
            token: "secret-token-123"
        )
        #expect(chosen.output.contains("\(other.id)") && !chosen.output.contains("\(report.id)"), "\(chosen.output)")
        #expect(server.asked.contains("Authorization: Bearer secret-token-123"))
        #expect(!server.asked.contains("service="), "a pattern is the reader's")
        _ = try run("list", server.url, "--service", "bakery")
        #expect(server.asked.contains("service=bakery"))
        for command in ["faults", "gate"] {
            _ = try run(command, "--from", server.url, "--service", "dairy-\(command)")
            #expect(server.asked.contains("service=dairy-\(command)"), "\(server.asked)")
        }
    }

    @Test("faults are the collector's sums if it can be asked for exactly these")
    func sums() throws {
        try fixture.store.write(Sample.report())
        let document = try CommandRun("faults", fixture.path, "--format", "json").output
        try server.answer("200 OK", document.utf8)
        let run = try run("faults", server.url, "--service", "shop", "--since", "7d", "--format", "json")
        #expect(run.status == 0 && run.output == document, "\(run.errors)")
        #expect(server.asked.contains("GET /api/v1/faults?") && server.asked.contains("by=total"))
        // They need no file, which others could read.
        let fileless = try CommandRun(
            arguments: ["faults", server.url, "--service", "shop", "--since", "7d", "--format", "json"],
            environment: ["TMPDIR": temporary + "/none"]
        )
        #expect(fileless.status == 0 && fileless.output == document, "\(fileless.errors)")
    }

    @Test("a collector may have more faults than it sends: that is said")
    func cut() throws {
        try fixture.store.write(Sample.report())
        let json = try CommandRun("faults", fixture.path, "--format", "json").output
        var document = try ReportJSON.decode(
            FaultDocument.self,
            schema: FaultDocument.currentSchema,
            from: Array(json.utf8)
        )
        for (count, isCut) in [(999, false), (1000, true)] {
            document.faults = Array(repeating: document.faults[0], count: count)
            try server.answer("200 OK", try ReportJSON.encode(document))
            let run = try run("faults", server.url, "--since", "7d", "-n", "1")
            #expect(run.status == 0 && run.errors.contains("sends at most 1000 faults") == isCut, "\(run.errors)")
        }
    }

    @Test("if a part of the collector's store does not answer, that is said, and the exit code is 1")
    func partial() throws {
        try fixture.store.write(Sample.report())
        let json = try CommandRun("faults", fixture.path, "--format", "json").output
        try server.answer("200 OK", json.utf8, header: "Stall-Partial: true\r\n")
        let run = try run("faults", server.url, "--since", "7d", "--format", "json")
        #expect(run.status == 1 && run.output == json && run.errors.contains("does not answer"), "\(run.errors)")
    }

    @Test("diff asks for its choices only, and for nothing if both sides are directories")
    func choices() throws {
        try fixture.store.write(Sample.run())
        try server.answer("200 OK", Sample.run().json())
        _ = try run("diff", fixture.path, fixture.path, "--reports", server.url)
        #expect(server.asked.isEmpty)
        _ = try run("diff", fixture.path, "release=1.2", "--reports", server.url)
        #expect(server.asked.contains("release=1.2"), "\(server.asked)")
    }

    @Test("if the collector has nothing, its answer is not taken for a directory without a monitor")
    func nothing() throws {
        try server.answer("200 OK", [])
        for command in [["list"], ["export", "--format", "csv"]] {
            let run = try CommandRun(
                arguments: command + [server.url, "--service", "Shop"],
                environment: ["TMPDIR": temporary]
            )
            #expect(run.status == 0 && run.errors.contains("the collector has no such stalls"), "\(run.errors)")
        }
    }

    @Test("without a beginning, the trends are those of the time since the first stall")
    func trends() throws {
        try fixture.store.write(Sample.report())
        try server.answer("200 OK", try CommandRun("faults", fixture.path, "--format", "json").output.utf8)
        let run = try run("faults", server.url, "--format", "json")
        #expect(run.status == 0 && run.output.contains("\"since\":\"2026-11-18T11:06:40."), "\(run.output)")
        #expect(server.asked.contains("since=2026-11-18T11"), "\(server.asked)")
    }

    @Test("sums are of stalls since the chosen time; a copy begins earlier, and the reader removes what ended before")
    func since() throws {
        try fixture.store.write(Sample.report())
        try server.answer("200 OK", try CommandRun("faults", fixture.path, "--format", "json").output.utf8)
        #expect(try run("faults", server.url, "--since", "2020-01-02T12:00:00Z").status == 0)
        #expect(server.asked.contains("since=2020-01-02T12") && !server.asked.contains("T11"), "\(server.asked)")
        try server.answer("200 OK", Sample.report().json())
        #expect(try run("list", server.url, "--since", "2020-01-02T12:00:00Z").status == 0)
        #expect(server.asked.contains("since=2020-01-02T11"), "\(server.asked)")
    }

    @Test(
        "a refused, invalid, torn or redirected answer is one clear error; nothing is left behind"
    )
    func wrong() throws {
        let report = try Sample.report().json()
        func expect(_ text: String, token: String? = nil) throws {
            for command in ["list", "gate"] {
                let run = try run(command, server.url, token: token)
                #expect(run.status == 1 && run.output.isEmpty && run.errors.contains(text), "\(run.errors)")
                #expect(run.errors.split(separator: "\n").count == 1, "\(run.errors)")
            }
        }
        try server.answer("401 Unauthorized", [], header: "WWW-Authenticate: Basic realm=\"x\"\r\n")
        try expect("wants a token (401): give one by $STALL_MONITOR_TOKEN, or a file")
        try expect("does not know the token", token: "secret-token-123")
        try server.answer("404 Not Found", [])
        try expect("is no collector")
        try server.answer("413 Content Too Large", Array(#"{"message":"ask for a shorter time"}"#.utf8))
        try expect("ask for a shorter time")
        try server.answer("302 Found", [], header: "Location: http://127.0.0.1:1/\r\n")
        try expect("give the address itself")
        try server.answer("200 OK", Array("<html>\n".utf8))
        try expect("answers, but not with reports")
        try server.answer("200 OK", report + report.dropLast(40))
        try expect("cut off")
        try server.answer("200 OK", report + report.dropLast(40), length: report.count * 2)
        try expect("\(server.url): the collector's answer was cut off; try again")
        try Data().write(to: URL(filePath: fixture.root + "/server/answer"))
        try expect(server.url)
    }

    @Test(
        "commands that follow or change files refuse an address; a wrong address is wrong usage",
        arguments: ["tail", "top", "doctor", "symbolicate", "gate baseline record"]
    )
    func refused(_ command: String) throws {
        let words = command.split(separator: " ").map(String.init)
        let followed = try CommandRun(arguments: words + ["HTTP://127.0.0.1:1"])
        #expect(followed.status == 64 && followed.errors.contains("directories only"), "\(followed.errors)")
        let wrong = try CommandRun("list", "http://")
        #expect(wrong.status == 64 && wrong.errors.contains("is not the address of a collector"), "\(wrong.errors)")
        let bare = try CommandRun("list", "localhost:4319", directory: "/")
        #expect(bare.status == 64 && bare.errors.contains("give one like https://"), "\(bare.errors)")
        let nobody = try CommandRun("list", "http://127.0.0.1:1")
        let advice =
            "http://127.0.0.1:1: no collector answers there; check the host and the port, and that the collector runs ("
        #expect(nobody.status == 1 && nobody.errors.contains(advice), "\(nobody.errors)")
    }
}
