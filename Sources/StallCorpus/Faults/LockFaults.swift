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
