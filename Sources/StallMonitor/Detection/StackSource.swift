import RunLoopKit
import StackCapture
import StallDiagnosis

/// Takes the stacks of watched threads.
struct StackSource: Sendable {
    /// Nil when stacks cannot be taken, for the reason in `problem`.
    let capturer: StackCapturer?
    /// Whether to find out who holds a lock that a thread waits for.
    let followsLocks: Bool
    private let problem: String
    /// Whether a stall's other threads are captured, too.
    var capturesAllThreads = false

    /// Installs the signal's handler. Where that is refused, stalls are reported without stacks, and `tell` is called with the
    /// reason.
    init(signal: Int32, followsLocks: Bool = true, tell: (StallMonitorError) -> Void) {
        self.followsLocks = followsLocks
        do throws(CaptureError) {
            capturer = try StackCapturer(signal: signal)
            problem = ""
        } catch {
            capturer = nil
            problem = error.description
            tell(StallMonitorError(.captureUnavailable, error.description))
        }
    }

    /// The stacks of the other threads. Takes at most `time`, for which no loop is looked at.
    func otherThreads(than stalled: Int32?, within time: Duration) -> ThreadStacks? {
        guard let capturer else { return nil }
        return try? capturer.captureAll(except: stalled.map { [$0] } ?? [], within: time).get()
    }

    /// The outcome where stacks cannot be taken.
    var stackless: StackOutcome { .unavailable(problem) }

    /// The stack of the loop's thread. `raced` if the loop has moved on by the time the stack is taken.
    func stack(of loop: WatchedThing, at place: LoopPlace) -> StackOutcome {
        guard let capturer else { return stackless }
        guard let thread = loop.thread else { return .unavailable("The loop's thread is not known.") }
        let result =
            thread.stack.isEmpty
            ? capturer.capture(threadID: thread.id)
            : capturer.capture(threadID: thread.id, stack: thread.stack, since: place.since?.nanoseconds)
        guard place.isThat(of: loop.heartbeat) else { return .raced }
        switch result {
        case .success(let stack): return .captured(stack)
        case .failure(let error): return .failed(error)
        }
    }
}

extension StackSource {
    /// The stack that the loop's thread copied when it ran again, if it had no processor when its stack was asked for.
    func lateStack(of loop: WatchedThing, since: MonotonicInstant) -> CapturedStack? {
        guard let capturer, let thread = loop.thread else { return nil }
        return capturer.lateCapture(threadID: thread.id, since: since.nanoseconds)
    }
}

/// Where a loop was seen.
struct LoopPlace: Hashable, Sendable {
    var pulse: LoopHeartbeat.Pulse
    /// How many callouts had begun, for a loop that does not move. Nil for one that does.
    var callouts: UInt64?
    /// Since when it has been there, if known. A stack taken at any time since then is valid.
    var since: MonotonicInstant?

    func isThat(of heartbeat: any WatchedHeartbeat) -> Bool {
        heartbeat.pulse == pulse && callouts.map { heartbeat.calloutCount == $0 } ?? true
    }
}

extension StackSource {
    /// Where the thread of a captured stack waits. Nil if it was not asleep in a system call. The watchdog's thread.
    package func waitSite(of stack: CapturedStack, threadID: Int32?) -> WaitSite? {
        guard let call = stack.systemCall else { return nil }
        let state = threadID.flatMap { ThreadEvidence.read(threadID: $0) }?.state
        return WaitSite(call, state: state) { capturer?.readMemory(at: $0, count: $1) }
    }

    /// The owners of the lock that the loop's thread waits for, if its stack was just captured in futex(2) and the loop has not
    /// moved since.
    func lock(
        holding loop: WatchedThing,
        at place: LoopPlace,
        _ stack: StackOutcome
    ) -> LockFinding? {
        guard followsLocks, let capturer, let thread = loop.thread, let captured = stack.captured else { return nil }
        let finding = LockProbe(capturer: capturer).follow(thread.id, capturedIn: captured.systemCall)
        return place.isThat(of: loop.heartbeat) ? finding : nil
    }
}

// Workers of a pool.

extension StackSource {
    /// The stack of a worker. `raced` if it is no longer at the job by the time the stack is taken.
    func stack(of job: TaskPoolHeartbeat.RunningJob, in pool: TaskPoolHeartbeat) -> StackOutcome {
        guard let capturer else { return stackless }
        let result = capturer.capture(threadID: job.threadID)
        guard pool.runningJobs?.contains(job) == true else { return .raced }
        switch result {
        case .success(let stack): return .captured(stack)
        case .failure(let error): return .failed(error)
        }
    }

    /// The owners of the lock that a thread waits for, if its stack was just captured in futex(2).
    func lock(holding threadID: Int32, _ stack: CapturedStack) -> LockFinding? {
        guard followsLocks, let capturer else { return nil }
        return LockProbe(capturer: capturer).follow(threadID, capturedIn: stack.systemCall)
    }
}
