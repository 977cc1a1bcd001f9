import Glibc

/// A value and the lock that guards it, for what threads of the server's lock, too.
///
/// In the place of Synchronization's `Mutex`, which goes by a thread number that the thread has cached: after fork, the child's
/// thread goes by its parent's, and the first contention ends the process. This one is pthread_mutex_init(3)'s plain mutex, which
/// does not know threads. It must not be locked again by its holder.
@safe final class ForkSafeMutex<Value>: @unchecked Sendable {
    // The value is touched under the lock only; the lock is made to be shared, and stays where it is.
    private var value: Value
    private let lock: UnsafeMutablePointer<pthread_mutex_t>

    init(_ value: sending Value) {
        self.value = value
        unsafe lock = .allocate(capacity: 1)
        unsafe lock.initialize(to: pthread_mutex_t())
        unsafe pthread_mutex_init(lock, nil)
    }

    deinit {
        unsafe pthread_mutex_destroy(lock)
        unsafe lock.deallocate()
    }

    func withLock<Result, Failure: Error>(
        _ body: (inout sending Value) throws(Failure) -> sending Result
    ) throws(Failure) -> sending Result {
        unsafe pthread_mutex_lock(lock)
        defer { unsafe pthread_mutex_unlock(lock) }
        return try body(&value)
    }

    /// Nil if another thread holds the lock, be it for ever.
    func withLockIfAvailable<Result, Failure: Error>(
        _ body: (inout sending Value) throws(Failure) -> sending Result
    ) throws(Failure) -> sending Result? {
        guard unsafe pthread_mutex_trylock(lock) == 0 else { return nil }
        defer { unsafe pthread_mutex_unlock(lock) }
        return try body(&value)
    }
}
