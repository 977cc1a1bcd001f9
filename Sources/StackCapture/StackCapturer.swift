import CStackCapture
public import Glibc
import Synchronization

/// Captures the stack of any other thread of this process, blocked or running, without help from that thread and without harm
/// to it.
///
/// A thread that sleeps in the kernel is copied from outside and gets no signal, so no sleep or timed wait is cut short. A
/// thread that runs gets a signal and copies its own stack in the handler. In both cases the thread continues before the copy
/// is unwound.
///
/// Normally there is one capturer per process, made before the first stall: it takes about 1.9 MiB and a signal number.
public final class StackCapturer: Sendable {
    /// Serialises captures: there is one set of buffers and one signal request.
    let session: Mutex<Session>
    let deadline: Duration
    /// A forked child inherits the lock in its state at the fork, and no thread would release it there.
    let process = getpid()

    /// Allocates everything and installs the handler. A handler that the application installed before still gets the signals
    /// that are not the capturer's. A handler that it installs later replaces the capturer's; captures of running threads then
    /// fail until that handler forwards a signal or is removed. If the application ignores the signal, the handler is installed
    /// only during a capture, so that other senders' signals still interrupt nothing.
    ///
    /// The application must not set the signal's default action while a capturer is in use: a capture's pending signal would
    /// then end the process. `invalidate()` prevents that.
    ///
    /// A forked child makes its own capturer; this one does nothing there.
    ///
    /// - Parameters:
    ///   - signal: Swift's and libdispatch's threads block the real-time signals, but not SIGPROF. Like any pending signal
    ///     below the real-time ones, the capturer's signal absorbs another one of its number that is sent to the same thread
    ///     before it has arrived: do not choose a signal whose every arrival counts.
    ///   - deadline: The longest time that one capture waits for its target. Capturing a healthy thread takes under a
    ///     millisecond.
    /// - Throws: `signalInUse` while another capturer has the signal, `unusableSignal`, `memoryUnreadable` if neither
    ///   `process_vm_readv` nor `/proc/self/mem` is allowed, `systemCallFailed` without memory.
    public convenience init(signal: Int32 = SIGPROF, deadline: Duration = .milliseconds(20)) throws(CaptureError) {
        try self.init(signal: signal, deadline: deadline, readsThroughFile: false)
    }

    /// - Parameter readsThroughFile: Reads memory as if a sandbox refused `process_vm_readv`.
    init(signal: Int32, deadline: Duration, readsThroughFile: Bool) throws(CaptureError) {
        self.deadline = deadline
        session = Mutex(try Session(signal: signal, readsThroughFile: readsThroughFile))
    }

    deinit {
        invalidate()
    }

    /// Captures the stack of a thread of this process. Callable from any thread but the target; callers are served one at a
    /// time, the others wait.
    ///
    /// Never faults, never takes a lock that the target may hold, allocates nothing until the target has been released, and
    /// does not wait for the target beyond the deadline.
    ///
    /// - Parameters:
    ///   - threadID: The kernel's thread id, as returned by `gettid`.
    ///   - stack: The thread's stack, from the lowest address to one past the highest. With stale bounds the capture fails, and
    ///     nothing worse happens.
    ///   - since: For a thread that may get no processor for longer than the deadline: the earliest time, on CLOCK_MONOTONIC in
    ///     nanoseconds, from which a late copy is accepted. If the signal does not arrive in time (`notDelivered`), the thread
    ///     still copies its stack when it runs. If its next capture fails in the same way, that capture returns this copy, with
    ///     `copiedAt`, unless the capturer was used for something else in between.
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

    /// The copy that the thread has made since its latest ``capture(threadID:stack:since:)`` failed; nil if there is none. This
    /// ends the request for a copy.
    public func lateCapture(threadID: Int32, since: UInt64) -> CapturedStack? {
        guard getpid() == process else { return nil }
        return session.withLock { $0.lateCapture(of: threadID, since: since) }
    }

