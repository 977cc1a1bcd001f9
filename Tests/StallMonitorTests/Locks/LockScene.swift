import CLocks
import Dispatch
import Glibc
import StackCapture
import StallReports
import Synchronization
import TestSupport
import Testing

/// A loop that waits for something, and a thread that holds it, in a function that must be found on its stack.
struct LockScene: Sendable, CustomTestStringConvertible {
    var testDescription: String
    var kind: LockKind
    var evidence: OwnerEvidence?
    /// What must be on the owner's stack.
    var holdsIn = "lock_hold_at_gate"
    /// Takes the lock on a new thread. Returns that thread's id, or 0 if nobody has the lock.
    var hold: @Sendable (_ gate: Int32) -> Int32
    var wait: @Sendable () -> Void
    /// Signals the threads that wait for a signal.
    var finish: @Sendable () -> Void = {}
    var address: UInt64?
}

extension LockScene {
    private static func made(_ name: String, _ make: lock_make, _ kind: LockKind, _ evidence: OwnerEvidence)
        -> LockScene
    {
        let lock = lock_create(make)
        return LockScene(
            testDescription: name,
            kind: kind,
            evidence: evidence,
            hold: { gate in unsafe lock_start_holder(lock, gate, "lock-holder") },
            wait: {
                lock_take(lock)
                lock_release(lock)
            },
            address: make == LOCK_STREAM ? nil : lock_address(lock)
        )
    }

    static let pthreads: [LockScene] = [
        made("mutex", LOCK_NORMAL, .mutex, .mutexOwner),
        made("recursive mutex", LOCK_RECURSIVE, .recursiveMutex, .mutexOwner),
        made("error-checking mutex", LOCK_CHECKING, .errorCheckingMutex, .mutexOwner),
        made("adaptive mutex", LOCK_ADAPTIVE, .adaptiveMutex, .mutexOwner),
        made("robust mutex", LOCK_ROBUST, .robustMutex, .lockWord),
        made("PI mutex", LOCK_INHERITING, .piMutex, .lockWord),
        made("shared mutex", LOCK_SHARED, .mutex, .mutexOwner),
        made("rwlock, to write", LOCK_RW, .readWriteLock, .writer),
        made("stream", LOCK_STREAM, .stream, .streamOwner),
    ]

    static let readingWaiter: LockScene = {
        let lock = lock_create(LOCK_RW)
        return LockScene(
            testDescription: "rwlock, to read",
            kind: .readWriteLock,
            evidence: .writer,
            hold: { unsafe lock_start_holder(lock, $0, "lock-holder") },
            wait: {
                lock_take_to_read(lock)
                lock_release(lock)
            },
            address: lock_address(lock)
        )
    }()

    static let join = LockScene(
        testDescription: "join",
        kind: .threadJoin,
        evidence: .joinedThread,
        hold: { unsafe lock_start_joined($0, "lock-holder") },
        wait: { lock_join_last() }
    )

    /// Starts a thread that runs `body`; it must call its argument when it has the lock.
    static func holder(_ body: @escaping @Sendable (_ ready: () -> Void) -> Void) -> Int32 {
        let number = Atomic<Int32>(0)
        let ready = DispatchSemaphore(value: 0)
        let box = NumberBox()
        startThread {
            unsafe box.number.store(lock_name_thread("lock-holder"), ordering: .relaxed)
            body { ready.signal() }
        }
        ready.wait()
        number.store(box.number.load(ordering: .relaxed), ordering: .relaxed)
        return number.load(ordering: .relaxed)
    }

    static let swiftMutex: LockScene = {
        let box = MutexBox()
        return LockScene(
            testDescription: "Swift Mutex",
            kind: .swiftMutex,
            evidence: .lockWord,
            holdsIn: "holdSwiftMutex",
            hold: { gate in holder { ready in _ = holdSwiftMutex(box, gate, ready) } },
            wait: { box.mutex.withLock { $0 += 1 } }
        )
    }()

    static let swiftOnce = LockScene(
        testDescription: "Swift global",
        kind: .swiftOnce,
        evidence: .lockWord,
        holdsIn: "initializeSlowly",
        hold: { gate in
            SlowGlobal.gate.store(gate, ordering: .relaxed)
            let number = SlowGlobal.current.wrappingAdd(1, ordering: .relaxed).newValue
            let owner = holder { ready in
                ready()
                _ = SlowGlobal.value
            }
            waitUntil { SlowGlobal.begun.load(ordering: .relaxed) >= min(number, SlowGlobal.count) }
            return owner
        },
        wait: { _ = SlowGlobal.value }
    )

    static let dispatchOnce = LockScene(
        testDescription: "dispatch_once",
        kind: .dispatchOnce,
        evidence: .lockWord,
        holdsIn: "lock_initialize",
        hold: { gate in
            onceGate.store(gate, ordering: .relaxed)
            let owner = holder { ready in
                ready()
                lock_run_dispatch_once(gate)
            }
            waitUntil { lock_once_has_begun(gate) }
            return owner
        },
        wait: { lock_run_dispatch_once(onceGate.load(ordering: .relaxed)) }
    )

