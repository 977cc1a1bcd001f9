import RunLoopKit
import StackCapture
import StallDiagnosis
import Synchronization

/// Takes the stacks of watched threads.
struct StackSource: Sendable {
    /// Nil if stacks cannot be taken, for the reason in `problem`.
    let capturer: StackCapturer?
    /// Whether to find out who holds a lock that a thread waits for.
    var followsLocks = true
    private let problem: String
    /// Whether the other threads are captured too when a loop stalls.
    var capturesAllThreads = false
    /// The thread that ends the monitor.
    let stopper = Stopper()

    /// Installs the signal's handler. If that is refused, stalls are reported without stacks, and `tell` is called with the
    /// reason.
    init(signal: Int32, tell: (StallMonitorError) -> Void) {
        do throws(CaptureError) {
            capturer = try StackCapturer(signal: signal)
            problem = ""
        } catch {
            capturer = nil
            problem = Self.problem(of: error)
            tell(StallMonitorError(.captureUnavailable, problem))
        }
    }

    private static func problem(of error: CaptureError) -> String {
        // The handler of anybody else would not refuse ours; it is noticed later, when it does not pass signals on.
        guard error.code == .signalInUse else { return error.description }
        return "\(error.code.name): another monitor, or a StackCapturer, of this process has the signal: "
            + "stop that one first, or set another captureSignal"
    }

    /// The stacks of the other threads. Takes at most `time`, during which no loop is looked at.
    func otherThreads(than stalled: Int32?, within time: Duration) -> ThreadStacks? {
        guard let capturer else { return nil }
        return try? capturer.captureAll(except: stalled.map { [$0] } ?? [], within: time).get()
    }

    /// The outcome if stacks cannot be taken.
    var stackless: StackOutcome { .unavailable(problem) }

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
