import Glibc
import Locking
import RunLoopKit
import StackCapture
import StallDiagnosis
import Synchronization

/// Takes the stacks of watched threads.
struct StackSource: Sendable {
    private let supply: CapturerSupply
    /// Whether to find out who holds a lock that a thread waits for.
    var followsLocks = true
    /// Whether the other threads are captured too when a loop stalls.
    var capturesAllThreads = false
    /// The thread that ends the monitor.
    let stopper = Stopper()

    /// Installs the signal's handler. If that is refused, stalls are reported without stacks, and `tell` is called with the
    /// reason.
    ///
    /// - Parameter make: Makes the capturer for the signal.
    init(
        signal: Int32,
        retryInterval: Duration = .seconds(1),
        make: @escaping @Sendable (Int32) throws(CaptureError) -> StackCapturer = CapturerSupply.make,
        tell: @escaping @Sendable (StallNotice) -> Void
    ) {
        supply = CapturerSupply(retryInterval: retryInterval, tell: tell) { () throws(CaptureError) in
            try make(signal)
        }
    }

    /// Nil if stacks cannot be taken now.
    var capturer: StackCapturer? { supply.capturer }

    /// Restores the signal's handler. No stack is taken afterwards.
    func invalidate() { supply.invalidate() }

    /// The stacks of the other threads. Takes at most `time`, during which no loop is looked at.
    func otherThreads(than stalled: Int32?, within time: Duration) -> ThreadStacks? {
        guard let capturer else { return nil }
        return try? capturer.captureAll(except: stalled.map { [$0] } ?? [], within: time).get()
    }

    /// The outcome if stacks cannot be taken.
    var stackless: StackOutcome { .unavailable(supply.problem) }

    /// The stack of the loop's thread. `raced` if the loop had moved on before the stack was taken, or had come to end the monitor.
    func stack(of loop: WatchedThing, at place: LoopPlace) -> StackOutcome {
        guard let capturer else { return stackless }
        guard let thread = loop.thread else { return .unavailable("The loop's thread is not known.") }
        let result =
            thread.stack.isEmpty
            ? capturer.capture(threadID: thread.id)
            : capturer.capture(threadID: thread.id, stack: thread.stack, since: place.since?.nanoseconds)
        return loop.heartbeat.isStill(at: place) && !stopper.isThread(thread.id) ? StackOutcome(result) : .raced
    }

    /// The stack that the loop's thread copied when it ran again, if it had no processor when its stack was requested.
    func lateStack(of loop: WatchedThing, since: MonotonicInstant) -> CapturedStack? {
        guard let capturer, let thread = loop.thread else { return nil }
        return capturer.lateCapture(threadID: thread.id, since: since.nanoseconds)
    }
}

/// Makes the capturer, and tries again if the process lacks descriptors or memory for it: a server that starts without has some later.
final class CapturerSupply: Sendable {
    private struct State: Sendable {
        var capturer: StackCapturer?
        var error: CaptureError?
        /// Nil: it is not tried again.
        var retryAt: MonotonicInstant?
    }

    private let state = ForkSafeMutex(State())
    private let retryInterval: Duration
    private let tell: @Sendable (StallNotice) -> Void
    private let make: @Sendable () throws(CaptureError) -> StackCapturer

    /// - Parameter tell: Called with the reason if there is no capturer, and when there is one after all.
    init(
        retryInterval: Duration,
        tell: @escaping @Sendable (StallNotice) -> Void,
        _ make: @escaping @Sendable () throws(CaptureError) -> StackCapturer
    ) {
        (self.retryInterval, self.tell, self.make) = (retryInterval, tell, make)
        attempt()
        if let error { tell(.fault(error)) }
    }

    @Sendable static func make(signal: Int32) throws(CaptureError) -> StackCapturer {
        try StackCapturer(signal: signal)
    }

    /// Tries again if it is time. Nil if there is still none.
    var capturer: StackCapturer? {
        let isDue = state.withLock { state in
            guard let retryAt = state.retryAt, retryAt <= .now else { return false }
            // One thread tries.
            state.retryAt = nil
            return true
        }
        if isDue, let former = error, attempt() { tell(.mended(former)) }
        return state.withLock { $0.capturer }
    }

