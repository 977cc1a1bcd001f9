import Dispatch
import Foundation
import RunLoopKit
import StallReports
import Synchronization

/// The name of every thread that holds what a stalled thread waits for.
private let ownerName = "lock-owner"

extension Scenario {
    /// The thread waits for another thread: for a lock, a condition, a queue, or the thread's end.
    static let locks: [Scenario] = [
        mutex("mutex", .normal, on: .mainLoop),
        mutex("mutex-recursive", .recursive, on: .worker),
        mutex("mutex-error-checking", .errorChecking, on: .mainActor),
        mutex("mutex-inheriting", .inheriting, on: .worker),
        .stall("rwlock-reader", .locks, on: .worker, [.blocked], culprit: "waitForReading", owner: ownerName) { stage in
            let lock = PthreadReadWriteLock()
            stage.hold {
                lock.lockForWriting()
            } release: {
                lock.unlock()
            }
            stage.stall { waitForReading(lock) }
        },
        .stall("rwlock-writer", .locks, on: .mainLoop, [.blocked], culprit: "waitForWriting", owner: ownerName) {
            stage in
            let lock = PthreadReadWriteLock()
            stage.hold {
                lock.lockForWriting()
            } release: {
                lock.unlock()
            }
            stage.stall { waitForWriting(lock) }
        },
        // A read lock counts its readers, but does not name them.
        .stall("rwlock-writer-behind-reader", .locks, on: .mainActor, [.blocked], culprit: "waitForWriting") { stage in
            let lock = PthreadReadWriteLock()
            stage.hold {
                lock.lockForReading()
            } release: {
                lock.unlock()
            }
            stage.stall { waitForWriting(lock) }
        },
        .stall("condition", .locks, on: .worker, [.blocked], culprit: "waitForCondition") { stage in
            let condition = PthreadCondition()
            stage.afterwards { condition.meet() }
            stage.stall { waitForCondition(condition) }
        },
        .stall("swift-mutex", .locks, on: .mainActor, [.blocked], culprit: "waitForSwiftMutex", owner: ownerName) {
            stage in
            let lock = SharedCount()
            let isHeld = Gate()
            startThread(named: ownerName) {
                lock.value.withLock { _ in
                    isHeld.open()
                    stage.begun.wait()
                    sleepFor(Stage.usualLength)
                }
            }
            isHeld.wait()
            stage.stall { waitForSwiftMutex(lock) }
        },
        .stall("foundation-lock", .locks, on: .mainLoop, [.blocked], culprit: "waitForFoundationLock", owner: ownerName)
        {
            stage in
            let lock = NSLock()
            stage.hold {
                lock.lock()
            } release: {
                lock.unlock()
            }
            stage.stall { waitForFoundationLock(lock) }
        },
        .stall(
            "foundation-recursive-lock",
            .locks,
            on: .worker,
            [.blocked],
            culprit: "waitForFoundationRecursiveLock",
            owner: ownerName
        ) { stage in
            let lock = NSRecursiveLock()
            stage.hold {
                lock.lock()
            } release: {
                lock.unlock()
            }
            stage.stall { waitForFoundationRecursiveLock(lock) }
        },
        .stall("busy-queue", .locks, on: .mainActor, [.blocked], culprit: "waitForQueue", owner: ownerName) { stage in
            let queue = DispatchQueue(label: "busy")
            let isHeld = Gate()
            queue.async {
                nameThread(ownerName)
                isHeld.open()
                stage.begun.wait()
                sleepFor(Stage.usualLength)
                nameThread("was-owner")
            }
            isHeld.wait()
            stage.stall { waitForQueue(queue) }
        },
        .stall("semaphore", .locks, on: .mainLoop, [.blocked], culprit: "waitForSemaphore") { stage in
            let semaphore = DispatchSemaphore(value: 0)
            stage.afterwards { semaphore.signal() }
            stage.stall { waitForSemaphore(semaphore) }
        },
        .stall("group", .locks, on: .worker, [.blocked], culprit: "waitForGroup") { stage in
            let group = DispatchGroup()
            group.enter()
            stage.afterwards { group.leave() }
            stage.stall { waitForGroup(group) }
        },
        .stall("join", .locks, on: .worker, [.blocked], culprit: "joinThread", owner: ownerName) { stage in
            let thread = JoinableThread(named: ownerName) {
                stage.begun.wait()
                sleepFor(Stage.usualLength)
            }
            stage.stall { joinThread(thread) }
        },
        .stall("loop-request", .locks, on: .mainLoop, [.blocked], culprit: "waitForLoop", owner: ownerName) { stage in
            let other = try stage.occupiedWorker()
            stage.stall { waitForLoop(other.loop) }
            other.stop()
        },
        .stall("worker-end", .locks, on: .worker, [.blocked], culprit: "waitForWorkersEnd", owner: ownerName) { stage in
            let other = try stage.occupiedWorker()
            other.stop()
            stage.stall { waitForWorkersEnd(other) }
        },
    ]

    private static func mutex(_ name: String, _ kind: PthreadMutex.Kind, on place: Place) -> Scenario {
        .stall(name, .locks, on: place, [.blocked], culprit: "waitForMutex", owner: ownerName) { stage in
            let lock = PthreadMutex(kind)
            stage.hold {
                lock.lock()
            } release: {
                lock.unlock()
            }
            stage.stall { waitForMutex(lock) }
        }
    }
}

extension Stage {
    /// A worker whose loop is busy until the stall has lasted its time.
    fileprivate func occupiedWorker() throws -> WorkerThread {
        let worker = try WorkerThread(name: ownerName)
        let isAtWork = Gate()
        worker.loop.perform { [begun] in
            isAtWork.open()
            begun.wait()
            sleepFor(Self.usualLength)
        }
        isAtWork.wait()
        return worker
    }

    /// A separate thread holds something until the stall has lasted its time. Returns when it is held.
    func hold(_ take: @escaping @Sendable () -> Void, release: @escaping @Sendable () -> Void) {
        let isHeld = Gate()
        startThread(named: ownerName) { [begun] in
            take()
            isHeld.open()
            begun.wait()
            sleepFor(Self.usualLength)
            release()
        }
        isHeld.wait()
    }
}
