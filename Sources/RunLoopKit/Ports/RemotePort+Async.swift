internal import Synchronization

extension RemotePort {
    /// Sends a request from a loop and suspends until the reply is there, which that loop receives. Blocks no thread, except as long as
    /// `sendTimeout` allows the loop's.
    ///
    /// The port is added to the mode, and stays there. The wait is bounded by `receiveTimeout`, counted from the sending; cancelling the
    /// task does not end it. The message is sent when the loop next runs the mode.
    ///
    /// - Parameters:
    ///   - loop: A loop that runs the mode: on another thread than the caller's, or, for the main actor, the main loop.
    ///   - mode: Not ``EventRunLoop/Mode/common``, which traps.
    /// - Throws: What the overload that blocks throws, and `loopEnded` if the loop ends before there is an outcome.
    public func request(
        _ message: PortMessage,
        on loop: EventRunLoop,
        mode: EventRunLoop.Mode = .default,
        sendTimeout: Duration = .zero,
        receiveTimeout: Duration = .seconds(10),
        file: StaticString = #fileID,
        line: UInt = #line
    ) async throws(RunLoopError) -> ReceivedMessage {
        requireOneMode(mode, file, line)
        let outcome = await withCheckedContinuation { continuation in
            let promise = ReplyPromise(continuation)
            loop.perform(in: mode) {
                do throws(RunLoopError) {
                    try self.start(message, promise, loop, mode, sendTimeout, receiveTimeout)
                } catch {
                    promise.finish(.failure(error))
                }
            }
        }
        return try outcome.get()
    }

    private func start(
        _ message: PortMessage,
        _ promise: ReplyPromise,
        _ loop: EventRunLoop,
        _ mode: EventRunLoop.Mode,
        _ sendTimeout: Duration,
        _ receiveTimeout: Duration
    ) throws(RunLoopError) {
        guard isValid else { throw RunLoopError(.portInvalid) }
        try enter(loop, mode)
        let number = try channel.enter(PromiseWaiter(promise))
        do {
            try channel.send(message, kind: .request, number: number, timeout: sendTimeout)
        } catch {
            channel.leave(number)
            throw error
        }
        // The timer is the promise's only holder from here on: if the loop ends, both go, and the promise says so. It holds the port, too.
        let timer = EventTimer(after: receiveTimeout) { _ in
            self.channel.leave(number)
            promise.finish(.failure(RunLoopError(.receiveTimeout)))
        }
        promise.timer = timer
        loop.add(timer, to: mode)
    }
}

/// The one end of an asynchronous request, whichever comes first; at the latest when nobody can bring one any more.
private final class ReplyPromise: Sendable {
    typealias Continuation = CheckedContinuation<RemoteChannel.Outcome, Never>

    private let state: Mutex<State>

    private struct State: Sendable {
        var continuation: Continuation?
        weak var timer: EventTimer?
    }

    init(_ continuation: Continuation) { state = Mutex(State(continuation: continuation)) }

    deinit { finish(.failure(RunLoopError(.loopEnded))) }

    /// Ended with the promise. Held by its loop.
    var timer: EventTimer? {
        get { state.withLock { $0.timer } }
        set { state.withLock { $0.timer = newValue } }
    }

    func finish(_ outcome: RemoteChannel.Outcome) {
        let (continuation, timer) = state.withLock { state in (state.continuation.take(), state.timer) }
        continuation?.resume(returning: outcome)
        timer?.invalidate()
    }
}

/// What the channel knows of a promise, without keeping it.
private final class PromiseWaiter: RemoteChannel.Waiter {
    private weak let promise: ReplyPromise?

    init(_ promise: ReplyPromise) { self.promise = promise }

    func finish(_ outcome: RemoteChannel.Outcome) { promise?.finish(outcome) }
}
