internal import Synchronization

/// A loop's perform requests in the order of their coming (R52). Any thread appends and withdraws; the loop's thread serves.
///
/// A request keeps its place until it is over. So a nested run finds those that the outer one has not come to, and the end of the
/// thread finds the one that it has cut short. One that is over holds nothing any more, and is forgotten with others, in sweeps.
final class PerformQueue: Sendable {
    private struct State: Sendable {
        var requests: [PerformRequest] = []
        /// How many of them are over. A batch is counted at its end: if a sweep comes before that, it is too low until then.
        var overCount = 0
        var passedOver = PassedOver()
        var isClosed = false

        /// Sweeps look at all: they come when they halve the queue, or empty it.
        var needsSweep: Bool {
            overCount >= requests.count || (overCount > 32 && overCount > requests.count / 2)
        }

        /// The place of the oldest that waits for a mode.
        mutating func firstIndex(for mode: LoopMode) -> Int? {
            let first = requests[passedOver.count(for: mode)...].firstIndex { $0.isWaiting(for: mode) }
            passedOver.note(first ?? requests.count, for: mode)
            return first
        }

        mutating func sweep() {
            let before = requests.count
            requests.removeAll { $0.isOver }
            overCount -= before - requests.count
            passedOver.forget()
        }
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
            count.store(state.requests.count, ordering: .releasing)
            return true
        }
    }

    /// True if it had not begun, and now never will.
    func withdraw(_ request: PerformRequest) -> Bool {
        guard request.withdraw() else { return false }
        forget(1)
        return true
    }

    /// Those that wait for a mode, oldest first.
    func waiting(for mode: LoopMode) -> [PerformRequest] {
        guard count.load(ordering: .acquiring) > 0 else { return [] }
        return state.withLock { state in
            guard let first = state.firstIndex(for: mode) else { return [] }
            return state.requests[first...].filter { $0.isWaiting(for: mode) }
        }
    }

    /// To be told how many are over, served or withdrawn, once of each.
    func forget(_ overCount: Int) {
        state.withLock { state in
            state.overCount += overCount
            guard state.needsSweep else { return }
            state.sweep()
            count.store(state.requests.count, ordering: .releasing)
        }
    }

    func hasWaiting(for mode: LoopMode) -> Bool {
        guard count.load(ordering: .acquiring) > 0 else { return false }
        return state.withLock { $0.firstIndex(for: mode) != nil }
    }

    /// To be called when a mode became common: it may have become the mode of requests that were passed over.
    func modesChanged() { state.withLock { $0.passedOver.forget() } }

    /// Gives up what is there, and takes no more (R2, R3).
    func close() {
        let requests = state.withLock { state in
            state.isClosed = true
            state.passedOver.forget()
            count.store(0, ordering: .releasing)
            return state.requests.take()
        }
        for request in requests { request.abandon() }
    }
}