    /// Why there is no capturer.
    var problem: String { state.withLock { $0.error.map(Self.problem) } ?? "" }

    func invalidate() {
        let capturer = state.withLock { state in
            state.retryAt = nil
            return state.capturer
        }
        capturer?.invalidate()
    }

    private var error: StallMonitorError? {
        state.withLock { $0.error.map { StallMonitorError(.captureUnavailable, Self.problem(of: $0)) } }
    }

    /// - Returns: Whether there is a capturer now.
    @discardableResult
    private func attempt() -> Bool {
        let made: Result<StackCapturer, CaptureError>
        do throws(CaptureError) { made = .success(try make()) } catch { made = .failure(error) }
        return state.withLock { state in
            switch made {
            case .success(let capturer): state = State(capturer: capturer)
            case .failure(let error):
                let isPassing = error.underlying.map([EMFILE, ENFILE, ENOMEM].contains) ?? false
                state = State(error: error, retryAt: isPassing ? .now + retryInterval : nil)
            }
            return state.capturer != nil
        }
    }

    private static func problem(of error: CaptureError) -> String {
        // The handler of anybody else would not refuse ours; it is noticed later, when it does not pass signals on.
        guard error.code == .signalInUse else { return error.description }
        return "\(error.code.name): another monitor, or a StackCapturer, of this process has the signal: "
            + "stop that one first, or set another captureSignal"
    }
}

extension StackSource {
    /// The thread that waits in `stop()`. Its stack shows that wait, and not what has stalled it.
    final class Stopper: Sendable {
        private let threadID = Atomic<Int32>(0)

        /// Called by that thread before it orders the end.
        func set() { threadID.store(StackCapturer.callingThread, ordering: .sequentiallyConsistent) }

        /// Asked after a stack was taken, because the thread may have come to its wait meanwhile.
        func isThread(_ id: Int32) -> Bool { threadID.load(ordering: .sequentiallyConsistent) == id }
    }

    /// Where the thread of a captured stack waits. Nil if it was not asleep in a system call. The watchdog's thread.
    func waitSite(of stack: CapturedStack, threadID: Int32?) -> WaitSite? {
        guard let call = stack.systemCall else { return nil }
        let state = threadID.flatMap { ThreadEvidence.read(threadID: $0) }?.state
        return WaitSite(call, state: state) { capturer?.readMemory(at: $0, count: $1) }
    }

    /// The owners of the lock that the loop's thread waits for, if its stack was just captured in such a wait and the loop has not
    /// moved since.
    func lock(awaitedBy loop: WatchedThing, at place: LoopPlace, _ stack: StackOutcome) -> LockFinding? {
        guard let thread = loop.thread, let captured = stack.captured else { return nil }
        let finding = lock(awaitedBy: thread.id, captured)
        return loop.heartbeat.isStill(at: place) ? finding : nil
    }
}

// MARK: - Workers of a pool

extension StackSource {
    /// The stack of a worker. `raced` if it had left the job before the stack was taken, or had come to end the monitor.
    func stack(of job: TaskPoolHeartbeat.RunningJob, in pool: TaskPoolHeartbeat) -> StackOutcome {
        guard let capturer else { return stackless }
        let result = capturer.capture(threadID: job.threadID)
        let isThere = pool.runningJobs?.contains(job) == true && !stopper.isThread(job.threadID)
        return isThere ? StackOutcome(result) : .raced
    }

    /// The owners of the lock that a thread waits for, if its stack was just captured in such a wait.
    func lock(awaitedBy threadID: Int32, _ stack: CapturedStack) -> LockFinding? {
        guard followsLocks, let capturer else { return nil }
        return LockProbe(capturer: capturer).follow(threadID, capturedIn: stack.systemCall)
    }
}

/// Where a loop was seen.
struct LoopPlace: Hashable, Sendable {
    var pulse: LoopHeartbeat.Pulse
    /// The number of callouts that had begun, for a loop that does not move. Nil for a loop that moves.
    var callouts: UInt64?
    /// Since when it has been there, if known. A stack taken at any time since then is valid.
    var since: MonotonicInstant?
}

extension WatchedHeartbeat {
    func isStill(at place: LoopPlace) -> Bool {
        pulse == place.pulse && place.callouts.map { calloutCount == $0 } ?? true
    }
}
