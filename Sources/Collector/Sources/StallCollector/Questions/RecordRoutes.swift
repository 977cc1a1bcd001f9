internal import Hummingbird
internal import NIOCore
internal import StallReports
internal import StallStore

/// Hands out what was sent, as it was sent: `GET /api/v1/records`, the run records first and then the reports, one JSON document a line. What
/// reads report directories reads this.
struct RecordRoutes {
    /// More stalls than a reader should ask for at a time.
    static let stallLimit = 100_000
    /// In memory at a time.
    private static let page = 100
    let store: any StallStore

    func add(to router: some RouterMethods<CollectorContext>) {
        router.get("api/v1/records") { request, context in
            let query = try QuestionText(request, team: context.team(.read)).query
            // Before anything is sent: an answer that was begun cannot be refused any more.
            guard try await store.count(query, limit: Self.stallLimit + 1) <= Self.stallLimit else {
                throw Refusal(
                    .contentTooLarge,
                    "these are more than \(Self.stallLimit) stalls: ask for a shorter time, or one service, release or host"
                )
            }
            return Response(
                status: .ok,
                headers: [.contentType: "application/x-ndjson"],
                body: ResponseBody { writer in
                    try await send(query, to: &writer)
                    try await writer.finish(nil)
                }
            )
        }
    }

    private func send(_ query: StallQuery, to writer: inout any ResponseBodyWriter) async throws {
        var lastRun: ULID?
        while true {
            let runs = try await store.runs(query, after: lastRun, limit: Self.page)
            for run in runs { try await writer.write(Self.line(run.json)) }
            guard let last = runs.last else { break }
            lastRun = last.id
        }
        var lastReport: StoredReport.Place?
        while true {
            let reports = try await store.reports(query, after: lastReport, limit: Self.page)
            for report in reports { try await writer.write(Self.line(report.json)) }
            guard let last = reports.last else { break }
            lastReport = last.place
        }
    }

    /// A document as it was sent is one line; whether it had an end, nobody knows.
    private static func line(_ json: [UInt8]) -> ByteBuffer {
        var buffer = ByteBuffer(bytes: json)
        if json.last != UInt8(ascii: "\n") { buffer.writeInteger(UInt8(ascii: "\n")) }
        return buffer
    }
}
