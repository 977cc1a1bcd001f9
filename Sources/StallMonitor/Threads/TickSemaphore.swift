import CMonitorShims
import Glibc
import RunLoopKit

/// The semaphore a monitor thread waits on. `signal` may be called from any thread, and is async-signal-safe (sem_post(3)).
@safe final class TickSemaphore: Sendable {
    // Immutable after init, and a semaphore is made to be shared between threads.
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

    /// Parks the calling thread until a signal, at no cost while it lasts.
    func wait() {
        unsafe monitor_semaphore_wait(semaphore)
    }

    /// Waits until a signal or the deadline. Returns whether there was a signal.
    func wait(until deadline: MonotonicInstant) -> Bool {
        unsafe monitor_semaphore_wait_until(semaphore, deadline.nanoseconds)
    }
}
