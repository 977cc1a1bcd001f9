import Foundation
import StallReports
import Testing

private enum Readers {
    static let missing: Comment = "its reader is not installed: scripts/test --all installs it"
    static let python = URL(filePath: #filePath).deletingLastPathComponent()
        .appending(path: "../../.build-readers/bin/python3").standardized.path

    static func have(_ module: String) -> Bool {
        guard FileManager.default.isExecutableFile(atPath: python) else { return false }
        return (try? CommandRun(tool: python, ["-c", "import \(module)"]))?.status == 0
    }
}

/// The gate's files, read by third-party programs. `scripts/test --all` installs them.
@Suite("gate: outputs read by other programs")
struct GateReaderTests {
    /// Runs a script on an output file of a gate that is over its budget.
    private func read(_ option: String, _ script: String) throws -> String {
        let fixture = try ReportsFixture()
        let run = Sample.run()
        try fixture.store.write(run)
        var report = Sample.report(id: .make())
        (report.run, report.suppressed) = (run.id, 0)
        let function = "evil<script>|%0A::error::`x` \u{1B}[31m"
        report.culprit = .init(function: function, file: "\(fixture.root)/a b.swift", line: 42, stack: 0, frame: 2)
        try fixture.store.write(report)
        let file = fixture.root + "/file"
        let gate = try CommandRun(
            "gate",
            fixture.path,
            "--max-stalls",
            "0",
            "--source-root",
            fixture.root,
            option,
            file
        )
        #expect(gate.status == 2, "\(gate.errors)")
        let output = try CommandRun(tool: Readers.python, ["-c", script, file])
        #expect(output.status == 0, "\(output.errors)")
        return output.output
    }

    @Test(
        "junitparser counts the cases and finds the failed one",
        .enabled(if: Readers.have("junitparser"), Readers.missing)
    )
    func junit() throws {
        let output = try read(
            "--junit",
            """
            import sys, junitparser
            xml = junitparser.JUnitXml.fromfile(sys.argv[1])
            cases = [case for suite in xml for case in suite]
            print(xml.tests == len(cases), [case.name for case in cases if case.result], xml.errors)
            """
        )
        #expect(output == "True ['number of stalls'] 0\n")
    }

    @Test("sarif-tools counts one error, at its file and line", .enabled(if: Readers.have("sarif"), Readers.missing))
    func sarif() throws {
        let output = try read(
            "--sarif",
            """
            import sys
            from sarif import loader
            found = loader.load_sarif_file(sys.argv[1])
            record = found.get_records()[0]
            print(found.get_result_count(), record['Severity'], record['Location'], record['Line'])
            """
        )
        #expect(output == "1 error a%20b.swift 42\n" || output == "1 error a b.swift 42\n", "\(output)")
    }

    @Test("SARIF matches the types of its schema", .enabled(if: Readers.have("sarif_pydantic"), Readers.missing))
    func types() throws {
        let script = """
            import sys, sarif_pydantic
            log = sarif_pydantic.Sarif.model_validate_json(open(sys.argv[1]).read())
            print(log.version, len(log.runs[0].results))
            """
        #expect(try read("--sarif", script) == "2.1.0 1\n")
    }
}
