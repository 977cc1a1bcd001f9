import CStallCorpus
import Glibc
import RunLoopKit
import Synchronization

// The C library's locks at fixed addresses, as in a C library that a server uses. They live as long as the process. The stalled
// code calls the C library directly: another function of ours in between would be the innermost one, and would rightly be blamed.

/// A pthread_mutex_t of the given kind.
@safe final class PthreadMutex: Sendable {
    /// Any thread may call the functions below for the same mutex: that is the purpose of a mutex (pthread_mutex_lock(3)).
    nonisolated(unsafe) let mutex = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)

    enum Kind: Sendable { case normal, recursive, errorChecking, inheriting }

    init(_ kind: Kind = .normal) {
        var attributes = pthread_mutexattr_t()
        unsafe pthread_mutexattr_init(&attributes)
        switch kind {
        case .normal: break
        case .recursive: unsafe pthread_mutexattr_settype(&attributes, Int32(PTHREAD_MUTEX_RECURSIVE))
        case .errorChecking: unsafe pthread_mutexattr_settype(&attributes, Int32(PTHREAD_MUTEX_ERRORCHECK))
        case .inheriting: unsafe pthread_mutexattr_setprotocol(&attributes, Int32(PTHREAD_PRIO_INHERIT))
        }
        unsafe pthread_mutex_init(mutex, &attributes)
    }

    func lock() { unsafe pthread_mutex_lock(mutex) }

    func unlock() { unsafe pthread_mutex_unlock(mutex) }

    /// Waits for `time` at most. Returns whether the lock was acquired.
    func lock(within time: Duration) -> Bool {
        unsafe corpus_lock_until(mutex, MonotonicInstant.now.advanced(by: time).nanoseconds) == 0
    }
}

/// A pthread_rwlock_t.
@safe final class PthreadReadWriteLock: Sendable {
    /// Any thread, as for the mutex (pthread_rwlock_rdlock(3p)).
    nonisolated(unsafe) let lock = UnsafeMutablePointer<pthread_rwlock_t>.allocate(capacity: 1)

    init() { unsafe pthread_rwlock_init(lock, nil) }

    func lockForReading() { unsafe pthread_rwlock_rdlock(lock) }

    func lockForWriting() { unsafe pthread_rwlock_wrlock(lock) }

    func unlock() { unsafe pthread_rwlock_unlock(lock) }
}

/// A condition variable, its mutex, and the condition itself.
@safe final class PthreadCondition: Sendable {
    /// Any thread, as for the mutex, which also guards `isMet`.
    nonisolated(unsafe) let condition = UnsafeMutablePointer<pthread_cond_t>.allocate(capacity: 1)
    nonisolated(unsafe) let mutex = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)
    let isMet = StopFlag()

    init() {
        unsafe pthread_cond_init(condition, nil)
        unsafe pthread_mutex_init(mutex, nil)
    }

    func meet() {
        unsafe pthread_mutex_lock(mutex)
        isMet.stop()
        unsafe pthread_cond_broadcast(condition)
        unsafe pthread_mutex_unlock(mutex)
    }
}

/// A number protected by Swift's `Mutex`.
final class SharedCount: Sendable {
    let value = Mutex(0)
}
