import Hummingbird
import Logging

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
