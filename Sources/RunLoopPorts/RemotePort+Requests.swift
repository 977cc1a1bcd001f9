import Glibc
import Locking
public import RunLoopKit

extension RemotePort {
    /// Sends a request and waits for the reply, while the calling thread's loop runs a mode: its timers, sources and observers
    /// continue (R56).
    ///
    /// There is exactly one outcome: the reply, or one of the errors. Stopping the loop does not end the wait; the stop is passed
    /// on to the outer run afterwards, and a stop of the mode to the next outer run of that mode. A worker that is stopped ends
    /// afterwards, too. Requests may be nested, and several threads may make them at once. If the port is removed from the mode
    /// meanwhile, no reply can come: that is a `receiveTimeout`, at once if nothing else is in the mode.
    ///
    /// - Parameters:
    ///   - sendTimeout: How long the caller and its loop block if the receiver's queue is full; nil for no limit.
    ///   - receiveTimeout: How long the loop runs until the reply arrives, counted from the sending; nil for no limit.
    ///   - mode: The mode to run; `EventRunLoop/Mode/common` traps.
    /// - Throws: `sendTimeout`, `receiveTimeout`, `portInvalid`, `portBecameInvalid`, `transportError` (R56);
    ///   `messageTooLarge`, `tooManyDescriptors` (R57); `outOfResources` if the loop cannot watch for the reply: then nothing
    ///   was sent.
    public func request(
        _ message: PortMessage,
        sendTimeout: Duration? = .seconds(1),
        receiveTimeout: Duration? = .seconds(10),
        mode: EventRunLoop.Mode = .default,
        file: StaticString = #fileID,
        line: UInt = #line
    ) throws(RunLoopError) -> ReceivedMessage {
        requireOneMode(mode, file, line)
        let loop = EventRunLoop.current
        let waiter = LoopWaiter(loop, PortWait(.reply, at: channel.destination, isTimed: receiveTimeout != nil))
        let number = try channel.enter(waiter)
        do {
            // This comes before anything is sent: without it no reply could be received.
            let isBorrowing = try borrow(loop, mode)
            defer { if isBorrowing { giveBack(loop, mode) } }
            try channel.send(message, kind: .request, number: number, timeout: sendTimeout)
            return try wait(for: waiter, number, in: mode, of: loop, timeout: receiveTimeout).get()
        } catch {
            channel.leave(number)
            throw error
        }
    }

    func requireOneMode(_ mode: EventRunLoop.Mode, _ file: StaticString, _ line: UInt) {
        let text = "A request waits in one mode, not in the common ones; name it."
        require(mode != .common, text, file: file, line: line)
    }

    private func wait(
        for waiter: LoopWaiter,
        _ number: UInt32,
        in mode: EventRunLoop.Mode,
        of loop: EventRunLoop,
        timeout: Duration?
    ) -> RemoteChannel.Outcome {
        let deadline = MonotonicInstant.after(timeout)
        var left = timeout
        defer { waiter.completion.passOnStops(to: loop, mode) }
        while true {
            if let outcome = waiter.outcome { return outcome }
            switch loop.run(mode: mode, for: left, returnAfterSourceHandled: false, until: waiter.completion) {
            // The source has left the mode: the port is being closed, or another caller has removed it.
            case .finished, .timedOut:
                if channel.leave(number) != nil { return .failure(RunLoopError(.receiveTimeout)) }
                // Another thread has the outcome and is about to deliver it.
                waiter.waitUntilFinished()
            case .stopped, .handledSource: break
            }
            left = deadline == .distantFuture ? nil : MonotonicInstant.now.duration(to: deadline)
        }
    }
}

// MARK: - Adding the port for the time of a request

extension RemotePort {
    /// A mode to which the port was added for the duration of a request only.
    struct Borrowed: Hashable, Sendable {
        let loop: ObjectIdentifier
        let mode: EventRunLoop.Mode
    }

    /// Adds the port to a mode permanently.
    func enter(_ loop: EventRunLoop, _ mode: EventRunLoop.Mode) throws(RunLoopError) {
        try addSource(to: loop, mode, ifInvalid: .portInvalid)
        borrowed.withLock { _ = $0.remove(Borrowed(loop: ObjectIdentifier(loop), mode: mode)) }
    }

    /// - Parameter code: What a port is that has no valid source any more.
    private func addSource(
        to loop: EventRunLoop,
        _ mode: EventRunLoop.Mode,
        ifInvalid code: RunLoopError.Code
    ) throws(RunLoopError) {
        do throws(RunLoopError) {
            try loop.add(source, to: mode)
        } catch {
            throw error.code == .itemInvalid ? RunLoopError(code) : error
        }
    }

    /// Adds the port to a mode if it is not there; returns whether it was added.
    private func borrow(_ loop: EventRunLoop, _ mode: EventRunLoop.Mode) throws(RunLoopError) -> Bool {
        guard !loop.contains(source, in: mode) else { return false }
        // Another thread may have closed it since the request was entered.
        try addSource(to: loop, mode, ifInvalid: .portBecameInvalid)
        borrowed.withLock { _ = $0.insert(Borrowed(loop: ObjectIdentifier(loop), mode: mode)) }
        return true
    }

