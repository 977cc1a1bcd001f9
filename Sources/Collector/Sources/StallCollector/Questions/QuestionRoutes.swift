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
