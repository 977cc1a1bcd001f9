internal import StallExport
internal import StallReports

/// How reports and run records are encoded into requests.
enum Wire: Hashable, Sendable {
    /// OpenTelemetry's JSON: stalls are log records, the counts of runs are metrics.
    case telemetry
    /// A collector's own format: full reports and records, one per line.
    case collector

    func element(_ report: StallReport) throws(ReportError) -> [UInt8] {
        self == .telemetry ? try Telemetry.element(report) : try report.json()
    }

    func element(_ run: RunRecord) throws(ReportError) -> [UInt8] {
        self == .telemetry ? try Telemetry.element(run) : try run.json()
    }

    func path(_ signal: Telemetry.Signal) -> String { self == .telemetry ? signal.path : "v1/reports" }

    /// The body of one request.
    func request(_ elements: [[UInt8]], _ signal: Telemetry.Signal) -> [UInt8] {
        self == .telemetry ? signal.request(elements) : Array(elements.joined())
    }

    var contentType: String { self == .telemetry ? "application/json" : "application/x-ndjson" }
}
