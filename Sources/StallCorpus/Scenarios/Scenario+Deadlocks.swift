import Dispatch
import RunLoopKit
import StallReports
import Synchronization

extension Scenario {
    /// Threads that wait for each other. They end with the process, except
    /// for one circle that opens because a thread waits with a time limit.
    static let deadlocks: [Scenario] = [
        forever("deadlock-of-two", on: .worker, [.deadlock], "lockBoth", "deadlock-b") { _ in
            let (a, b) = (PthreadMutex(), PthreadMutex())
            let aIsHeld = Gate()
            lockInThread("deadlock-b", b, waitFor: aIsHeld, a)
            return { lockBoth(a, b) { aIsHeld.open() } }
        },
        forever("deadlock-of-three", on: .mainLoop, [.deadlock], "lockBoth", "deadlock-b") { _ in
            let (a, b, c) = (PthreadMutex(), PthreadMutex(.recursive), PthreadMutex(.errorChecking))
            let aIsHeld = Gate()
            lockInThread("deadlock-c", c, waitFor: aIsHeld, a)
            lockInThread("deadlock-b", b, waitFor: aIsHeld, c)
            return { lockBoth(a, b) { aIsHeld.open() } }
        },
        // Not with two of Swift's mutexes: the kernel detects such a circle, and Swift ends the process.
        forever("deadlock-of-swift-and-c", on: .mainActor, [.deadlock], "lockBothKinds", "deadlock-b") { _ in
            let (a, b) = (SharedCount(), PthreadMutex())
            let (aIsHeld, bIsHeld) = (Gate(), Gate())
            startThread(named: "deadlock-b") {
                b.lock()
                bIsHeld.open()
                aIsHeld.wait()
                a.value.withLock { $0 += 1 }
            }
            bIsHeld.wait()
            return { lockBothKinds(a, b) { aIsHeld.open() } }
        },
        // No thread can continue, but one will give up.
        .stall(
            "circle-with-a-limit",
            .deadlocks,
            on: .worker,
            [.deadlock, .blocked],
            culprit: "lockBoth",
            owner: "deadlock-b"
        ) { stage in
            let (a, b) = (PthreadMutex(), PthreadMutex())
            let aIsHeld = Gate()
            lockInThread("deadlock-b", b, waitFor: aIsHeld, a, within: .milliseconds(700))
            stage.stall { lockBoth(a, b) { aIsHeld.open() } }
        },
        forever("deadlock-with-itself", on: .worker, [.deadlock], "lockTwice", "corpus-worker") { _ in
            let lock = PthreadMutex()
            return { lockTwice(lock) }
        },
        forever("deadlock-of-loops", on: .worker, [.deadlock], "waitForLoop", "other-loop") { stage in
            let (other, loop) = (try? WorkerThread(name: "other-loop"), stage.loop)
            return {
                guard let other else { return 0 }
                other.loop.perform { keep(waitForLoop(loop)) }
                return waitForLoop(other.loop)
            }
        },
        // The owner of the main queue is not stored where a watcher could read it.
        forever("deadlock-of-queues", on: .mainLoop, [.deadlock, .blocked], "waitForQueue", nil) { _ in
            let queue = DispatchQueue(label: "deadlocked")
            let isHeld = Gate()
            return {
                queue.async {
                    isHeld.open()
                    DispatchQueue.main.sync {}
                }
                isHeld.wait()
                return waitForQueue(queue)
            }
        },
    ]

    /// A stall that does not end: the process ends in the middle of it.
    private static func forever(
        _ name: String,
        on place: Place,
        _ verdicts: Set<Verdict>,
        _ culprit: String,
        _ owner: String?,
        _ prepare: @escaping @Sendable (Stage) -> @Sendable () -> Int
    ) -> Scenario {
        .stall(name, .deadlocks, on: place, verdicts, culprit: culprit, owner: owner, bounds: .startOnly) { stage in
            let work = prepare(stage)
            stage.start { stage.mark(work) }
            stage.begun.wait()
            stage.endInMidStall()
        }
    }
}

/// Starts a thread that holds the first lock when this returns, and waits for the second once another thread holds it. With a
/// limit it then gives up, and releases both.
private func lockInThread(
    _ name: String,
    _ first: PthreadMutex,
    waitFor isHeld: Gate,
    _ second: PthreadMutex,
    within limit: Duration? = nil
) {
    let firstIsHeld = Gate()
    startThread(named: name) {
        first.lock()
        firstIsHeld.open()
        isHeld.wait()
        if let limit {
            if second.lock(within: limit) { second.unlock() }
        } else {
            second.lock()
        }
        first.unlock()
    }
    firstIsHeld.wait()
}
