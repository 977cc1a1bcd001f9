import HTTPTypes
import Hummingbird
import NIOCore
import StallExport
import StallReports
import StallStore

// The export of a fault's stalls, in the formats of other tools.

extension QuestionRoutes {
    /// The largest number of stalls in an export of a fault: the longest ones.
    static let exportedStalls = 200
    /// The largest number of bytes of their reports. The report with which it is reached is still exported.
    static let exportedBytes = 16 << 20
    /// What an export contains, in words.
    static let exportLimits = "the \(exportedStalls) longest stalls, up to \(exportedBytes >> 20) MiB of reports"
    /// What an export says that does not contain everything.
    static let truncation = "This is not all: it has \(exportLimits)."
    /// The header that marks an export that does not contain everything.
    private static let truncated = HTTPField.Name("Stall-Truncated")!

    func export(_ context: CollectorContext, _ question: QuestionText) async throws -> Response {
        guard let format = context.parameters.get("format").flatMap({ ExportFormat(rawValue: $0) }) else {
            let formats = ExportFormat.allCases.map(\.rawValue).joined(separator: ", ")
            throw Refusal(.notFound, "there is no such format; there are \(formats)")
        }
        let reader = try readers.admit(question.query.team)
        defer { withExtendedLifetime(reader) {} }
        let stalls = try await store.exportedStalls(of: fingerprint(context), question.query)
        var exporter = format.makeExporter()
        var output = try exporter.begin([])
        let isWhole = try await store.eachReport(of: stalls, team: question.query.team) {
            output += try exporter.add($0)
        }
        output += try exporter.end()
        var headers: HTTPFields = [
            .contentSecurityPolicy: format == .html ? ExportedPage.policy : "sandbox; default-src 'none'"
        ]
        if !isWhole {
            headers[Self.truncated] = "true"
            format.add(note: Self.truncation, to: &output)
        }
        return JSONAnswer.bytes(output, type: format.mediaType, headers: headers)
    }
}

extension StallStore {
    /// The stalls for ``eachReport(of:team:bytes:_:)``: one more than it passes, so that it sees whether there are more.
    func exportedStalls(of fingerprint: Fingerprint?, _ query: StallQuery) async throws -> [StoredStall] {
        try await stalls(query, of: fingerprint, longestFirst: true, limit: QuestionRoutes.exportedStalls + 1)
    }

    /// Passes the reports of the stalls to `work`, as many as an export contains. Reports that cannot be read are skipped.
    ///
    /// - Returns: Whether these were the reports of all the stalls.
    func eachReport(
        of stalls: [StoredStall],
        team: String,
        bytes limit: Int = QuestionRoutes.exportedBytes,
        _ work: (StallReport) throws -> Void
    ) async throws -> Bool {
        var bytes = 0
        for (index, stall) in stalls.enumerated() {
            guard index < QuestionRoutes.exportedStalls, bytes < limit else { return false }
            guard let json = try await self.report(stall.id, team: team) else { continue }
            bytes = bytes.addingSaturated(json.count)
            if let report = try? StallReport(json: json) { try work(report) }
        }
        return true
    }
}

extension ExportFormat {
    /// Adds a note to a finished export. In the other formats there is no place for one.
    fileprivate func add(note: String, to output: inout [UInt8]) {
        switch self {
        case .html:
            let end = "</body>\n</html>\n".utf8
            guard output.suffix(end.count).elementsEqual(end) else { return }
            output.insert(contentsOf: "<p>\(note)</p>\n".utf8, at: output.count - end.count)
        case .svg: output += "<!-- \(note) -->\n".utf8
        default: break
        }
    }

    var mediaType: String {
        switch self {
        case .html: "text/html; charset=utf-8"
        case .svg: "image/svg+xml"
        case .pprof: "application/octet-stream"
        case .csv: "text/csv; charset=utf-8"
        case .speedscope, .chrome, .firefox: "application/json"
        case .otlpLogs, .otlpMetrics, .sentry, .ndjson: "application/x-ndjson"
        case .collapsed, .prometheus: "text/plain; charset=utf-8"
        }
    }
}

/// The page of `export --format html` as the collector sends it. It is isolated from the collector's other pages, and runs only
/// its own script.
enum ExportedPage {
    /// Permits scripts and styles by their hashes (CSP level 3, 6.7.3.3), so that markup in a report's names would have no
    /// effect.
    static let policy = """
        sandbox allow-scripts; default-src 'none'; style-src \(source(of: FlameGraphView.style)); \
        script-src \(source(of: FlameGraphView.script)); base-uri 'none'; form-action 'none'; frame-ancestors 'none'
        """

    /// In the page, each of these texts follows a newline.
    private static func source(of text: String) -> String {
        "'sha256-\(SHA256.base64(of: "\n\(text)"))'"
    }
}