    /// Captures the stacks of all threads of this process except the calling one, one after another, and merges equal ones.
    /// Their bounds are read from `/proc/self/maps`, so no thread has to be known beforehand. 500 sleeping threads take a few
    /// hundredths of a second.
    ///
    /// Nothing is allocated until all stacks are copied: any of the threads may hold malloc's lock. Sleeping threads come first
    /// and are not affected; running ones get a signal each, and each has its share of the remaining time to answer, at least 10 ms.
    ///
    /// - Parameters:
    ///   - excluded: Threads to leave out, for example the caller's own kind.
    ///   - time: The limit for the whole call. A thread not captured by then is among the missing, with a reason.
    public func captureAll(
        except excluded: Set<Int32> = [],
        within time: Duration = .milliseconds(200)
    ) -> Result<ThreadStacks, CaptureError> {
        guard getpid() == process else { return .failure(CaptureError(.forked)) }
        return session.withLock { $0.captureAll(except: excluded, within: time) }
    }

    /// Reads `count` bytes of this process's memory, whether mapped or not, for example what a captured thread's registers
    /// point at. Nil if not all of them can be read. Never faults. Any thread; callers are served one at a time. Allocates: do
    /// not call it while a thread is held.
    public func readMemory(at address: UInt, count: Int) -> [UInt8]? {
        guard getpid() == process else { return nil }
        return session.withLock { $0.read(UInt8.self, at: address, count: count) }
    }

    /// Restores the previous signal handler, if the capturer's is still the one installed. Captures then fail with
    /// `invalidated`. Memory that a late signal could access stays allocated, and is reused by the next capturer with this
    /// signal.
    public func invalidate() {
        guard getpid() == process else { return }
        session.withLock { $0.close() }
    }

    /// Counts since a capturer with this signal was first made. All zero in a forked child.
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
    /// Signals that were not the capturer's, forwarded to the handler installed before.
    public var signalsPassedOn: UInt64
    /// System calls that returned EINTR because their thread entered them just before the signal arrived.
    public var callsCutShort: UInt64

    static let zero = CaptureCounters(signalsSent: 0, lateSignals: 0, signalsPassedOn: 0, callsCutShort: 0)
}

extension StackCapturer {
    /// Captures the stack of a thread of which only the id is known: its bounds are read from `/proc/self/maps`. Otherwise like
    /// ``capture(threadID:stack:)``. Takes 0.1 ms longer, and a few milliseconds in a process with many mappings.
    public func capture(threadID: Int32) -> Result<CapturedStack, CaptureError> {
        guard getpid() == process else { return .failure(CaptureError(.forked)) }
        return session.withLock { $0.capture(threadID: threadID, within: deadline) }
    }

    /// Copies memory of this process that may change, or be unmapped, at any time, such as a lock that other threads use. It
    /// uses a system call, so it never faults. Any thread.
    ///
    /// - Parameter count: The number of 32-bit words. Each word is consistent; words that other threads write in the meantime
    ///   may not match.
    /// - Returns: Nil if not all of it can be read, or the capturer was invalidated.
    public func words(at address: UInt, count: Int) -> [UInt32]? {
        guard getpid() == process else { return nil }
        return session.withLock { $0.read(UInt32.self, at: address, count: count) }
    }

    /// The calling thread's id, as returned by `gettid`.
    public static var callingThread: Int32 { stackcap_own_thread() }

    /// Samples where a thread of this process is, from `/proc/self/task/TID`. Any thread; four to six system calls, no signal.
    ///
    /// - Returns: Nil if there is no such thread, or it cannot be read from /proc.
    public static func sighting(ofThread threadID: Int32) -> ThreadSighting? {
        var look = stackcap_look()
        guard unsafe stackcap_look_at(threadID, &look).status == STACKCAP_OK else { return nil }
        return ThreadSighting(look)
    }
}

/// Where a thread is at one moment: proc(5), `/proc/PID/task/TID/syscall` and `schedstat`. If two sightings are equal, the
/// thread slept throughout the time between them.
public struct ThreadSighting: Sendable, Hashable {
    /// The system call in which it sleeps. Nil for a running thread, and for one that sleeps in a page fault.
    public var systemCall: SystemCall?
    private let place: [UInt64]
    private let schedule: [UInt64]

    init(_ look: stackcap_look) {
        systemCall = SystemCall(look)
        place = [UInt64(look.state.rawValue), look.stack_pointer, look.program_counter]
        schedule = [look.schedule.0, look.schedule.1, look.schedule.2]
    }

    /// Whether the thread has slept in the same call ever since an earlier sighting. False if the kernel does not count time
    /// slices.
    public func sleepsOn(since earlier: ThreadSighting) -> Bool {
        systemCall != nil && schedule.last != 0 && self == earlier
    }
}
