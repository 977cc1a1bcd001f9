import StallReports
import Testing

@testable import StallMonitor

@Suite("What the names on a waiting thread's stack say about its lock")
struct LockNamesTests {
    private func judge(_ kind: LockKind, _ names: [String?], hasOwner: Bool = true) -> (LockKind, Bool) {
        let frames = names.map { StallReport.Frame(address: 1, symbol: $0) }
        let (kind, keeps) = LockNames(frames).judge(kind, hasOwner: hasOwner)
        return (kind, keeps)
    }

    @Test("A mutex is believed below a mutex function, and below a condition's, which takes it again")
    func mutex() {
        #expect(judge(.recursiveMutex, [nil, "pthread_mutex_lock@@GLIBC_2.2.5", "main"]) == (.recursiveMutex, true))
        #expect(judge(.mutex, ["__lll_lock_wait", "___pthread_mutex_lock"]) == (.mutex, true))
        #expect(judge(.mutex, [nil, "pthread_cond_wait", "main"]) == (.mutex, true))
    }

    @Test("What looks like a mutex below another function is not one, and has no owner")
    func deceived() {
        #expect(judge(.mutex, ["syscall", "wait_for_change", "lock_take"]) == (.futex, false))
        #expect(judge(.mutex, [nil, "sem_wait"]) == (.semaphore, false))
        #expect(judge(.mutex, ["__lll_lock_wait_private", "malloc"]) == (.libraryLock, false))
        #expect(judge(.readWriteLock, [nil, "pthread_mutex_lock"]) == (.mutex, false))
        #expect(judge(.threadJoin, [nil, "pthread_cond_timedwait"]) == (.condition, false))
    }

    @Test("Without names on the stack, the memory decides")
    func stripped() {
        #expect(judge(.mutex, [nil, nil, nil, nil, nil]) == (.mutex, true))
        #expect(judge(.threadJoin, []) == (.threadJoin, true))
    }

    @Test("The names on the stack give a PI futex's kind; its owner is reported in any case")
    func inheriting() {
        let slow = "$s15Synchronization12_MutexHandleV9_lockSlowyys6UInt32VF"
        #expect(judge(.piFutex, ["syscall", slow]) == (.swiftMutex, true))
        #expect(judge(.piFutex, [nil, "swift_once"]) == (.swiftOnce, true))
        #expect(judge(.piFutex, [nil, "_dispatch_unfair_lock_lock_slow"]) == (.dispatchLock, true))
        #expect(judge(.piFutex, ["syscall", "main"]) == (.piFutex, true))
    }

    @Test("Without an owner the names give the kind")
    func named() {
        #expect(judge(.futex, [nil, "pthread_cond_wait"], hasOwner: false) == (.condition, false))
        #expect(
            judge(.futex, [nil, "sem_wait", "dispatch_semaphore_wait"], hasOwner: false) == (.dispatchSemaphore, false)
        )
        #expect(judge(.futex, [nil, "sem_wait", "main"], hasOwner: false) == (.semaphore, false))
        #expect(judge(.futex, ["syscall", nil, "dispatch_group_wait"], hasOwner: false) == (.dispatchGroup, false))
        #expect(judge(.futex, ["syscall", "main"], hasOwner: false) == (.futex, false))
        #expect(judge(.futex, ["syscall", "_dispatch_once_wait", "main"]) == (.dispatchOnce, true))
    }
}
