import CStackCapture
import Glibc
import Synchronization

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
