import Foundation
import HTTPTypes
import Hummingbird
import Logging
import NIOCore
import Synchronization

extension JSONEncoder {
    /// For all JSON that the collector writes: with sorted keys, and with slashes as they are.
    static func plain() -> JSONEncoder {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        return encoder
    }
}

enum JSONAnswer {
    static func make(_ value: some Encodable, status: HTTPResponse.Status = .ok) throws -> Response {
        bytes(
            [UInt8](try JSONEncoder.plain().encode(value)) + [UInt8(ascii: "\n")],
            type: "application/json",
            status: status
        )
    }

    static func bytes(
        _ bytes: [UInt8],
        type: String,
        status: HTTPResponse.Status = .ok,
        headers: HTTPFields = [:]
    ) -> Response {
        var fields = headers
        fields[.contentType] = type
        return Response(status: status, headers: fields, body: ResponseBody(byteBuffer: ByteBuffer(bytes: bytes)))
    }
}

/// Why a request fails, with a status that says who has to act: `{"message":"…"}`, or an ``ErrorPage`` for a browser.
struct Refusal: HTTPResponseError, CustomStringConvertible {
    let status: HTTPResponse.Status
    let description: String
    let headers: HTTPFields

    init(_ status: HTTPResponse.Status, _ description: String, _ headers: HTTPFields = [:]) {
        (self.status, self.description, self.headers) = (status, description, headers)
    }

    private struct Message: Encodable { var message: String }

    func response(from request: Request, context: some RequestContext) throws -> Response {
        var response =
            try request.asksForPage
            ? PageRoutes.page("error", ErrorPage(self), status: status)
            : JSONAnswer.make(Message(message: description), status: status)
        response.headers.append(contentsOf: headers)
        response.headers[.vary] = "Accept"
        // The rest of the body is not read. ``ConnectionGuard`` closes the connection after the answer.
        if status.kind == .clientError { response.headers[.connection] = "close" }
        return response
    }
}

/// Why the collector cannot start, and what to do about it.
public struct CollectorError: Error, Hashable, CustomStringConvertible {
    /// The reason and the remedy, for a terminal or a log.
    public let description: String
    /// Creates one with this description.
    public init(_ description: String) { self.description = description }
}

/// Answers 503 if the store fails, and logs the reason.
struct StoreFailures: RouterMiddleware {
    func handle(
        _ request: Request,
        context: CollectorContext,
        next: (Request, CollectorContext) async throws -> Response
    ) async throws -> Response {
        do {
            return try await next(request, context)
        } catch let error as any HTTPResponseError {
            throw error
        } catch let error as CancellationError {
            throw error
        } catch {
            context.logger.error("the store does not answer", metadata: ["error": "\(error)"])
            throw Refusal(.serviceUnavailable, "the store does not answer just now", [.retryAfter: "5"])
        }
    }
}

/// Admits a limited number of clients at a time, of one team three quarters of that number. Any thread.
final class ClientLimit: Sendable {
    private let most: Int
    /// What a client is told if there are too many.
    private let reason: String
    /// By team.
    private let present = Mutex<[String: Int]>([:])

    init(_ most: Int, _ reason: String) { (self.most, self.reason) = (most, reason) }

    /// Keep it as long as the client is served.
    ///
    /// - Throws: If there are too many already.
    func admit(_ team: String) throws(Refusal) -> Client {
        let isAdmitted = present.withLock { present in
            let own = present[team] ?? 0
            guard own < (most * 3 + 3) / 4, present.values.reduce(0, +) < most else { return false }
            present[team] = own + 1
            return true
        }
        guard isAdmitted else { throw Refusal(.tooManyRequests, reason, [.retryAfter: "10"]) }
        return Client(of: self, team)
    }

    private func leave(_ team: String) {
        present.withLock { present in
            let left = (present[team] ?? 1) - 1
            present[team] = left > 0 ? left : nil
        }
    }

    /// An admitted client. It also leaves if its answer is never begun.
    final class Client: Sendable {
        private let limit: ClientLimit
        private let team: String

        fileprivate init(of limit: ClientLimit, _ team: String) { (self.limit, self.team) = (limit, team) }

        deinit { limit.leave(team) }
    }
}

/// Sends answers in pieces, and admits a limited number of clients to large ones: a client that reads slowly keeps its answer in memory
/// for long.
struct LargeAnswers: RouterMiddleware {
    /// In bytes. A peer has a time limit for each piece. A larger answer is a large one.
    static let pieceBytes = 256 << 10
    let readers: ClientLimit

    func handle(
        _ request: Request,
        context: CollectorContext,
        next: (Request, CollectorContext) async throws -> Response
    ) async throws -> Response {
        var response = try await next(request, context)
        let (body, eventLoop, team) = (response.body, context.eventLoop, context.caller?.team ?? "")
        // The size of a stream is not known. What sends one limits its clients itself.
        let reader = try body.contentLength.flatMap { $0 > Self.pieceBytes ? try readers.admit(team) : nil }
        guard reader != nil || body.contentLength == nil else { return response }
        response.body = ResponseBody(contentLength: body.contentLength) { writer in
            defer { withExtendedLifetime(reader) {} }
            try await body.write(PieceWriter(base: writer, eventLoop: eventLoop))
        }
        return response
    }

    private struct PieceWriter: ResponseBodyWriter {
        var base: any ResponseBodyWriter
        let eventLoop: any EventLoop

        mutating func write(_ buffer: ByteBuffer) async throws {
            var rest = buffer
            while let piece = rest.readSlice(length: min(rest.readableBytes, pieceBytes)), piece.readableBytes > 0 {
                try await base.write(piece)
                // The connection's thread takes the piece now, and the next one waits if the peer does not read. Otherwise all of them
                // would be passed to that thread before it takes the first.
                try await eventLoop.submit {}.get()
            }
        }

        consuming func finish(_ trailingHeaders: HTTPFields?) async throws { try await base.finish(trailingHeaders) }
    }
}
