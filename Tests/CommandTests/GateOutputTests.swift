import Foundation
import StallReports
import Testing

@Suite("gate: outputs and exit codes", .timeLimit(.minutes(5)))
struct GateOutputTests {
    private let fixture: ReportsFixture

    /// A report with a source location, and one that is allowed.
    init() throws {
        fixture = try ReportsFixture()
        var run = Sample.run()
        (run.host.cpus, run.host.kernel) = (2, "6.1.0")
        try fixture.store.write(run)
        for (index, name) in ["evil<script>|%0A::error::`x`", "known"].enumerated() {
            var report = Sample.report(id: .make())
            report.run = run.id
            let file = "\(fixture.root)/Sources/a b,c:\(index).swift"
            report.culprit = .init(function: name, file: file, line: 42, stack: 0, frame: 2)
            report.fingerprint = try #require(Fingerprint(rawValue: "v2:aaaa00000000000\(index)"))
            try fixture.store.write(report)
        }
        try Data(
            """
            allowances:
              - {fingerprint: "v2:aaaa000000000001", reason: known since long, owner: media, expires: 9999-01-01}
            budgets:
              - {name: all, maxStalls: 0}
            """.utf8
        ).write(to: URL(filePath: fixture.root + "/budget.yaml"))
    }

    private func gate(_ arguments: String...) throws -> CommandRun {
        try CommandRun(
            arguments: ["gate", fixture.path, "--budget", fixture.root + "/budget.yaml", "--source-root", fixture.root]
                + arguments,
            environment: ["GITHUB_STEP_SUMMARY": fixture.root + "/summary.md"]
        )
    }

    private func text(_ file: String) throws -> String {
        try String(contentsOfFile: fixture.root + "/" + file, encoding: .utf8)
    }

    @Test("a file that cannot be written does not keep the others from being written; each such file is named")
    func unwritable() throws {
        let (first, second) = ("/nowhere/junit.xml", "/nowhere/gate.md")
        let run = try gate("--junit", first, "--sarif", fixture.root + "/gate.sarif", "--markdown", second, "--github")
        #expect(run.status == 1 && run.output.hasPrefix("over budget: "), "\(run.output)")
        for path in [first, second] {
            #expect(run.errors.contains("cannot write \(path): its folder"), "\(run.errors)")
        }
        #expect(try text("gate.sarif").contains("2.1.0") && text("summary.md").contains("over budget"))
    }

    @Test("'-' in place of a file's name is standard output")
    func standardOutput() throws {
        let run = try gate("--markdown", "-")
        #expect(run.status == 2 && run.output.contains("### ❌ over budget: 4 stalls and 4 allowed"), "\(run.output)")
        #expect(!FileManager.default.fileExists(atPath: "-"))
    }

