import Locking

// Perform requests: the run loop's way to run work on its thread and report its completion (R52). A block of `perform` is
// lighter and runs earlier in the turn, and its completion is not tracked. A request is handled like a signalled source, and
// can be waited for.
extension EventRunLoop {
    /// Requests that the loop run `body` once, in whichever of the modes it runs first, and wakes it (R52). Any thread; not in
    /// a signal handler.
    ///
    /// Requests are served first in, first out. All requests of a mode are served in one turn, before that turn's signalled
    /// sources; a request made by a request is served in the next turn. They count as a source handled (R19). If the loop ends
    /// first, `body` is released without running.
    ///
    /// - Parameter modes: At least one; an empty array traps. By default all common modes.
    public func performRequest(
        inModes modes: [Mode] = [.common],
        file: StaticString = #fileID,
        line: UInt = #line,
        _ body: @escaping @Sendable () -> Void
    ) {
        requireMode(in: modes, file, line)
        if !post(PerformRequest(inModes: modes, body: body)) { LoopWarning.loopEnded.make() }
    }

    /// Runs `body` on the loop, and waits until it is done (R52). Any thread, not in a signal handler; on the loop's own thread
    /// `body` runs at once. In an async function the other overload is used, which blocks no thread.
    ///
    /// Two loops that wait for each other wait forever: pass a timeout where that is possible.
    ///
    /// - Parameters:
    ///   - modes: At least one; an empty array traps. By default all common modes.
    ///   - timeout: How long the request may wait to begin; nil for no limit. Once begun, it is waited for to its end.
    /// - Returns: What `body` returns.
    /// - Throws: What `body` throws; ``RunLoopError`` `requestTimedOut` if the request was withdrawn and will never run;
    ///   `loopEnded` if the loop's thread has ended, before `body` began or while it ran.
    @available(*, noasync, message: "In an async function, await the call.")
    @discardableResult
    public func performAndWait<Value: Sendable>(
        inModes modes: [Mode] = [.common],
        timeout: Duration? = nil,
        file: StaticString = #fileID,
        line: UInt = #line,
        _ body: @escaping @Sendable () throws -> Value
    ) throws -> Value {
        requireMode(in: modes, file, line)
        if isOnOwnThread { return try body() }
        let deadline = MonotonicInstant.after(timeout)
        let reply = Reply<Value>(from: self)
        let request = try ask(modes, reply, body)
        if !reply.wait(until: deadline) {
            if requests.withdraw(request) { throw RunLoopError(.requestTimedOut) }
            _ = reply.wait(until: .distantFuture)
        }
        return try reply.value()
    }

    /// Runs `body` on the loop, and suspends until it is done (R52). If the task is cancelled before `body` has begun, the
    /// request is withdrawn.
    ///
    /// - Parameter modes: At least one; an empty array traps. By default all common modes.
    /// - Returns: What `body` returns.
    /// - Throws: What `body` throws; ``RunLoopError`` `loopEnded` as in the overload that blocks; `CancellationError`.
    @discardableResult
    public func performAndWait<Value: Sendable>(
        inModes modes: [Mode] = [.common],
        file: StaticString = #fileID,
        line: UInt = #line,
        _ body: @escaping @Sendable () throws -> Value
    ) async throws -> Value {
        requireMode(in: modes, file, line)
        let reply = Reply<Value>(from: self)
        let request = try ask(modes, reply, body)
        return try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { reply.resume($0) }
        } onCancel: {
            guard requests.withdraw(request) else { return }
            reply.put(.failure(CancellationError()))
            reply.open()
        }
    }

    private func ask<Value: Sendable>(
        _ modes: [Mode],
        _ reply: Reply<Value>,
        _ body: @escaping @Sendable () throws -> Value
    ) throws(RunLoopError) -> PerformRequest {
        let request = PerformRequest(
            inModes: modes,
            completion: { ending in
                if ending == .loopEnded { reply.put(.failure(RunLoopError(.loopEnded))) }
                reply.open()
            },
            body: { reply.put(Result(catching: body)) }
        )
        guard post(request) else { throw RunLoopError(.loopEnded) }
        return request
    }

    private func post(_ request: PerformRequest) -> Bool {
        if isOfParent { return false }
        make(request.modes)
        guard requests.append(request) else { return false }
        wake.post()
        return true
    }

    /// Serves the requests that wait for a mode; returns whether there was one. The loop's thread.
    func serveRequests(in mode: LoopMode) -> Bool {
        let batch = requests.waiting(for: mode)
        guard !batch.isEmpty else { return false }
        var served = 0
        // Since then a nested run may have served some of them, and a caller may have withdrawn one.
        for request in batch {
            heartbeat.noteCallout()
            if request.serve() { served += 1 }
        }
        requests.forget(served)
        return served > 0
    }
}

/// The place where a caller waits for the result of its request. The loop's thread stores the result and opens; the caller
/// takes it.
private final class Reply<Value: Sendable>: Sendable {
    private struct State: Sendable {
        var outcome: Result<Value, any Error>?
        var isOpen = false
        var continuation: CheckedContinuation<Value, any Error>?
    }

    private let state = ForkSafeMutex(State())
    private let latch: Latch

    /// - Parameter loop: The loop whose thread provides the result.
    init(from loop: EventRunLoop) { latch = Latch(.loopRequest, openedBy: loop.thread?.id) }

    /// Stores the outcome; only the first one counts.
    func put(_ outcome: Result<Value, any Error>) {
        state.withLock { state in
            if state.outcome == nil { state.outcome = outcome }
        }
    }

    /// Releases the caller. The outcome is stored by now.
    func open() {
        let continuation = state.withLock { state in
            state.isOpen = true
            return state.continuation.take()
        }
        latch.open()
        if let continuation { resume(continuation) }
    }

    func wait(until deadline: MonotonicInstant) -> Bool { latch.wait(until: deadline) }

    func resume(_ continuation: CheckedContinuation<Value, any Error>) {
        let outcome: Result<Value, any Error>? = state.withLock { state in
            if !state.isOpen { state.continuation = continuation }
            return state.isOpen ? state.outcome : nil
        }
        if let outcome { continuation.resume(with: outcome) }
    }

    func value() throws -> Value {
        guard let outcome = state.withLock({ $0.outcome }) else {
            trap("a perform request was over without an outcome", file: #fileID, line: #line)
        }
        return try outcome.get()
    }
}
