internal import StallReports

/// Comma-separated values (RFC 4180), with a header row. Text that a spreadsheet would interpret as a formula gets an
/// apostrophe before it.
struct TableExporter: ReportExporter {
    private static let columns = [
        "id", "started_at", "ended_at", "state", "kind", "severity", "verdict", "duration_ms", "service", "version",
        "host", "pid", "type",
        "label", "culprit", "file", "line", "fingerprint", "suppressed", "cause",
    ]

    func begin(_ runs: [RunRecord]) -> [UInt8] { row(Self.columns) }

    func add(_ report: StallReport) -> [UInt8] {
        row([
            report.id.description, report.startedAt.description, report.endedAt?.description ?? "",
            report.state.rawValue,
            report.kind.rawValue, report.severity.rawValue, report.cause.verdict.rawValue,
            "\(Double(report.durationNs / 1000) / 1000)", report.service?.name ?? "", report.service?.version ?? "",
            report.host.name,
            "\(report.process.pid)", report.watched.type.rawValue, report.watched.label, report.culpritName ?? "",
            report.culprit?.file ?? "", report.culprit?.line.map { "\($0)" } ?? "", report.fingerprint.description,
            "\(report.suppressed)", report.cause.summary,
        ])
    }

    private func row(_ cells: [String]) -> [UInt8] {
        Array((cells.map(Self.cell).joined(separator: ",") + "\r\n").utf8)
    }

    private static func cell(_ text: String) -> String {
        var text = plain(text)
        if let first = text.first, "=+-@".contains(first) { text = "'" + text }
        guard text.contains(where: { $0 == "," || $0 == "\"" || $0.isNewline }) else { return text }
        return "\"" + text.replacing("\"", with: "\"\"") + "\""
    }
}
