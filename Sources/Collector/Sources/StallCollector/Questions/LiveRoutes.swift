import Foundation
import HTTPTypes
import Hummingbird
import NIOCore
import ServiceLifecycle
import StallReports
import StallStore

/// Sends stalls as they arrive, and again when they change: `GET /api/v1/live`, server-sent events. A client that reconnects with
/// the last id misses none. It takes a query's filters, but not its range: what arrives late began earlier.
final class LiveRoutes: Sendable {
    /// The largest number of clients, of all teams together.
    static let viewerLimit = 200
    private static let every = Duration.milliseconds(500)
    /// How many polls may pass before something is sent, if only a comment, so that a closed connection is detected.
    private static let beat = 20
    private let store: any StallStore
    /// Nil: there are no tokens.
    private let tokens: TokenFile?
    private let viewers = ClientLimit(viewerLimit, "too many clients follow the live feed already")

    init(store: any StallStore, tokens: TokenFile?) { (self.store, self.tokens) = (store, tokens) }

    func add(to router: some RouterMethods<CollectorContext>) {
        router.get("api/v1/live") { request, context in
            let caller = try context.caller(.read)
            let query = try QuestionText(request, team: caller.team).query
            let place = try await self.place(request)
            let viewer = try self.viewers.admit(caller.team)
            return Response(
                status: .ok,
                headers: [.contentType: "text/event-stream", .cacheControl: "no-store"],
                body: ResponseBody { writer in
                    defer { withExtendedLifetime(viewer) {} }
                    try await self.follow(caller, query, place, &writer)
                    try await writer.finish(nil)
                }
            )
        }
    }

    /// After which place the client continues. Without one it gets what arrives from now on.
    private func place(_ request: Request) async throws -> Int64 {
        let given =
            request.headers[HTTPField.Name("Last-Event-ID")!] ?? request.uri.queryParameters["after"].map(String.init)
        guard let given else { return try await store.lastPlace() }
        guard let number = Int64(given), number >= 0 else {
            throw Refusal(.badRequest, "'after' is the id of an event")
        }
        // A place behind the end is from another store, whose file was replaced: it would be reached much later, or never.
        return min(number, try await store.lastPlace())
    }

    /// Polls the store, which takes microseconds and also shows what other collectors have stored. Ends when the caller's token is removed.
    private func follow(
        _ caller: Caller,
        _ query: StallQuery,
        _ start: Int64,
        _ writer: inout any ResponseBodyWriter
    ) async throws {
        var (place, quiet) = (start, Self.beat)
        while !Task.isShuttingDownGracefully, tokens?.has(caller) ?? true {
            let arrivals = try await store.arrivals(team: caller.team, after: place, limit: 100)
            var buffer = try Self.events(arrivals, query)
            place = arrivals.last?.place ?? place
            quiet = arrivals.isEmpty ? quiet + 1 : 0
            if quiet >= Self.beat {
                buffer.writeString(":\n\n")
                quiet = 0
            }
            if buffer.readableBytes > 0 { try await writer.write(buffer) }
            if arrivals.isEmpty { try await Task.sleep(for: Self.every) }
        }
    }

    /// The selected ones as server-sent events, and where a client that reconnects continues.
    private static func events(_ arrivals: [(place: Int64, stall: StoredStall)], _ query: StallQuery) throws
        -> ByteBuffer
    {
        let encoder = JSONEncoder.plain()
        var buffer = ByteBuffer()
        for (index, (place, stall)) in arrivals.enumerated() {
            let (isLast, isSelected) = (index + 1 == arrivals.count, query.selects(stall))
            // An id without data is no event, but a client that reconnects continues after it.
            guard isSelected || isLast else { continue }
            // Several stalls can have one place: a client continues after all of them.
            if isLast || arrivals[index + 1].place != place { buffer.writeString("id: \(place)\n") }
            if isSelected {
                buffer.writeString("data: ")
                buffer.writeBytes(try encoder.encode(LiveStall(stall)))
                buffer.writeString("\n")
            }
            buffer.writeString("\n")
        }
        return buffer
    }
}

/// A stall in the form that the page uses.
struct LiveStall: Encodable {
    let id: String
    let link: String
    let began: String
    let length: String
    let culprit: String
    let verdict: String
    let service: String
    let release: String
    let host: String
    let label: String

    init(_ stall: StoredStall) {
        id = stall.id.description
        link = "/reports/\(stall.id)"
        began = moment(stall.startedAt)
        length = (stall.isOver ? "" : "at least ") + StallCollector.length(stall.durationNs)
        culprit = stall.culprit
        verdict = stall.verdict.canonical.rawValue
        (service, release, host, label) = (stall.service, stall.release, stall.host, stall.label)
    }
}
