import Locking

// The ways to have a loop run something once. All name the common modes by default, and differ in when and how it is run:
//
//   perform(in:wake:)             as a block: the lightest, and early in the turn (R51)
//   performAsSource(in:)          like a signalled source, which counts as handled and ends a run for one source (R52)
//   performAndWait(in:timeout:)   like performAsSource; the calling thread blocks until it is done
//   performAndAwait(in:)          like performAsSource; the calling task is suspended until it is done
//   perform(after:in:target:)     after a delay (R53): see DelayedPerforms.swift
//   performBeforeWaiting(_:…)     once for all calls with a key, before the loop sleeps: see BeforeWaitingWork.swift

extension EventRunLoop {
    /// Runs a block once, on the loop's thread, in a run of one mode, or of any common mode (R51). Any thread; not in a signal
    /// handler.
    ///
    /// - Parameter wake: False leaves a sleeping loop asleep, as CFRunLoopPerformBlock does (R24).
    public func perform(in mode: Mode = .common, wake: Bool = true, _ block: consuming @escaping @Sendable () -> Void) {
        enqueue(BlockQueue.Block(modes: .init(mode), body: block), wake: wake)
    }

    /// Runs a block once, on the loop's thread, in whichever of the modes runs first (R51). Any thread; not in a signal
    /// handler.
    ///
    /// - Parameters:
    ///   - modes: At least one; an empty array traps.
    ///   - wake: As in ``perform(in:wake:_:)``.
    public func perform(
        in modes: [Mode],
        wake: Bool = true,
        file: StaticString = #fileID,
        line: UInt = #line,
        _ block: consuming @escaping @Sendable () -> Void
    ) {
        requireMode(in: modes, file, line)
        enqueue(BlockQueue.Block(modes: .init(modes), body: block), wake: wake)
    }

    private func enqueue(_ block: consuming BlockQueue.Block, wake: Bool) {
        if isOfParent { return LoopWarning.loopOfParent.printOnce() }
        if case .named = block.modes { make(block.modes) }
        switch blocks.append(block, wakes: wake) {
        case .refused: LoopWarning.loopEnded.printOnce()
        case .needsWakeUp: if wake { self.wake.post() }
        case .isAnnounced: break
        }
    }

    /// Work that names no mode would be kept forever and never run.
    func requireMode(in modes: [Mode], _ file: StaticString, _ line: UInt) {
        require(!modes.isEmpty, "What is to be performed names at least one mode.", file: file, line: line)
    }

    /// Creates the modes if necessary, as adding an item does (R4): a block or a request is enough to create a mode that can be
    /// run.
    func make(_ modes: BlockQueue.Modes) {
        guard case .named(let names) = modes else { return }
        table.withLock { table in
            // What names them will be refused.
            guard !table.hasEnded else { return }
            for mode in names where mode != .common { _ = table.mode(mode) }
        }
    }
}

extension BlockQueue.Modes {
    init(_ modes: [EventRunLoop.Mode]) {
        self = modes.count == 1 ? .init(modes[0]) : .named(Set(modes))
    }
}

// MARK: - Requests

extension EventRunLoop {
    /// Runs `body` once, on the loop's thread, like a signalled source, in whichever of the modes runs first, and wakes the loop
    /// (R52). Any thread; not in a signal handler.
    ///
    /// Requests are served first in, first out. All requests of a mode are served in one turn, before that turn's signalled
    /// sources; a request made by a request is served in the next turn. They count as a source handled (R19). If the loop ends
    /// first, `body` is released without running.
    ///
    /// - Parameter modes: At least one; an empty array traps. By default all common modes.
    public func performAsSource(
        in modes: [Mode] = [.common],
        file: StaticString = #fileID,
        line: UInt = #line,
        _ body: @escaping @Sendable () -> Void
    ) {
        requireMode(in: modes, file, line)
        if !post(PerformRequest(in: modes, body: body)) { LoopWarning.loopEnded.printOnce() }
    }

    /// Runs `body` on the loop, and blocks the calling thread until it is done (R52). Any thread, not in a signal handler; on the
    /// loop's own thread `body` runs at once. Async functions call ``performAndAwait(in:file:line:_:)``, which blocks no thread.
    ///
    /// Two loops that wait for each other wait forever: pass a timeout where that is possible.
    ///
    /// - Parameters:
    ///   - modes: At least one; an empty array traps. By default all common modes.
    ///   - timeout: How long the request may wait to begin; nil for no limit. Once begun, it is waited for to its end.
    /// - Returns: What `body` returns.
    /// - Throws: What `body` throws; ``RunLoopError`` `requestTimedOut` if the request was withdrawn and will never run;
    ///   `loopEnded` if the loop's thread has ended, before `body` began or while it ran.
    @available(*, noasync, message: "In an async function, await performAndAwait.")
    @discardableResult
    public func performAndWait<Value: Sendable>(
        in modes: [Mode] = [.common],
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

    /// Runs `body` on the loop, and suspends the calling task until it is done (R52). If the task is cancelled before `body` has
    /// begun, the request is withdrawn.
    ///
    /// - Parameter modes: At least one; an empty array traps. By default all common modes.
    /// - Returns: What `body` returns.
    /// - Throws: What `body` throws; ``RunLoopError`` `loopEnded` as in ``performAndWait(in:timeout:file:line:_:)``; `CancellationError`.
    @discardableResult
    public func performAndAwait<Value: Sendable>(
        in modes: [Mode] = [.common],
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
            in: modes,
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