    @Test("all output files in one run, each in its format")
    func files() throws {
        let names = ["junit.xml", "gate.sarif", "gate.md", "gate.html"]
        let paths = names.map { fixture.root + "/" + $0 }
        let run = try gate("--junit", paths[0], "--sarif", paths[1], "--markdown", paths[2], "--html", paths[3])
        #expect(run.status == 2 && run.output.hasPrefix("over budget: 4 stalls and 4 allowed"))
        let unwritten = try gate("--sarif", fixture.root + "/none/x")
        #expect(unwritten.status == 1 && unwritten.output == run.output, "the verdict is shown anyway")
        for path in [paths[0], paths[3]] {
            #expect(try CommandRun(tool: "/usr/bin/xmllint", ["--noout", "--nodefdtd", path]).status == 0, "\(path)")
        }
        #expect(try text("junit.xml").contains(#"<testsuites tests="5" failures="1" errors="0">"#))
        #expect(
            try text("gate.md").contains(
                "| stall count | evil&#60;script&#62;&#124;%0A::error::&#96;x&#96; stalled: all: 4 stalls, 0 permitted"
            )
        )
        #expect(try !text("gate.html").contains("<script>"))
        try sarif()
    }

    private func sarif() throws {
        let value = try JSONSerialization.jsonObject(with: Data(try text("gate.sarif").utf8)) as? [String: Any]
        let run = try #require((value?["runs"] as? [[String: Any]])?.first)
        let results = try #require(run["results"] as? [[String: Any]])
        #expect(value?["version"] as? String == "2.1.0")
        #expect(results.map { $0["ruleId"] as? String } == ["stall_count", "allowed"])
        #expect(results[0]["partialFingerprints"] as? [String: String] == ["stallFingerprint/v2": "aaaa000000000000"])
        #expect(results[0]["suppressions"] == nil)
        let excuse = (results[1]["suppressions"] as? [[String: String]])?.first
        #expect(excuse?["justification"] == "known since long (media, until 9999-01-01)")
        let place = ((results[0]["locations"] as? [[String: Any]])?.first?["physicalLocation"] as? [String: Any])
        #expect(
            place?["artifactLocation"] as? [String: String] == [
                "uri": "Sources/a%20b%2Cc%3A0.swift", "uriBaseId": "SRCROOT",
            ]
        )
        #expect((place?["region"] as? [String: Int]) == ["startLine": 42])
    }

    @Test("GitHub: an annotation at the culprit's line; a name cannot start another; the job gets the summary")
    func github() throws {
        let run = try gate("--github", "--format", "json")
        let lines = run.errors.split(separator: "\n")
        #expect(lines.count == 1)
        #expect(
            lines.first?.hasPrefix(
                "::error file=Sources/a b%2Cc%3A0.swift,line=42,title=stall-monitor%3A stall count::evil<script>|%250A::error::"
            ) == true,
            "\(lines)"
        )
        #expect(try text("summary.md").hasPrefix("### ❌ over budget: 4 stalls and 4 allowed"))
        #expect(try JSONSerialization.jsonObject(with: Data(run.output.utf8)) is [String: Any])
    }

    @Test("GitHub: at most ten errors; the last one says how many more there are")
    func limits() throws {
        for index in 0..<20 {
            var report = Sample.report(id: .make())
            report.fingerprint = try #require(
                Fingerprint(rawValue: "v2:bbbb0000000000" + (index < 10 ? "0\(index)" : "\(index)"))
            )
            try fixture.store.write(report)
        }
        let lines = try gate("--github", "--format", "json").errors.split(separator: "\n")
        #expect(lines.first?.contains(" stalled, among others: all: ") == true, "the figure is that of all together")
        #expect(lines.count == 10 && lines.last == "::error title=stall-monitor::12 more: see the job's summary")
    }

    @Test("exit codes: the reasons for 0, 1, 2, 3 and 64")
    func exitCodes() throws {
        let allow = ["--allow", "v2:aaaa000000000000"]
        let code = { (arguments: [String]) in try CommandRun(arguments: ["gate"] + arguments).status }
        let budget = ["--budget", fixture.root + "/budget.yaml"]
        #expect(try code([fixture.path] + budget + allow) == 0)
        #expect(try code([fixture.path] + budget) == 2)
        #expect(try code([fixture.path, "--max-per-hour", "1"]) == 2)
        #expect(try code([fixture.path, "--max-blocked-percent", "0"]) == 2)
        #expect(try code([fixture.path, "--max-turn", "1s"]) == 1)
        #expect(try code([fixture.root + "/none"] + budget) == 1)
        #expect(try code([fixture.path, "--budget", fixture.root + "/none.yaml"]) == 1)
        #expect(try code([fixture.path, "--baseline", fixture.root + "/none.json"]) == 1)
        #expect(try code([fixture.path, "--baseline", fixture.root + "/budget.yaml"]) == 1)
        #expect(try code([fixture.path, "--sarif", fixture.root + "/none/x", "--max-stalls", "99"]) == 1)
        for wrong in [
            ["--max-per-hour", "-1"], ["--max-blocked-percent", "101"], ["--tighten"], ["--baseline", ""],
            ["--sarif", ""], ["--max-turn", "5"],
        ] {
            #expect(try code([fixture.path] + wrong) == 64, "\(wrong)")
        }
        let baseline = fixture.root + "/stall-baseline.json"
        #expect(try code(["baseline", "record", fixture.path, "-o", baseline]) == 0)
        #expect(try code(["baseline", "record", fixture.path, "-o", ""]) == 64)
        #expect(try code([fixture.path, "--baseline", baseline]) == 0)
        let other = try text("stall-baseline.json").replacing(#""cpus":2"#, with: #""cpus":64"#)
        try Data(other.utf8).write(to: URL(filePath: fixture.root + "/other.json"))
        #expect(try code([fixture.path, "--baseline", fixture.root + "/other.json"]) == 3)
    }

    @Test("a folder of baselines: the one that matches the run is used; a report directory also works")
    func folder() throws {
        let folder = fixture.root + "/baselines"
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: false)
        #expect(try CommandRun("gate", "baseline", "record", fixture.path, "-o", folder).status == 0)
        let file = folder + "/stall-baseline-2cpu-6.1-build.json"
        let text = try String(contentsOfFile: file, encoding: .utf8).replacing(#""cpus":2"#, with: #""cpus":1"#)
        try Data(text.utf8).write(to: URL(filePath: folder + "/stall-baseline-1cpu-6.1-build.json"))
        #expect(try CommandRun("gate", fixture.path, "--baseline", folder).status == 0)
        #expect(try CommandRun("gate", fixture.path, "--baseline", fixture.path).status == 0)
    }
}