    /// Removes the port from the mode, unless it was added permanently since then.
    private func giveBack(_ loop: EventRunLoop, _ mode: EventRunLoop.Mode) {
        let key = Borrowed(loop: ObjectIdentifier(loop), mode: mode)
        if borrowed.withLock({ $0.remove(key) }) != nil { loop.remove(source, from: mode) }
    }
}

/// A loop that waits for a reply in a nested run.
private final class LoopWaiter: RemoteChannel.Waiter {
    let completion: RunCompletion
    private let loop: EventRunLoop
    private let result = ForkSafeMutex<RemoteChannel.Outcome?>(nil)

    /// - Parameter wait: what the thread waits for, for readers of its stack.
    init(_ loop: EventRunLoop, _ wait: PortWait) { (self.loop, completion) = (loop, RunCompletion(awaiting: wait)) }

    var outcome: RemoteChannel.Outcome? { completion.isSet ? result.withLock { $0 } : nil }

    func finish(_ outcome: RemoteChannel.Outcome) {
        result.withLock { $0 = outcome }
        completion.set()
        loop.wakeUpFromElsewhere()
    }

    /// Waits until the other thread has delivered the outcome. It needs only a few instructions for that, but may end other
    /// requests first, whose executors can run any code. Sleeps, so that a thread of a lower priority also gets the processor.
    func waitUntilFinished() {
        while !completion.isSet { usleep(200) }
    }
}

extension RemotePort {
    /// Sends a request from a loop and suspends until that loop receives the reply. Blocks no thread, except the loop's for as
    /// long as `sendTimeout` allows.
    ///
    /// The port is added to the mode, and stays there. The wait is bounded by `receiveTimeout`, counted from the sending;
    /// cancelling the task does not end it. The message is sent when the loop next runs the mode.
    ///
    /// - Parameters:
    ///   - loop: A loop that runs the mode: on another thread than the caller's, or, for the main actor, the main loop.
    ///   - mode: Any mode except `EventRunLoop/Mode/common`, which traps.
    /// - Throws: What the blocking overload throws, and `loopEnded` if the loop ends before there is an outcome.
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
                    let number = try self.send(message, for: promise, in: mode, of: loop, timeout: sendTimeout)
                    self.limit(promise, number, in: mode, of: loop, to: receiveTimeout)
                } catch {
                    promise.finish(.failure(error))
                }
            }
        }
        return try outcome.get()
    }

    /// Sends the request, and returns its number. The loop's thread.
    private func send(
        _ message: PortMessage,
        for promise: ReplyPromise,
        in mode: EventRunLoop.Mode,
        of loop: EventRunLoop,
        timeout: Duration
    ) throws(RunLoopError) -> UInt32 {
        guard isValid else { throw RunLoopError(.portInvalid) }
        try enter(loop, mode)
        let number = try channel.enter(PromiseWaiter(promise))
        do {
            try channel.send(message, kind: .request, number: number, timeout: timeout)
            return number
        } catch {
            channel.leave(number)
            throw error
        }
    }

    /// Ends the request if there is no reply in time. From here on only the timer retains the promise: if the loop ends, both are
    /// released, and the promise reports that. The timer also retains the port.
    private func limit(
        _ promise: ReplyPromise,
        _ number: UInt32,
        in mode: EventRunLoop.Mode,
        of loop: EventRunLoop,
        to receiveTimeout: Duration
    ) {
        let timer = EventTimer(after: receiveTimeout) { _ in
            self.channel.leave(number)
            promise.finish(.failure(RunLoopError(.receiveTimeout)))
        }
        loop.add(timer, to: mode)
        // Not before: if another loop with the port has received the reply already, this ends the timer.
        promise.end(timer)
    }
}

/// The single outcome of an asynchronous request, whichever comes first; at the latest when nothing can produce one any more.
final class ReplyPromise: Sendable {
    typealias Continuation = CheckedContinuation<RemoteChannel.Outcome, Never>

    private let state: ForkSafeMutex<State>

    private struct State: Sendable {
        var continuation: Continuation?
        weak var timer: EventTimer?
    }

    init(_ continuation: Continuation) { state = ForkSafeMutex(State(continuation: continuation)) }

    deinit { finish(.failure(RunLoopError(.loopEnded))) }

    /// Ends the timer, which its loop retains, with the promise: at once if that is already over.
    func end(_ timer: EventTimer) {
        let isOver = state.withLock { state in
            state.timer = timer
            return state.continuation == nil
        }
        if isOver { timer.invalidate() }
    }

    func finish(_ outcome: RemoteChannel.Outcome) {
        let (continuation, timer) = state.withLock { state in (state.continuation.take(), state.timer) }
        continuation?.resume(returning: outcome)
        timer?.invalidate()
    }
}

/// The channel's weak reference to a promise.
private final class PromiseWaiter: RemoteChannel.Waiter {
    private weak let promise: ReplyPromise?

    init(_ promise: ReplyPromise) { self.promise = promise }

    func finish(_ outcome: RemoteChannel.Outcome) { promise?.finish(outcome) }
}
