import CStackCapture
public import Glibc
import Synchronization

/// Takes the stack of any other thread of this process, blocked or running, without help from that thread and without harm to it.
///
/// A thread that sleeps in the kernel is copied from outside and gets no signal, so no sleep or timed wait is cut short. A thread
/// that runs gets a signal and copies its own stack in the handler. Either way the thread is let go before the copy is unwound.
///
/// One capturer per process is the usual thing, made before the first stall: it takes about 1.7 MiB and a signal number.
public final class StackCapturer: Sendable {
    /// Serialises captures: buffers and the signal's request are one of each.
    let session: Mutex<Session>
    let deadline: Duration
    /// A fork's child inherits the lock as it was, with nobody there to release it.
    let process = getpid()

    /// Allocates everything and installs the handler. A handler that the application installed before goes on getting the signals
    /// that are not the capturer's, as before. One that it installs later replaces the capturer's, and captures of running threads
    /// then fail, until it passes a signal on or is removed. Where the application ignores the signal, the handler is installed for the
    /// time of a capture only, so that others' signals go on interrupting nothing.
    ///
    /// The application must not give the signal its default action while a capturer is in use: a capture's signal that is on its way
    /// would end the process. `invalidate()` sees to that.
    ///
    /// A fork's child makes a capturer of its own; this one does nothing there.
    ///
    /// - Parameters:
    ///   - signal: Swift's and libdispatch's threads block the real-time signals, but not SIGPROF. Like any pending signal below the
    ///     real-time ones, the capturer's swallows another one of its number that is sent to the same thread before it has arrived: do
    ///     not choose one whose every arrival counts.
    ///   - deadline: the longest that one capture waits for its target. The capture of a healthy one takes under a millisecond.
    /// - Throws: `signalInUse` while another capturer has the signal, `unusableSignal`, `memoryUnreadable` where neither
    ///   `process_vm_readv` nor `/proc/self/mem` is allowed, `systemCallFailed` without memory.
    public convenience init(signal: Int32 = SIGPROF, deadline: Duration = .milliseconds(20)) throws(CaptureError) {
        try self.init(signal: signal, deadline: deadline, readsThroughFile: false)
    }

    /// - Parameter readsThroughFile: as where a sandbox refuses `process_vm_readv`.
    init(signal: Int32, deadline: Duration, readsThroughFile: Bool) throws(CaptureError) {
        self.deadline = deadline
        session = Mutex(try Session(signal: signal, readsThroughFile: readsThroughFile))
    }

    deinit {
        invalidate()
    }

    /// Takes the stack of a thread of this process. Callable from any thread but the target; one caller at a time, others wait.
    ///
    /// Never faults, never takes a lock that the target may hold, allocates nothing until the target has been let go, and does not
    /// wait for the target beyond the deadline.
    ///
    /// - Parameters:
    ///   - threadID: the kernel's number, as `gettid` gives it.
    ///   - stack: the thread's stack, lowest address to one behind the highest. Stale bounds make the capture fail, nothing worse.
    ///   - since: for a thread that may be kept from the processors for longer than the deadline: the earliest moment, of CLOCK_MONOTONIC in
    ///     nanoseconds, from which a late copy will do. Where the signal does not arrive in time (`notDelivered`) the thread then copies its
    ///     stack all the same when it comes to run. If its next capture fails so again, it gives that copy, with `copiedAt`, unless
    ///     something else was done with the capturer meanwhile.
    public func capture(
        threadID: Int32,
        stack: Range<UInt>,
        since: UInt64? = nil
    ) -> Result<CapturedStack, CaptureError> {
        guard getpid() == process else { return .failure(CaptureError(.forked)) }
        return session.withLock { session in
            session.capture(Target(threadID: threadID, stack: stack), within: deadline, since: since)
        }
    }

    /// What the thread has copied since its latest ``capture(threadID:stack:since:)`` failed; nil if nothing. From now on it is not asked to.
    public func lateCapture(threadID: Int32, since: UInt64) -> CapturedStack? {
        guard getpid() == process else { return nil }
        return session.withLock { $0.lateCapture(of: threadID, since: since) }
    }

