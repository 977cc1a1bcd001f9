public import StallReports

/// Converts reports to another tool's format, one report at a time, so that memory does not grow with their number where the
/// format allows it. Not for use by several threads at once.
public protocol ReportExporter {
    /// Returns what precedes the first report. Call it first, and once.
    ///
    /// - Parameter runs: The run records of the same directories: metrics are made from these.
    mutating func begin(_ runs: [RunRecord]) throws(ReportError) -> [UInt8]
    /// Returns what one report adds. May be empty: some formats are written at the end.
    mutating func add(_ report: StallReport) throws(ReportError) -> [UInt8]
    /// Returns what follows the last report. Call it last, and once.
    mutating func end() throws(ReportError) -> [UInt8]
}

extension ReportExporter {
    /// Returns nothing: for formats without a beginning.
    public mutating func begin(_ runs: [RunRecord]) throws(ReportError) -> [UInt8] { [] }
    /// Returns nothing: for formats without an end.
    public mutating func end() throws(ReportError) -> [UInt8] { [] }
}

/// The formats to which reports can be exported, with the names that the command accepts.
public enum ExportFormat: String, CaseIterable, Sendable {
    case html, svg, speedscope, pprof, collapsed
    case chrome, firefox
    case otlpLogs = "otlp-logs"
    case otlpMetrics = "otlp-metrics"
    case prometheus, sentry, csv, ndjson

    /// Its purpose, in one line.
    public var summary: String {
        switch self {
        case .html: "one page for a browser: a flame graph with zoom, search and sandwich view; needs no network"
        case .svg: "a flame graph as a picture"
        case .speedscope: "speedscope.app, and editors that read its files"
        case .pprof: "go tool pprof, and services that take its profiles"
        case .collapsed: "a line for each stack with its microseconds: flamegraph.pl, inferno and others"
        case .chrome: "a timeline, a track for each loop, more if its stalls overlap: ui.perfetto.dev, chrome://tracing"
        case .firefox: "profiler.firefox.com: a timeline of the stalls with their stacks, call tree, flame graph"
        case .otlpLogs: "OpenTelemetry log records as JSON lines, for any OTLP/HTTP receiver (/v1/logs)"
        case .otlpMetrics: "OpenTelemetry metrics as JSON lines, for any OTLP/HTTP receiver (/v1/metrics)"
        case .prometheus: "Prometheus' text format, for node_exporter's textfile collector"
        case .sentry: "Sentry events, one a line; the release is the service's name@version, with - for /"
        case .csv: "a table for spreadsheets, one stall a row"
        case .ndjson: "whole reports, one a line"
        }
    }

    /// Whether it cannot be shown on a terminal.
    public var isBinary: Bool { self == .pprof }

    /// Whether everything is JSON: texts of reports may have any character in it.
    package var isJSON: Bool {
        switch self {
        case .speedscope, .chrome, .firefox, .otlpLogs, .otlpMetrics, .sentry, .ndjson: true
        case .html, .svg, .pprof, .collapsed, .prometheus, .csv: false
        }
    }

    /// An exporter for a single export.
    public func makeExporter() -> any ReportExporter {
        switch self {
        case .html: FlameGraphPage()
        case .svg: StackExporter(.svg)
        case .speedscope: StackExporter(.speedscope)
        case .pprof: StackExporter(.pprof)
        case .collapsed: StackExporter(.collapsed)
        case .chrome: TraceEventExporter()
        case .firefox: FirefoxExporter()
        case .otlpLogs: TelemetryLogExporter()
        case .otlpMetrics: TelemetryMetricExporter()
        case .prometheus: PrometheusExporter()
        case .sentry: SentryExporter()
        case .csv: TableExporter()
        case .ndjson: ReportLineExporter()
        }
    }
}

/// Tells the processes of all reports apart. Every container has a process 1, and process numbers are reused after a restart.
struct ProcessKey: Hashable {
    var host: String
    var bootID: String?
    var pidNamespace: UInt64?
    var pid: Int32
    var startTicks: UInt64?
    /// Only if the process's start is not known: one process may have had several monitors.
    var run: ULID?

    init(_ report: StallReport) {
        (host, bootID) = (report.host.name, report.host.bootID)
        (pidNamespace, pid, startTicks) = (
            report.process.pidNamespace, report.process.pid, report.process.startTicks
        )
        run = startTicks == nil ? report.run : nil
    }
}

/// Full reports, one per line.
struct ReportLineExporter: ReportExporter {
    func add(_ report: StallReport) throws(ReportError) -> [UInt8] { try report.json() }
}

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
            report.kind.rawValue, report.severity.rawValue, report.cause.verdict.canonical.rawValue,
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
        if let first = text.unicodeScalars.first, "=+-@".unicodeScalars.contains(first) { text = "'" + text }
        // Line breaks are already visible.
        guard text.unicodeScalars.contains(where: { $0 == "," || $0 == "\"" }) else { return text }
        return "\"" + text.escaped(["\"": "\"\""]) + "\""
    }
}
