import CMonitorShims
import CRunLoopShims
import Glibc
import RunLoopKit
import Synchronization

/// A named thread of the monitor that blocks all signals.
///
/// The thread is detached, and signals its end itself. The thread sanitizer does not know the calls that join a thread with a
/// deadline: it ends a program in which a later thread gets the handle of a thread that was joined by one of them.
package struct MonitorThread: Sendable {
    private let life = ThreadLife()

    /// Starts a thread. `name` is shown by `ps -L` and in captured stacks; at most 15 bytes.
    ///
    /// - Parameter loss: What is lost without the thread. By default it is the whole monitor.
    /// - Throws: ``StallMonitorError`` with that code if the system cannot start a thread (EAGAIN).
    package init(
        name: String,
        orElse loss: StallMonitorError.Code = .threadNotStarted,
        _ body: @escaping @Sendable () -> Void
    ) throws(StallMonitorError) {
        let box = unsafe Unmanaged.passRetained(ThreadBody(body, life))
        let error = unsafe monitor_thread_start(
            name,
            { context in unsafe Unmanaged<ThreadBody>.fromOpaque(context).takeRetainedValue().run() },
            box.toOpaque()
        )
        guard error == 0 else {
            unsafe box.release()
            let remedy = "No thread could be started for that. Raise the limit of threads (ulimit -u, pids.max)."
            throw StallMonitorError(loss, errno: error, loss == .threadNotStarted ? nil : remedy)
        }
    }

    /// Waits until the thread has returned from its body and released it, as ``TickSemaphore/wait(within:)`` does. Returns whether
    /// it has. Any thread, and any number of them. On the thread itself it returns false at once: a handler may stop its own
    /// monitor, although it must not.
    func join(within patience: inout Duration) -> Bool {
        guard life.threadID.load(ordering: .relaxed) != run_loop_own_tid(), life.ended.wait(within: &patience) else {
            return false
        }
        life.ended.signal()
        return true
    }
}

private final class ThreadLife: Sendable {
    /// 0 before the body begins and after it has returned.
    let threadID = Atomic<Int32>(0)
    /// Signalled once the body has returned. A caller that has taken the signal signals it again, for the next one.
    let ended = TickSemaphore()
}

private final class ThreadBody {
    private var body: (@Sendable () -> Void)?
    private let life: ThreadLife

    init(_ body: @escaping @Sendable () -> Void, _ life: ThreadLife) { (self.body, self.life) = (body, life) }

    func run() {
        life.threadID.store(run_loop_own_tid(), ordering: .relaxed)
        body?()
        // What only the thread uses is released before others hear of its end.
        body = nil
        life.threadID.store(0, ordering: .relaxed)
        life.ended.signal()
    }
}

/// The semaphore on which a monitor thread waits. `signal` may be called from any thread, and is async-signal-safe (sem_post(3)).
@safe final class TickSemaphore: Sendable {
    // Immutable after init, and a semaphore may be used by several threads.
    nonisolated(unsafe) private let semaphore: UnsafeMutablePointer<sem_t>

    init() {
        guard let made = unsafe monitor_semaphore_create() else {
            fatalError("out of memory for 32 bytes: no part of the process can go on")
        }
        unsafe semaphore = made
    }

    deinit {
        unsafe monitor_semaphore_destroy(semaphore)
    }

    func signal() {
        unsafe sem_post(semaphore)
    }

    /// Parks the calling thread until a signal. A parked thread costs nothing.
    func wait() {
        unsafe monitor_semaphore_wait(semaphore)
    }

    /// Waits until a signal or the deadline, if there is one. Returns whether there was a signal.
    func wait(until deadline: MonotonicInstant?) -> Bool {
        guard let deadline else {
            wait()
            return true
        }
        return unsafe monitor_semaphore_wait_until(semaphore, deadline.nanoseconds)
    }

    /// Waits until a signal, for this long at most, and takes the time from `patience`. Returns whether there was a signal.
    ///
    /// A stop of the whole process (SIGSTOP, a freezer) takes 100 ms of it at most: who would give the signal was stopped, too. So long a control
    /// group that has used up its quota has no processor, which counts.
    func wait(within patience: inout Duration) -> Bool {
        repeat {
            let (start, part) = (MonotonicInstant.now, min(patience, .milliseconds(20)))
            let isSignalled = wait(until: start + part)
            // No more than has passed: a caller may wait for hundreds of signals, of which each comes at once.
            patience = max(.zero, patience - min(.now - start, .milliseconds(100)))
            if isSignalled { return true }
        } while patience > .zero
        return false
    }
}
