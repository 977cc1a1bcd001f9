import Locking
internal import Synchronization

/// Something that a loop was asked to do (R52). Runs once, or not at all: withdrawn, or lost with the loop.
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
        /// Nil once begun, or over.
        var body: Boxed?
        /// Nil once called.
        var completion: (@Sendable (Ending) -> Void)?
        var isOver = false
    }

    /// - Parameters:
    ///   - modes: At least one.
    ///   - completion: Called once, outside all locks, unless the request is withdrawn.
    init(
        inModes modes: [EventRunLoop.Mode],
        completion: (@Sendable (Ending) -> Void)? = nil,
        body: @escaping @Sendable () -> Void
    ) {
        self.modes = BlockQueue.Modes(modes)
        state = ForkSafeMutex(State(body: Boxed(body: body), completion: completion))
    }

    var isWaiting: Bool { state.withLock { $0.body != nil } }
    func isWaiting(for mode: LoopMode) -> Bool { isWaiting && modes.match(mode) }
    var isOver: Bool { state.withLock { $0.isOver } }

    /// Runs it, if it still waits; says whether it did. The loop's thread.
    func serve() -> Bool {
        guard run() else { return false }
        // The body is freed by now: who waits for the end finds nothing held.
        complete(.done)
        return true
    }

    private func run() -> Bool {
        guard let body = state.withLock({ $0.body.take() }) else { return false }
        callOut(body)
        return true
    }

    /// True if it had not begun, and now never will. Any thread.
    func withdraw() -> Bool {
        let (body, completion) = state.withLock { state -> (Boxed?, (@Sendable (Ending) -> Void)?) in
            guard state.body != nil else { return (nil, nil) }
            state.isOver = true
            return (state.body.take(), state.completion.take())
        }
        // Both are released out here, at the end.
        _ = consume completion
        return body != nil
    }

    /// The loop has ended: it will not begin, or not come to its end.
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

    private let state = ForkSafeMutex(State())
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

/// How much of a queue, from its head, has been looked through in vain for one mode. Only what came since must be looked at, so that
/// what is parked for a mode that does not run costs nothing in the turns of another.
///
/// Good as long as nothing is taken out of that part, and no mode becomes common.
struct PassedOver: Sendable {
    /// -1 if none.
    private var modeIndex = -1
    private var count = 0

    /// How many need not be looked at for a mode.
    func count(for mode: LoopMode) -> Int { modeIndex == mode.index ? count : 0 }

    mutating func note(_ count: Int, for mode: LoopMode) {
        modeIndex = mode.index
        self.count = count
    }

    mutating func forget() { modeIndex = -1 }
}
