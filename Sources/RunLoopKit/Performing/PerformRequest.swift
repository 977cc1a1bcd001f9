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
    private let state: Mutex<State>

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
        state = Mutex(State(body: Boxed(body: body), completion: completion))
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
