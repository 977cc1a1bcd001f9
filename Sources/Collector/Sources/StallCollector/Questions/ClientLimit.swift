import Synchronization

/// Admits a limited number of clients at a time. Any thread.
final class ClientLimit: Sendable {
    private let most: Int
    private let present = Atomic(0)

    init(_ most: Int) { self.most = most }

    /// Keep it as long as the client is served. Nil if there are too many already.
    func admit() -> Client? {
        guard present.wrappingAdd(1, ordering: .relaxed).newValue <= most else {
            present.wrappingSubtract(1, ordering: .relaxed)
            return nil
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