    /// Takes the stacks of all threads of this process but the calling one, one after another, and merges equal ones. Their bounds are
    /// found in `/proc/self/maps`, so no thread has to be known beforehand. 500 sleeping threads take a few hundredths of a second.
    ///
    /// Nothing is allocated until all stacks are safe: any of the threads may hold malloc's lock. Sleeping threads come first and
    /// notice nothing; running ones get a signal each, and have 10 ms to answer.
    ///
    /// - Parameters:
    ///   - excluded: threads to leave out, the caller's own kind for example.
    ///   - time: for all of it. What is not taken by then is among the missing, with a reason.
    public func captureAll(
        except excluded: Set<Int32> = [],
        within time: Duration = .milliseconds(200)
    ) -> Result<ThreadStacks, CaptureError> {
        guard getpid() == process else { return .failure(CaptureError(.forked)) }
        return session.withLock { $0.captureAll(except: excluded, within: time) }
    }

    /// Reads so many bytes of this process's memory, be it mapped or not: what a captured thread's registers point at. Nil if not all of
    /// them can be read. Never faults. Any thread; one caller at a time, others wait. Allocates: not while a thread is held.
    public func readMemory(at address: UInt, count: Int) -> [UInt8]? {
        guard getpid() == process else { return nil }
        return session.withLock { $0.readMemory(at: address, count: count) }
    }

    /// Puts the previous signal handler back, if the capturer's is still the one installed. Captures then fail with `invalidated`.
    /// What a late signal could touch stays allocated, and is used again by the next capturer with this signal.
    public func invalidate() {
        guard getpid() == process else { return }
        session.withLock { $0.close() }
    }

    /// What happened since a capturer with this signal was first made. All zero in a fork's child.
    public var counters: CaptureCounters {
        guard getpid() == process else { return .zero }
        return session.withLock { $0.counters }
    }
}

/// Counts that only grow, over all capturers with the same signal in this process.
public struct CaptureCounters: Sendable, Hashable {
    /// Signals sent to running threads.
    public var signalsSent: UInt64
    /// Signals that arrived after their capture had given up, and were ignored.
    public var lateSignals: UInt64
    /// Signals that were not the capturer's, passed on to the handler installed before.
    public var signalsPassedOn: UInt64
    /// System calls that returned EINTR because their thread entered them just before the signal arrived.
    public var callsCutShort: UInt64

    static let zero = CaptureCounters(signalsSent: 0, lateSignals: 0, signalsPassedOn: 0, callsCutShort: 0)
}

extension StackCapturer {
    /// Takes the stack of a thread of which only the number is known: its bounds are found in `/proc/self/maps`. Otherwise like
    /// ``capture(threadID:stack:)``. A tenth of a millisecond more, in a process with many mappings a few.
    public func capture(threadID: Int32) -> Result<CapturedStack, CaptureError> {
        guard getpid() == process else { return .failure(CaptureError(.forked)) }
        return session.withLock { $0.capture(threadID: threadID, within: deadline) }
    }

    /// Copies memory of this process that may change, or be unmapped, at any time: a lock that other threads use. By a system call,
    /// so it never faults. Any thread.
    ///
    /// - Parameter count: of 32-bit words. Each is whole; those that other threads write meanwhile may not fit each other.
    /// - Returns: nil when not all of it can be read, or captures have ended.
    public func words(at address: UInt, count: Int) -> [UInt32]? {
        guard getpid() == process else { return nil }
        return session.withLock { $0.words(at: address, count: count) }
    }

    /// The calling thread's number, as `gettid` gives it.
    public static var callingThread: Int32 { stackcap_own_thread() }

    /// Looks where a thread of this process is, from `/proc/self/task/TID`. Any thread; four to six system calls, no signal.
    ///
    /// - Returns: nil when there is no such thread, or /proc does not say.
    public static func sighting(ofThread threadID: Int32) -> ThreadSighting? {
        var look = stackcap_look()
        guard unsafe stackcap_look_at(threadID, &look).status == STACKCAP_OK else { return nil }
        return ThreadSighting(look)
    }
}

/// Where a thread is at one moment: proc(5), `/proc/PID/task/TID/syscall` and `schedstat`. Two that are equal show a thread that slept
/// on in between.
public struct ThreadSighting: Sendable, Hashable {
    /// The system call that it sleeps in. Nil for one that runs, and for one that sleeps in a page fault.
    public var systemCall: SystemCall?
    private let place: [UInt64]
    private let schedule: [UInt64]

    init(_ look: stackcap_look) {
        systemCall = SystemCall(look)
        place = [UInt64(look.state.rawValue), look.stack_pointer, look.program_counter]
        schedule = [look.schedule.0, look.schedule.1, look.schedule.2]
    }

    /// Whether the thread has slept in the same call ever since an earlier sighting. False when the kernel does not count time slices.
    public func sleepsOn(since earlier: ThreadSighting) -> Bool {
        systemCall != nil && schedule.last != 0 && self == earlier
    }
}
