import Hummingbird
import StallReading
import StallReports
import StallStore

/// A query in a URL: `?since=7d&service=shop&verdict=waiting`.
struct QuestionText {
    static let limits = 1...1000
    /// How many values a parameter may have. More are refused: an answer for some of them would be taken for that of all.
    private static let valueLimit = 256
    let query: StallQuery
    let order: FaultOrder
    let limit: Int
    /// The parameters as given, for the page's form and links.
    let since: String
    let until: String
    private let now: Timestamp

    /// - Throws: The mistake.
    init(_ request: Request, team: String, now: Timestamp = .now()) throws(Refusal) {
        let fields = request.questionFields
        func texts(_ name: String) throws(Refusal) -> [String] {
            let values = fields.getAll(name).filter { !$0.isEmpty }
            guard values.count <= Self.valueLimit else {
                throw Refusal(.badRequest, "'\(name)' has more than \(Self.valueLimit) values")
            }
            // Names in the form in which the store has them.
            return values.map { VisibleText.of($0, limit: 256) }
        }
        (since, until) = (try texts("since").last ?? "7d", try texts("until").last ?? "")
        self.now = now
        let end = until.isEmpty ? now.advanced(byNanoseconds: 1) : try Self.moment(until, now, name: "until")
        let range = try Self.range(try Self.moment(since, now, name: "since"), end, "'since' lies before 'until'")
        var query = StallQuery(team: team, since: range.since, until: range.until)
        (query.services, query.releases) = (try texts("service"), try texts("release"))
        query.hosts = try texts("host")
        // A wait is `blocked` in reports, and `waiting` in the store.
        query.verdicts = try texts("verdict").map { Verdict(rawValue: $0).canonical.rawValue }
        query.text = try texts("text").last
        self.query = query
        let order = try texts("by").last ?? FaultOrder.total.rawValue
        guard let known = FaultOrder(rawValue: order) else {
            throw Refusal(.badRequest, "'by' is one of \(FaultOrder.allCases.map(\.rawValue).joined(separator: ", "))")
        }
        self.order = known
        guard let limit = Int(try texts("limit").last ?? "50"), Self.limits.contains(limit) else {
            throw Refusal(
                .badRequest,
                "'limit' is a number from \(Self.limits.lowerBound) to \(Self.limits.upperBound)"
            )
        }
        self.limit = limit
    }

    /// The earlier one of two times that are compared. Without `until` it ends where the later one begins.
    func range(_ since: String, _ until: String) throws(Refusal) -> (since: Timestamp, until: Timestamp) {
        let end = until.isEmpty ? query.since : try Self.moment(until, now, name: "before-until")
        let start = try Self.moment(since, now, name: "before-since")
        return try Self.range(start, end, "'before-since' lies before 'before-until', or before 'since'")
    }

    private static func range(
        _ since: Timestamp,
        _ until: Timestamp,
        _ rule: String
    ) throws(Refusal) -> (since: Timestamp, until: Timestamp) {
        guard since < until, until.seconds - since.seconds <= 10 * 366 * 86400 else {
            throw Refusal(.badRequest, "\(rule), by ten years at most")
        }
        return (since, until)
    }

    /// `7d` means seven days ago; other times are in the form of RFC 3339.
    private static func moment(_ text: String, _ now: Timestamp, name: String) throws(Refusal) -> Timestamp {
        if let length = DurationText(text) { return max(epoch, now.advanced(byNanoseconds: -length.nanoseconds)) }
        guard let moment = Timestamp(rfc3339: text), moment >= epoch else {
            throw Refusal(.badRequest, "'\(name)' is a length like 24h or 7d, or a time like 2026-01-31T12:00:00Z")
        }
        return moment
    }

    private static let epoch = Timestamp(seconds: 0)
}

extension Request {
    /// The fields of the address. A browser writes a blank of a page's form as `+`; in an address of the API it is itself.
    var questionFields: Parameters {
        guard !uri.path.hasPrefix("/api/") else { return uri.queryParameters }
        return type(of: uri).init(uri.string.replacing("+", with: "%20")).queryParameters
    }
}

extension RouterMethods<CollectorContext> {
    /// Answers callers that may read, with the query in the request's address.
    func question<Answer: ResponseGenerator>(
        _ path: RouterPath,
        _ answer: @escaping @Sendable (QuestionText, Request, CollectorContext) async throws -> Answer
    ) {
        get(path) { request, context in
            try await answer(QuestionText(request, team: context.team(.read)), request, context)
        }
    }
}
