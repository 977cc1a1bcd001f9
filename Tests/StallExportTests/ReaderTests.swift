import Foundation
import StallExport
import StallReports
import Testing

/// Exports, read by third-party programs. `scripts/test --all` installs them.
@Suite("Exports read by other programs")
struct ReaderTests {
    /// Names that each format must escape, a long one, and a stall without a stack.
    private static let reports: [StallReport] = {
        var long = ExportSample.reports[0]
        long.service?.name = String(repeating: "é", count: 300)
        let hostile = ExportSample.report(
            [([ExportSample.frame(ExportSample.hostile, own: true, line: 3)], 1)],
            label: ExportSample.hostile,
            culprit: ExportSample.hostile
        )
        return [hostile, long] + ExportSample.reports
    }()

    /// Runs a Python script on an export and returns what it prints.
    private func read(_ format: ExportFormat, _ script: String) throws -> String {
        let file = try Tool.File(ExportSample.export(format, Self.reports), suffix: format.rawValue)
        let run = try Tool.run(Tool.readers, ["-c", script, file.path])
        #expect(run.status == 0, "\(run.output)")
        return run.output
    }

    @Test(
        "Sentry's own relay finds nothing invalid in an event",
        .enabled(if: Tool.reads("sentry_relay"), Tool.missing)
    )
    func sentry() throws {
        let output = try read(
            .sentry,
            """
            import json, sys
            from sentry_relay.processing import StoreNormalizer
            for line in open(sys.argv[1], encoding='utf-8'):
                event = StoreNormalizer(project_id=1).normalize_event(event=json.loads(line))
                print(len(event['exception']['values']), event.get('errors'), 'err' in json.dumps(event.get('_meta', {})))
            """
        )
        #expect(output == String(repeating: "1 None False\n", count: Self.reports.count))
    }

    @Test("Prometheus' own parser reads each sample", .enabled(if: Tool.reads("prometheus_client"), Tool.missing))
    func prometheus() throws {
        let output = try read(
            .prometheus,
            """
            import sys
            from prometheus_client.parser import text_string_to_metric_families
            families = list(text_string_to_metric_families(open(sys.argv[1], encoding='utf-8', newline='').read()))
            print(len(families) > 3, all(family.samples for family in families))
            """
        )
        #expect(output == "True True\n")
    }

    @Test("Python's CSV reader finds a cell for each heading", .enabled(if: Tool.exists("python3"), Tool.missing))
    func table() throws {
        let file = try Tool.File(ExportSample.export(.csv, Self.reports), suffix: "csv")
        let script = "import csv, sys; print({len(row) for row in csv.reader(open(sys.argv[1], newline=''))})"
        #expect(try Tool.run("python3", ["-c", script, file.path]).output == "{20}\n")
    }
}