    static func onQueue(_ name: String, _ taken: DispatchQueue, _ waited: DispatchQueue) -> LockScene {
        LockScene(
            testDescription: name,
            kind: .dispatchQueue,
            evidence: .queueState,
            holdsIn: "holdQueue",
            hold: { gate in holder { ready in taken.sync(flags: .barrier) { _ = holdQueue(gate, ready) } } },
            wait: { waited.sync {} }
        )
    }

    static let queues: [LockScene] = {
        let (serial, target) = (DispatchQueue(label: "test.serial"), DispatchQueue(label: "test.target"))
        let concurrent = DispatchQueue(label: "test.concurrent", attributes: .concurrent)
        return [
            onQueue("serial queue", serial, serial),
            onQueue("target queue", target, DispatchQueue(label: "test.outer", target: target)),
            onQueue("concurrent queue with a barrier", concurrent, concurrent),
        ]
    }()

    /// Those without an owner, or with an unknown one.
    static let ownerless: [LockScene] = {
        let (semaphore, condition) = (lock_create(LOCK_SEMAPHORE), lock_create(LOCK_CONDITION))
        let (unknown, readers) = (lock_create(LOCK_UNKNOWN), lock_create(LOCK_RW))
        let (dispatch, group) = (DispatchSemaphore(value: 0), DispatchGroup())
        return [
            LockScene(
                testDescription: "semaphore",
                kind: .semaphore,
                hold: { _ in 0 },
                wait: { lock_take(semaphore) },
                finish: { lock_release(semaphore) },
                address: lock_address(semaphore)
            ),
            LockScene(
                testDescription: "condition",
                kind: .condition,
                hold: { _ in 0 },
                wait: { lock_take(condition) },
                finish: { lock_release(condition) },
                address: lock_address(condition)
            ),
            LockScene(
                testDescription: "unknown futex",
                kind: .futex,
                hold: { _ in 0 },
                wait: { lock_take(unknown) },
                finish: { lock_release(unknown) },
                address: lock_address(unknown)
            ),
            LockScene(
                testDescription: "rwlock that is read",
                kind: .readWriteLock,
                hold: {
                    unsafe _ = lock_start_reader(readers, $0, "lock-holder")
                    return 0
                },
                wait: {
                    lock_take(readers)
                    lock_release(readers)
                },
                address: lock_address(readers)
            ),
            LockScene(
                testDescription: "dispatch semaphore",
                kind: .dispatchSemaphore,
                hold: { _ in 0 },
                wait: { dispatch.wait() },
                finish: { dispatch.signal() }
            ),
            LockScene(
                testDescription: "dispatch group",
                kind: .dispatchGroup,
                hold: { _ in
                    group.enter()
                    return 0
                },
                wait: { group.wait() },
                finish: { group.leave() }
            ),
        ]
    }()
}

/// The gate of the scene with dispatch_once.
private let onceGate = Atomic<Int32>(0)

/// Waits until a thread of this process sleeps in a system call. What is asserted of that thread then does not depend on how soon it runs.
func waitUntil(_ thread: Int32, isIn call: String, sourceLocation: SourceLocation = #_sourceLocation) {
    waitUntil(sourceLocation: sourceLocation) { StackCapturer.sighting(ofThread: thread)?.systemCall?.name == call }
}

final class NumberBox: Sendable {
    let number = Atomic<Int32>(0)
}

final class MutexBox: Sendable {
    let mutex = Mutex(0)
}

/// Globals with a slow initialization. It happens only once, and a test that is repeated needs a fresh one.
enum SlowGlobal {
    static let count = 5
    static let gate = Atomic<Int32>(0)
    /// The number of the present one, from 1.
    static let current = Atomic<Int>(0)
    /// How many initializations have begun: later threads now have to wait.
    static let begun = Atomic<Int>(0)

    private static let first: Int = initializeSlowly()
    private static let second: Int = initializeSlowly()
    private static let third: Int = initializeSlowly()
    private static let fourth: Int = initializeSlowly()
    private static let fifth: Int = initializeSlowly()

    static var value: Int {
        switch current.load(ordering: .relaxed) {
        case 1: first
        case 2: second
        case 3: third
        case 4: fourth
        default: fifth
        }
    }

    @inline(never)
    private static func initializeSlowly() -> Int {
        begun.wrappingAdd(1, ordering: .relaxed)
        gate_wait(gate.load(ordering: .relaxed))
        return Int(gate.load(ordering: .relaxed))
    }
}

@inline(never)
func holdSwiftMutex(_ box: MutexBox, _ gate: Int32, _ ready: () -> Void) -> Int {
    box.mutex.withLock { count in
        ready()
        gate_wait(gate)
        return count
    }
}

@inline(never)
func holdQueue(_ gate: Int32, _ ready: () -> Void) -> Int {
    ready()
    gate_wait(gate)
    return Int(gate)
}
