internal import Glibc

/// A value behind a pthread mutex: for what many threads touch at once.
///
/// Not Synchronization's `Mutex`, which on Linux is a priority-inheriting futex: its unlock hands the lock to the longest waiter, so
/// each contended turn costs a context switch. Four threads that enqueued blocks on one core came to 28 µs a block by that, and to a
/// hundredth of it by this. Items, which are seldom contended, keep `Mutex`: it needs no allocation.
///
/// Sendable: the value is only touched in `withLock`, by the one thread that holds the mutex.
@safe
final class Guarded<Value>: @unchecked Sendable {
    // By address: a mutex must not move, and a value behind a pointer needs no check of exclusive access at run time.
    private let value: UnsafeMutablePointer<Value>
    private let mutex: UnsafeMutablePointer<pthread_mutex_t>

    init(_ initial: sending Value) {
        unsafe value = .allocate(capacity: 1)
        unsafe value.initialize(to: initial)
        unsafe mutex = .allocate(capacity: 1)
        // Cannot fail: default attributes ask for nothing.
        _ = unsafe pthread_mutex_init(mutex, nil)
    }

    deinit {
        _ = unsafe pthread_mutex_destroy(mutex)
        unsafe mutex.deallocate()
        unsafe value.deinitialize(count: 1)
        unsafe value.deallocate()
    }

    /// Not to be entered again by the same thread; `body` must run no foreign code, the deinit of what a closure holds included.
    @inline(__always)
    func withLock<Result, Failure: Error>(
        _ body: (inout Value) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        unsafe pthread_mutex_lock(mutex)
        defer { unsafe pthread_mutex_unlock(mutex) }
        return try unsafe body(&value.pointee)
    }
}
