import Foundation
import HTTPTypes
import Hummingbird
import NIOCore
import StallExport
import StallReading
import StallReports
import StallStore

/// Answers queries in JSON and in other tools' formats.
struct QuestionRoutes {
    /// The largest number of stalls in an export of a fault: the longest ones.
    static let exportedStalls = 200
    /// The largest number of bytes of their reports. The report with which it is reached is still exported.
    static let exportedBytes = 16 << 20
    /// What an export contains, in words.
    static let exportLimits = "the \(exportedStalls) longest stalls, up to \(exportedBytes >> 20) MiB of reports"
    /// What an export says that does not contain everything.
    static let truncation = "This is not all: it has \(exportLimits)."
    /// The header that marks an answer in which a part of the store is missing.
    private static let partial = HTTPField.Name("Stall-Partial")!
    /// The header that marks an export that does not contain everything.
    private static let truncated = HTTPField.Name("Stall-Truncated")!
    let store: any StallStore
    let readers: ClientLimit

    func add(to router: some RouterMethods<CollectorContext>) {
        router.get("api/v1/faults") { request, context in
            let question = try QuestionText(request, team: context.team(.read))
            let list = try await store.faults(question.query, by: question.order, limit: question.limit)
            var answer = try JSONAnswer.make(Self.document(question, list.watchedNs, list.faults))
            if list.isPartial { answer.headers[Self.partial] = "true" }
            return answer
        }
        router.get("api/v1/faults/:fingerprint") { request, context in
            let question = try QuestionText(request, team: context.team(.read))
            let fault = try await fault(context, question)
            return try JSONAnswer.make(Self.document(question, 0, [fault]))
        }
        router.get("api/v1/faults/:fingerprint/export/:format") { request, context in
            let question = try QuestionText(request, team: context.team(.read))
            return try await export(context, question)
        }
        router.get("api/v1/stalls") { request, context in
            let question = try QuestionText(request, team: context.team(.read))
            let stalls = try await store.stalls(
                question.query,
                of: nil,
                before: StoredReport.Place(after: request),
                longestFirst: false,
                limit: question.limit
            )
            return try JSONAnswer.make(StallsDocument(stalls, limit: question.limit))
        }
        router.get("api/v1/reports/:id") { _, context in
            let report = try await report(context, store)
            return JSONAnswer.bytes(report, type: "application/json")
        }
        router.get("api/v1/alerts") { _, context in
            let team = try context.team(.read)
            let lasting = try await store.alerts().filter { $0.team == team && $0.endedAt == nil }
            return try JSONAnswer.make(["alerts": lasting.map { AlertMessage.Entry($0, nil) }])
        }
    }

    private static func document(_ question: QuestionText, _ watchedNs: Int64, _ faults: [Fault]) -> FaultDocument {
        FaultDocument(
            at: .now(),
            since: question.query.since,
            until: question.query.until,
            watchedNs: watchedNs,
            faults: faults
        )
    }

    private func fault(_ context: CollectorContext, _ question: QuestionText) async throws -> Fault {
        let fingerprint = try fingerprint(context)
        guard let fault = try await store.fault(fingerprint, question.query) else {
            throw Refusal(.notFound, "that fault has no stall from \(question.query.since) to \(question.query.until)")
        }
        return fault
    }

    private func export(_ context: CollectorContext, _ question: QuestionText) async throws -> Response {
        guard let format = context.parameters.get("format").flatMap({ ExportFormat(rawValue: $0) }) else {
            let formats = ExportFormat.allCases.map(\.rawValue).joined(separator: ", ")
            throw Refusal(.notFound, "there is no such format; there are \(formats)")
        }
        let reader = try readers.admit()
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
        return JSONAnswer.bytes(output, type: format.mediaType, headers: headers, to: reader)
    }
}

extension StallStore {
    /// The stalls for ``eachReport(of:team:bytes:_:)``: one more than it passes, so that it sees whether there are more.
    func exportedStalls(of fingerprint: Fingerprint, _ query: StallQuery) async throws -> [StoredStall] {
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

/// The router does not decode paths, and a client may have percent-encoded the colon.
func fingerprint(_ context: CollectorContext) throws(Refusal) -> Fingerprint {
    let text = context.parameters.get("fingerprint")?.removingPercentEncoding
    guard let fingerprint = text.flatMap({ Fingerprint(rawValue: $0) }) else {
        throw Refusal(.badRequest, "that is no fault's fingerprint")
    }
    return fingerprint
}

func report(_ context: CollectorContext, _ store: any StallStore) async throws -> [UInt8] {
    let team = try context.team(.read)
    guard let id = context.parameters.get("id").flatMap({ ULID($0) }) else {
        throw Refusal(.badRequest, "that is no report's id")
    }
    guard let report = try await store.report(id, team: team) else {
        throw Refusal(.notFound, "there is no such report; it may have been removed by its age")
    }
    return report
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
