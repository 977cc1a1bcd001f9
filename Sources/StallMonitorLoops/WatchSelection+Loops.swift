public import Dispatch
import Glibc
import RunLoopKit
public import StallMonitor

extension WatchSelection {
    /// Every loop of the process that waits in epoll or poll, SwiftNIO's among them, and the main loop.
    ///
    ///     let monitor = StallMonitor.start(watching: .everyLoop)
    ///
    /// A loop that comes later is watched when it has come, one that ends is forgotten. Reports call it by its thread's name
    /// (`NIO-ELT-0-#1`), with a number where several are called the same. What counts as a loop, and what it costs: see the
    /// article "Watching every loop" of `StallMonitor`.
    public static var everyLoop: WatchSelection { [.main, .everyLoop { _ in true }] }

    /// Of the loops that wait in epoll or poll those that are wanted, now and later. The main loop is not among them: see
    /// `WatchSelection.main`.
    ///
    ///     StallMonitor.start(watching: [.main, .everyLoop { $0.hasPrefix("NIO-ELT") }])
    ///
    /// - Parameter isWanted: told the name that reports would have. Called once for each loop, on any thread; it must not block.
    public static func everyLoop(where isWanted: @escaping @Sendable (_ label: String) -> Bool) -> WatchSelection {
        .found(by: LoopRegistrar.current) { isWanted($0.label) }
    }
}

extension WatchSelection {
    /// A serial queue: a stall when a piece of its work keeps new work waiting for the threshold.
    ///
    ///     let monitor = StallMonitor.start(watching: [.everyLoop, .queue(database)])
    ///
    /// While work is on it the queue is looked at every 25 ms, and handed an empty closure, one at a time, whose waiting is what is
    /// measured. While no work comes to it nobody looks, and nothing wakes. A backlog of short pieces is told as `congested`. A queue that
    /// is suspended, or waits for a worker, is not stalled: no code stands in it.
    ///
    /// - Parameters:
    ///   - queue: not a concurrent one, nor the main queue, which is the main loop's. Kept until the monitor stops. If others
    ///     target it, what they run on it counts as its work; if it targets another one, watch that too.
    ///   - label: what reports call it; the queue's own label unless given.
    ///
    /// What cannot be watched is told as a fault, `queueNotWatched`, at the start.
    public static func queue(_ queue: DispatchQueue, label: String? = nil) -> WatchSelection {
        let name = label ?? (queue.label.isEmpty ? "queue" : queue.label)
        do throws(StallMonitorError) {
            return .found(by: QueueDiscovery(.success(try SerialQueue(queue, label: name))))
        } catch {
            return .found(by: QueueDiscovery(.failure(error)))
        }
    }

    /// The main thread's loop where that is Foundation's `RunLoop.main`, or another one that waits in epoll or poll: of a program
    /// that does not run the main loop of `RunLoopKit`. Reports call it `main`.
    ///
    ///     let monitor = StallMonitor.start(watching: .foundationMain)
    ///     RunLoop.main.run()
    public static var foundationMain: WatchSelection {
        .found(by: LoopRegistrar.current) { $0.thread?.id == getpid() }
    }
}

extension WatchSelection {
    /// The pool of workers that runs Swift's tasks: a stall when each of its workers has stood in one job for the threshold.
    ///
    ///     let monitor = StallMonitor.start(watching: [.main, .taskPool])
    ///
    /// There is one such pool for each priority, and one of them may be starved while the others work: each is watched for itself, from its
    /// first job on, and called by its priority in reports (`medium-priority tasks`). What counts as a job: see `TaskPoolHeartbeat`. One long job
    /// among free workers is no stall: it is counted in the run record, and reported if `reportsJobsLongerThan` of the configuration says so. More
    /// stands in the article "The task pool" of `StallMonitor`.
    /// Not among them are the main actor, which is the main loop's, and executors of the server's own: see ``WatchSelection/pools(_:)``.
    ///
    /// Where it cannot work (a program linked with `-static-stdlib`, the thread sanitizer) the monitor tells `taskPoolNotFound`, once.
    public static var taskPool: WatchSelection { .found(by: TaskPools.shared) }

    /// Every loop of the process, the main loop among them, and the task pool.
    public static var everything: WatchSelection { [.everyLoop, .taskPool] }
}
