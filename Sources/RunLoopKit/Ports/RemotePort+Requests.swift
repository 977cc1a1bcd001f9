internal import Glibc
internal import Synchronization

extension RemotePort {
    /// Sends a request and waits for the reply, while the calling thread's loop runs a mode: its timers, sources and observers go on
    /// (R56).
    ///
    /// There is exactly one outcome: the reply, or one of the errors. A stop of the loop does not end the wait; it is passed on to the
    /// outer run afterwards. Requests may be nested, and be made by several threads at once.
    ///
    /// - Parameters:
    ///   - sendTimeout: How long the caller blocks, its loop standing still, if the receiver's queue is full; nil waits for ever.
    ///   - receiveTimeout: How long the loop runs until the reply is there, counted from the sending; nil for ever.
    ///   - mode: Which mode to run; not ``EventRunLoop/Mode/common``.
    /// - Throws: `sendTimeout`, `receiveTimeout`, `portInvalid`, `portBecameInvalid`, `transportError` (R56); `messageTooLarge`,
    ///   `tooManyDescriptors` (R57); `outOfResources` if the loop cannot watch for the reply: then nothing was sent.
    public func request(
        _ message: PortMessage,
        sendTimeout: Duration? = .seconds(1),
        receiveTimeout: Duration? = .seconds(10),
        mode: EventRunLoop.Mode = .default
    ) throws(RunLoopError) -> ReceivedMessage {
        precondition(mode != .common, "A request waits in one mode, not in the common ones; name it.")
        let loop = EventRunLoop.current
        let waiter = LoopWaiter(loop)
        let number = try channel.enter(waiter)
        // Before anything is sent: without it no reply could be received.
        let wasThere = loop.contains(self, in: mode)
        do {
            if !wasThere { try watch(on: loop, mode) }
            try channel.send(message, kind: .request, number: number, deadline: .after(sendTimeout))
        } catch {
            channel.leave(number)
            if !wasThere { loop.remove(self, from: mode) }
            throw error
        }
        let outcome = wait(for: waiter, number, loop, mode, deadline: .after(receiveTimeout))
        if !wasThere { loop.remove(self, from: mode) }
        return try outcome.get()
    }

    private func watch(on loop: EventRunLoop, _ mode: EventRunLoop.Mode) throws(RunLoopError) {
        do {
            try loop.add(self, to: mode)
        } catch {
            // Closed since the request was entered, by another thread.
            throw error.code == .itemInvalid ? RunLoopError(.portBecameInvalid) : error
        }
    }

    private func wait(
        for waiter: LoopWaiter,
        _ number: UInt32,
        _ loop: EventRunLoop,
        _ mode: EventRunLoop.Mode,
        deadline: MonotonicInstant
    ) -> RemoteChannel.Outcome {
        var wasStopped = false
        defer { if wasStopped { loop.stop() } }
        while true {
            if let outcome = waiter.outcome { return outcome }
            let left = deadline == .distantFuture ? nil : MonotonicInstant.now.duration(to: deadline)
            switch loop.run(mode: mode, for: left, returnAfterSourceHandled: false, until: waiter.completion) {
            case .stopped: wasStopped = true
            // The source has left the mode: the port is being closed, or somebody has taken it away.
            case .finished, .timedOut:
                if channel.leave(number) != nil { return .failure(RunLoopError(.receiveTimeout)) }
                // Another thread has the outcome and is about to tell it.
                waiter.spinUntilFinished()
            case .handledSource: break
            }
        }
    }
}

/// A loop that waits for a reply in a nested run.
private final class LoopWaiter: RemoteChannel.Waiter {
    let completion = RunCompletion()
    private let loop: EventRunLoop
    private let result = Mutex<RemoteChannel.Outcome?>(nil)

    init(_ loop: EventRunLoop) { self.loop = loop }

    var outcome: RemoteChannel.Outcome? { completion.isSet ? result.withLock { $0 } : nil }

    func finish(_ outcome: RemoteChannel.Outcome) {
        result.withLock { $0 = outcome }
        completion.set()
        loop.wakeUpFromElsewhere()
    }

    /// A few instructions of another thread long.
    func spinUntilFinished() {
        while !completion.isSet { sched_yield() }
    }
}
