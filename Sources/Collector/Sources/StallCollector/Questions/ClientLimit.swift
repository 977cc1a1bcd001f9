import HTTPTypes
import Synchronization

/// Admits a limited number of clients at a time. Any thread.
final class ClientLimit: Sendable {
    private let most: Int
    /// What a client is told if there are too many.
    private let reason: String
    private let present = Atomic(0)

    init(_ most: Int, _ reason: String) { (self.most, self.reason) = (most, reason) }

    /// Keep it as long as the client is served.
    ///
    /// - Throws: If there are too many already.
    func admit() throws(Refusal) -> Client {
        guard present.wrappingAdd(1, ordering: .relaxed).newValue <= most else {
            present.wrappingSubtract(1, ordering: .relaxed)
            throw Refusal(.tooManyRequests, reason, [.retryAfter: "10"])
        }
        return Client(of: self)
    }

    /// An admitted client. It also leaves if its answer is never begun.
    final class Client: Sendable {
        private let limit: ClientLimit

        fileprivate init(of limit: ClientLimit) { self.limit = limit }

        deinit { limit.present.wrappingSubtract(1, ordering: .relaxed) }
    }
}
