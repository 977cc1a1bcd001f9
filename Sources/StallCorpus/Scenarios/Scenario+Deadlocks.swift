import Dispatch
import StallReports
import Synchronization

extension Scenario {
    /// Threads that wait for each other. Two are broken in the end by one that waits with a limit; the others end with the process.
    static let deadlocks: [Scenario] = [
        .stall("deadlock-of-two", .deadlocks, on: .worker, [.deadlock], culprit: "lockBoth", owner: "deadlock-b") {
            stage in
            let (a, b) = (PthreadMutex(), PthreadMutex())
            let (aIsHeld, bIsHeld) = (Gate(), Gate())
            startThread(named: "deadlock-b") { lockWithin(b, bIsHeld, waitFor: aIsHeld, a) }
            bIsHeld.wait()
            stage.stall { lockBoth(a, b) { aIsHeld.open() } }
        },
        .stall("deadlock-of-three", .deadlocks, on: .mainLoop, [.deadlock], culprit: "lockBoth", owner: "deadlock-b") {
            stage in
            let (a, b, c) = (PthreadMutex(), PthreadMutex(.recursive), PthreadMutex(.errorChecking))
            let (aIsHeld, bIsHeld, cIsHeld) = (Gate(), Gate(), Gate())
            startThread(named: "deadlock-c") { lockWithin(c, cIsHeld, waitFor: aIsHeld, a) }
            startThread(named: "deadlock-b") {
                b.lock()
                bIsHeld.open()
                cIsHeld.wait()
                c.lock()
                c.unlock()
                b.unlock()
            }
            bIsHeld.wait()
            cIsHeld.wait()
            stage.stall { lockBoth(a, b) { aIsHeld.open() } }
        },
        forever("deadlock-of-swift-mutexes", on: .mainActor, [.deadlock], "lockBothSwiftMutexes", "deadlock-b") {
            stage in
            let (a, b) = (SharedCount(), SharedCount())
            let (aIsHeld, bIsHeld) = (Gate(), Gate())
            startThread(named: "deadlock-b") {
                b.value.withLock { _ in
                    bIsHeld.open()
                    aIsHeld.wait()
                    a.value.withLock { $0 += 1 }
                }
            }
            bIsHeld.wait()
            return { lockBothSwiftMutexes(a, b) { aIsHeld.open() } }
        },
        forever("deadlock-with-itself", on: .worker, [.deadlock], "lockTwice", "corpus-worker") { _ in
            let lock = PthreadMutex()
            return { lockTwice(lock) }
        },
        // Who owns the main queue is not written down where a watcher could read it.
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

/// Holds the first lock, and waits for the second with a limit: then it gives up, and lets go of both.
private func lockWithin(_ first: PthreadMutex, _ firstIsHeld: Gate, waitFor secondIsHeld: Gate, _ second: PthreadMutex)
{
    first.lock()
    firstIsHeld.open()
    secondIsHeld.wait()
    if second.lock(within: .milliseconds(700)) { second.unlock() }
    first.unlock()
}
