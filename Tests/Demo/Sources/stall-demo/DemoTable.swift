import Foundation
import StallReports

/// The demo's result as text for people.
struct DemoTable {
    let result: DemoResult

    private static let hasColours: Bool = {
        let environment = ProcessInfo.processInfo.environment
        return isatty(STDOUT_FILENO) == 1 && environment["NO_COLOR"] == nil && environment["TERM"] != "dumb"
    }()

    /// The lines for a report when it appears, and again when its stall has ended.
    static func line(_ report: StallReport, isFirst: Bool) -> String {
        let length = "\(milliseconds(report.durationNs))\(report.state == .ongoing ? " so far" : "")"
        let headline =
            "\(isFirst ? "stall " : "ended ") \(report.id)  \(length)  \(report.cause.verdict.canonical.rawValue)"
        return VisibleText.of("\(headline)  \(report.culpritName ?? "-")", limit: 500)
    }

    var text: String {
        let titles = [
            "", "injected", "for", "reports", "of", "detected after", "duration", "cause", "culprit as found",
        ]
        return (["", Self.columns([titles] + result.stalls.map(cells)), "", control] + verdict).joined(separator: "\n")
    }

    private func cells(_ row: DemoResult.Row) -> [String] {
        [
            mark(row.passed),
            row.stall.rawValue,
            Self.milliseconds(row.injectedNs),
            "\(row.reports)",
            VisibleText.of(row.watched ?? "-"),
            row.detectionNs.map(Self.milliseconds) ?? "never",
            row.durationNs.map(Self.milliseconds) ?? "-",
            row.verdict.map { Verdict(rawValue: $0).canonical.rawValue } ?? "-",
            VisibleText.of(row.culprit ?? "-"),
        ]
    }

    private var control: String {
        let control = result.control
        return mark(control.passed) + "  control: \(control.reports) reports in \(control.durationNs / 1_000_000_000) s"
            + " of \(control.requests) requests without a stall"
    }

    private var verdict: [String] {
        let failed = result.stalls.count { !$0.passed } + (result.control.passed ? 0 : 1)
        let outcome =
            result.passed
            ? "Each stall gave one report, which names the function that stalled; the control time gave none."
            : "\(failed) of \(result.stalls.count + 1) not as expected, \(result.unexpected) reports of nothing injected."
        return [Self.styled(outcome, "1"), "See one with: \(command) show latest \(result.directory)"]
    }

    /// The command to type: the one built beside the demo, or otherwise the installed one.
    private var command: String {
        let beside = URL(filePath: "/proc/self/exe").resolvingSymlinksInPath().deletingLastPathComponent()
            .appending(path: "stall-monitor").path
        return FileManager.default.isExecutableFile(atPath: beside) ? beside : "stall-monitor"
    }

    private func mark(_ passed: Bool) -> String {
        passed ? Self.styled("ok", "32") : Self.styled("NOT OK", "31")
    }

    private static func styled(_ text: String, _ style: String) -> String {
        hasColours ? "\u{1B}[\(style)m\(text)\u{1B}[0m" : text
    }

    /// Columns as wide as their widest cell, separated by two spaces.
    private static func columns(_ rows: [[String]]) -> String {
        func width(_ cell: String) -> Int { cell.replacing(/\u{1B}\[\d*m/, with: "").count }
        let widths = rows[0].indices.map { column in rows.map { width($0[column]) }.max() ?? 0 }
        return rows.map { row in
            zip(row, widths).map { $0 + String(repeating: " ", count: $1 + 2 - width($0)) }.joined()
        }.joined(separator: "\n")
    }

    private static func milliseconds(_ nanoseconds: Int64) -> String { "\((nanoseconds + 500_000) / 1_000_000) ms" }
}
