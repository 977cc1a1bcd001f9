internal import Synchronization

/// A loop's perform requests in the order of their coming (R52). Any thread appends and withdraws; the loop's thread serves.
///
/// A request keeps its place until it is over. So a nested run finds those that the outer one has not come to, and the end of the
/// thread finds the one that it has cut short.
final class PerformQueue: Sendable {
    private struct State: Sendable {
        var requests: [PerformRequest] = []
        /// The mode in which the present requests have been looked through in vain; -1 if none.
        var fruitlessMode = -1
        var isClosed = false
    }

    private let state = Mutex(State())
    /// Written under the lock. Read without it by the loop's thread: a request that comes in that moment brings a wake-up, and is
    /// found in the next turn.
    private let count = Atomic<Int>(0)

    /// How many wait.
    var waitingCount: Int { state.withLock { state in state.requests.count { $0.isWaiting } } }

    /// False if the loop has ended; then the request is not kept.
    func append(_ request: PerformRequest) -> Bool {
        state.withLock { state in
            guard !state.isClosed else { return false }
            state.requests.append(request)
            state.fruitlessMode = -1
            count.store(state.requests.count, ordering: .releasing)
            return true
        }
    }

    /// True if it had not begun, and now never will.
    func withdraw(_ request: PerformRequest) -> Bool {
        guard request.withdraw() else { return false }
        sweep()
        return true
    }

    /// Those that wait for a mode, oldest first.
    func waiting(for mode: LoopMode) -> [PerformRequest] {
        guard count.load(ordering: .acquiring) > 0 else { return [] }
        return state.withLock { state in
            guard state.fruitlessMode != mode.index else { return [] }
            let found = state.requests.filter { $0.isWaiting && $0.modes.match(mode) }
            if found.isEmpty { state.fruitlessMode = mode.index }
            return found
        }
    }

    /// Forgets those that are over.
    func sweep() {
        let over = state.withLock { state in
            let all = state.requests
            state.requests.removeAll { $0.isOver }
            count.store(state.requests.count, ordering: .releasing)
            return all
        }
        // Released out here.
        _ = consume over
    }

    func hasWaiting(for mode: LoopMode) -> Bool {
        guard count.load(ordering: .acquiring) > 0 else { return false }
        return state.withLock { state in
            state.fruitlessMode != mode.index && state.requests.contains { $0.isWaiting && $0.modes.match(mode) }
        }
    }

    /// To be called when a mode became common: it may have become the mode of requests that were passed over.
    func modesChanged() { state.withLock { $0.fruitlessMode = -1 } }

    /// Gives up what is there, and takes no more (R2, R3).
    func close() {
        let requests = state.withLock { state in
            state.isClosed = true
            count.store(0, ordering: .releasing)
            return state.requests.take()
        }
        for request in requests { request.abandon() }
    }
}
