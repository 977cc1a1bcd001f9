import Hummingbird
import NIOCore
import StallReports
import StallStore

/// Returns records unchanged, as they were sent: `GET /api/v1/records`. Run records come first, then reports, one JSON document
/// per line. Programs that read report directories can read this.
final class RecordRoutes: Sendable {
    /// The largest number of stalls in one answer.
    static let stallLimit = 100_000
    /// The largest number of documents in memory for each reader. The store may return fewer.
    private static let page = 100
    private let store: any StallStore
    /// Each has a page in memory.
    private let readers: ClientLimit

    init(store: any StallStore, readers: ClientLimit) { (self.store, self.readers) = (store, readers) }

    func add(to router: some RouterMethods<CollectorContext>) {
        router.get("api/v1/records") { request, context in
            let query = try QuestionText(request, team: context.team(.read)).query
            // This comes before anything is sent, because the status cannot be changed afterwards.
            guard try await self.store.count(query, limit: Self.stallLimit + 1) <= Self.stallLimit else {
                throw Refusal(
                    .contentTooLarge,
                    "these are more than \(Self.stallLimit) stalls: ask for a shorter time, or one service, release or host"
                )
            }
            let reader = try self.readers.admit(query.team)
            return Response(
                status: .ok,
                headers: [.contentType: "application/x-ndjson"],
                body: ResponseBody { writer in
                    defer { withExtendedLifetime(reader) {} }
                    try await self.send(query, to: &writer)
                    try await writer.finish(nil)
                }
            )
        }
    }

    private func send(_ query: StallQuery, to writer: inout any ResponseBodyWriter) async throws {
        var lastRun: ULID?
        while true {
            let runs = try await store.runs(query, after: lastRun, limit: Self.page)
            guard let last = runs.last else { break }
            try await writer.write(Self.lines(runs.map(\.json)))
            lastRun = last.id
        }
        var lastReport: StoredReport.Place?
        while true {
            let reports = try await store.reports(query, after: lastReport, limit: Self.page)
            guard let last = reports.last else { break }
            try await writer.write(Self.lines(reports.map(\.json)))
            lastReport = last.place
        }
    }

    /// Makes each document one line. It may have been sent without a newline.
    private static func lines(_ documents: [[UInt8]]) -> ByteBuffer {
        var buffer = ByteBuffer()
        for json in documents {
            buffer.writeBytes(json)
            if json.last != UInt8(ascii: "\n") { buffer.writeInteger(UInt8(ascii: "\n")) }
        }
        return buffer
    }
}
