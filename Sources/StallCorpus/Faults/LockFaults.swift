import CStallCorpus
import Dispatch
import Foundation
import Glibc
import RunLoopKit
import Synchronization

// Work that waits for other threads, each in a separate function that the report must name. No two functions differ only in what
// they call: the compiler would merge the two into one.

@inline(never)
func waitForMutex(_ lock: PthreadMutex) -> Int {
    let result = unsafe pthread_mutex_lock(lock.mutex)
    lock.unlock()
    return Int(result) + 1
}

@inline(never)
func waitForReading(_ lock: PthreadReadWriteLock) -> Int {
    let result = unsafe pthread_rwlock_rdlock(lock.lock)
    lock.unlock()
    return 1 - Int(result)
}

@inline(never)
func waitForWriting(_ lock: PthreadReadWriteLock) -> Int {
    let result = unsafe pthread_rwlock_wrlock(lock.lock)
    lock.unlock()
    return Int(result) ^ 1
}

@inline(never)
func waitForCondition(_ condition: PthreadCondition) -> Int {
    unsafe pthread_mutex_lock(condition.mutex)
    while !condition.isMet.isStopped { unsafe pthread_cond_wait(condition.condition, condition.mutex) }
    return Int(unsafe pthread_mutex_unlock(condition.mutex)) + 1
}

@inline(never)
func waitForSwiftMutex(_ lock: SharedCount) -> Int {
    lock.value.withLock { visits in
        visits += 1
        return visits
    }
}

@inline(never)
func waitForQueue(_ queue: DispatchQueue) -> Int {
    let value = queue.sync { 2 }
    return value + 1
}

@inline(never)
func waitForLoop(_ loop: EventRunLoop) -> Int {
    let value = try? loop.performAndWait { 4 }
    return (value ?? 0) + 2
}

@inline(never)
func waitForWorkersEnd(_ worker: WorkerThread) -> Int {
    let isOver = worker.join()
    return isOver ? 5 : 6
}

@inline(never)
func waitForSemaphore(_ semaphore: DispatchSemaphore) -> Int {
    semaphore.wait()
    return 1
}

@inline(never)
func waitForGroup(_ group: DispatchGroup) -> Int {
    group.wait()
    return 1
}

@inline(never)
func waitForFoundationLock(_ lock: NSLock) -> Int {
    lock.lock()
    lock.unlock()
    return 1
}

@inline(never)
func waitForFoundationRecursiveLock(_ lock: NSRecursiveLock) -> Int {
    lock.lock()
    lock.lock()
    lock.unlock()
    lock.unlock()
    return 1
}

@inline(never)
func joinThread(_ thread: JoinableThread) -> Int {
    let result = pthread_join(thread.thread, nil)
    return Int(result) + 1
}

/// Takes the second lock while it holds the first.
@inline(never)
func lockBoth(_ first: PthreadMutex, _ second: PthreadMutex, between: () -> Void) -> Int {
    first.lock()
    between()
    let result = unsafe pthread_mutex_lock(second.mutex)
    second.unlock()
    first.unlock()
    return Int(result) + 1
}

@inline(never)
func lockBothKinds(_ first: SharedCount, _ second: PthreadMutex, between: () -> Void) -> Int {
    first.value.withLock { visits in
        between()
        visits += Int(unsafe pthread_mutex_lock(second.mutex))
        second.unlock()
        return visits
    }
}

@inline(never)
func lockTwice(_ lock: PthreadMutex) -> Int {
    lock.lock()
    let result = unsafe pthread_mutex_lock(lock.mutex)
    return Int(result) + 1
}

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
