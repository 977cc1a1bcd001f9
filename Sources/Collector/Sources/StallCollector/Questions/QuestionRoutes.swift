import Foundation
import HTTPTypes
import Hummingbird
import NIOCore
import StallReading
import StallReports
import StallStore

/// Answers queries in JSON and in other tools' formats.
struct QuestionRoutes {
    /// The header that marks an answer in which a part of the store is missing.
    private static let partial = HTTPField.Name("Stall-Partial")!
    let store: any StallStore
    let readers: ClientLimit

    func add(to router: some RouterMethods<CollectorContext>) {
        router.question("api/v1/faults") { question, _, _ in
            let list = try await store.faults(question.query, by: question.order, limit: question.limit)
            var answer = try JSONAnswer.make(Self.document(question, list.watchedNs, list.faults))
            if list.isPartial { answer.headers[Self.partial] = "true" }
            return answer
        }
        router.question("api/v1/faults/:fingerprint") { question, _, context in
            let fault = try await store.neededFault(fingerprint(context), question.query)
            return try JSONAnswer.make(Self.document(question, 0, [fault]))
        }
        router.question("api/v1/faults/:fingerprint/export/:format") { question, _, context in
            try await export(context, question)
        }
        router.question("api/v1/stalls") { question, request, _ in
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
}

/// The router does not decode paths, and a client may have percent-encoded the colon.
func fingerprint(_ context: CollectorContext) throws(Refusal) -> Fingerprint {
    let text = context.parameters.get("fingerprint")?.removingPercentEncoding
    guard let fingerprint = text.flatMap({ Fingerprint(rawValue: $0) }) else {
        throw Refusal(.badRequest, "that is no fault's fingerprint")
    }
    return fingerprint
}

extension StallStore {
    /// - Throws: ``Refusal`` if the fault has no stall in the range.
    func neededFault(_ fingerprint: Fingerprint, _ query: StallQuery) async throws -> Fault {
        guard let fault = try await fault(fingerprint, query) else {
            throw Refusal(.notFound, "that fault has no stall from \(query.since) to \(query.until)")
        }
        return fault
    }
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

/// The answer of `/api/v1/stalls`.
struct StallsDocument: Encodable {
    var schema = "stall-list/1"
    var stalls: [Row]
    /// The value of `after` with which a client gets the stalls that follow. Nil: these are the last ones.
    var next: String?

    init(_ stalls: [StoredStall], limit: Int) {
        self.stalls = stalls.map { Row($0) }
        next = stalls.count < limit ? nil : stalls.last?.place.text
    }

    struct Row: Encodable {
        var id: ULID
        var fingerprint: Fingerprint
        var startedAt: Timestamp
        var durationNs: Int64
        var state: String
        var verdict: String
        var service: String
        var release: String
        var host: String
        var label: String
        var culprit: String

        init(_ stall: StoredStall) {
            (id, fingerprint, startedAt, durationNs) = (stall.id, stall.fingerprint, stall.startedAt, stall.durationNs)
            state = stall.isOver ? "over" : "ongoing"
            (verdict, service, release) = (stall.verdict.rawValue, stall.service, stall.release)
            (host, label, culprit) = (stall.host, stall.label, stall.culprit)
        }

        private enum CodingKeys: String, CodingKey {
            case id, fingerprint, state, verdict, service, release, host, label, culprit
            case startedAt = "started_at"
            case durationNs = "duration_ns"
        }
    }
}

extension StoredReport.Place {
    /// The nanoseconds since 1970, and the id: `1781526896000000000-01KV5D3G8H…`.
    fileprivate var text: String { "\(startedAt.sinceEpoch)-\(id)" }

    /// The place after which a client continues, in the order of the list. Nil: at its beginning.
    init?(after request: Request) throws(Refusal) {
        guard let text = request.uri.queryParameters["after"] else { return nil }
        let parts = text.split(separator: "-", omittingEmptySubsequences: false).map(String.init)
        guard parts.count == 2, let start = Int64(parts[0]), start >= 0, let id = ULID(parts[1]) else {
            throw Refusal(.badRequest, "'after' is the 'next' of the answer before")
        }
        self.init(startedAt: Timestamp(sinceEpoch: start), id: id)
    }
}
