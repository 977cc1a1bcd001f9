import Locking
import Synchronization

/// Work that a loop was requested to do (R52). It runs once, or not at all: if it is withdrawn, or lost with the loop.
///
///     waiting ── begin ──▶ running ── finish ──▶ over
///        │                    │                   ▲
///        ├── withdraw ────────┼───────────────────┤
///        └── abandon ─────────┴── abandon ────────┘     the loop's thread has ended, also in the middle of the request
final class PerformRequest: Sendable {
    struct Boxed: Sendable {
        let body: @Sendable () -> Void
    }

    enum Ending: Sendable {
        case done
        case loopEnded
    }

    let modes: BlockQueue.Modes
    private let state: ForkSafeMutex<State>

    private struct State: Sendable {
        /// Nil once begun or over.
        var body: Boxed?
        /// Nil once called.
        var completion: (@Sendable (Ending) -> Void)?
        var isOver = false
    }

    /// - Parameters:
    ///   - modes: At least one.
    ///   - completion: Called once, outside all locks, unless the request is withdrawn.
    init(
        in modes: [EventRunLoop.Mode],
        completion: (@Sendable (Ending) -> Void)? = nil,
        body: @escaping @Sendable () -> Void
    ) {
        self.modes = BlockQueue.Modes(modes)
        state = ForkSafeMutex(State(body: Boxed(body: body), completion: completion))
    }

    var isWaiting: Bool { state.withLock { $0.body != nil } }
    func isWaiting(for mode: LoopMode) -> Bool { isWaiting && modes.match(mode) }
    var isOver: Bool { state.withLock { $0.isOver } }

    /// Runs it if it still waits; returns whether it ran. The loop's thread.
    func serve() -> Bool {
        guard run() else { return false }
        // The body is freed by now: a caller that waits for the end finds nothing retained.
        complete(.done)
        return true
    }

    private func run() -> Bool {
        guard let body = state.withLock({ $0.body.take() }) else { return false }
        callOut(body)
        return true
    }

    /// True if it had not begun and now never will. Any thread.
    func withdraw() -> Bool {
        let (body, completion) = state.withLock { state -> (Boxed?, (@Sendable (Ending) -> Void)?) in
            guard state.body != nil else { return (nil, nil) }
            state.isOver = true
            return (state.body.take(), state.completion.take())
        }
        // Both are released outside the lock, at the end.
        _ = consume completion
        return body != nil
    }

    /// The loop has ended: the request will not begin, or not reach its end.
    func abandon() {
        let body = state.withLock { $0.body.take() }
        _ = consume body
        complete(.loopEnded)
    }

    private func complete(_ ending: Ending) {
        let completion = state.withLock { state in
            state.isOver = true
            return state.completion.take()
        }
        completion?(ending)
    }
}

/// A loop's perform requests in the order in which they were made (R52). Any thread appends and withdraws; the loop's thread
/// serves.
///
/// A request keeps its place until it is over. So a nested run finds the requests that the outer run has not reached, and the
/// end of the thread finds the request that it has cut short. A request that is over holds no memory, and is removed together
/// with others in sweeps.
final class PerformQueue: Sendable {
    private struct State: Sendable {
        var requests: [PerformRequest] = []
        /// The number of requests that are over. A batch is counted at its end, so during a batch the number is too low.
        var overCount = 0
        var passedOver = PassedOver()
        var isClosed = false

        /// A sweep visits all requests, so it runs only when it halves the queue or empties it.
        var needsSweep: Bool {
            overCount >= requests.count || (overCount > 32 && overCount > requests.count / 2)
        }

        /// The index of the oldest request that waits for a mode.
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

    private let state = ForkSafeMutex(State())
    /// Written under the lock and read without it by the loop's thread: a request that is added at that moment causes a
    /// wake-up, and is found in the next turn.
    private let count = Atomic<Int>(0)

    /// The number of waiting requests.
    var waitingCount: Int { state.withLock { state in state.requests.count { $0.isWaiting } } }

    /// False if the loop has ended; the request is then not kept.
    func append(_ request: PerformRequest) -> Bool {
        state.withLock { state in
            guard !state.isClosed else { return false }
            state.requests.append(request)
            count.store(state.requests.count, ordering: .releasing)
            return true
        }
    }

    /// True if it had not begun and now never will.
    func withdraw(_ request: PerformRequest) -> Bool {
        guard request.withdraw() else { return false }
        forget(1)
        return true
    }

    /// The requests that wait for a mode, oldest first.
    func waiting(for mode: LoopMode) -> [PerformRequest] {
        guard count.load(ordering: .acquiring) > 0 else { return [] }
        return state.withLock { state in
            guard let first = state.firstIndex(for: mode) else { return [] }
            return state.requests[first...].filter { $0.isWaiting(for: mode) }
        }
    }

    /// Call it with the number of requests that are over, served or withdrawn, once for each.
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

    /// Call it when a mode became common: it may now match requests that were skipped.
    func modesChanged() { state.withLock { $0.passedOver.forget() } }

    /// Abandons the requests, and accepts no more (R2, R3).
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

/// The length of the part of a queue, from its head, that was searched without success for one mode. Only entries added since
/// then must be searched, so that entries parked for a mode that does not run cost the turns of another mode nothing.
///
/// Valid as long as nothing is removed from that part, and no mode becomes common.
struct PassedOver: Sendable {
    /// -1 if none.
    private var modeIndex = -1
    private var count = 0

    /// The number of entries that need not be searched for a mode.
    func count(for mode: LoopMode) -> Int { modeIndex == mode.index ? count : 0 }

    mutating func note(_ count: Int, for mode: LoopMode) {
        modeIndex = mode.index
        self.count = count
    }

    mutating func forget() { modeIndex = -1 }
}
