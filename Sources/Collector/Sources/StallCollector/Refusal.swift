import HTTPTypes
import Hummingbird
import Logging
import NIOCore

/// Why a request fails: `{"message":"…"}`, with a status that says who has to act.
struct Refusal: HTTPResponseError, CustomStringConvertible {
    let status: HTTPResponse.Status
    let description: String
    let headers: HTTPFields

    init(_ status: HTTPResponse.Status, _ description: String, _ headers: HTTPFields = [:]) {
        (self.status, self.description, self.headers) = (status, description, headers)
    }

    private struct Message: Encodable { var message: String }

    func response(from request: Request, context: some RequestContext) throws -> Response {
        var response = try JSONAnswer.make(Message(message: description), status: status)
        response.headers.append(contentsOf: headers)
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
