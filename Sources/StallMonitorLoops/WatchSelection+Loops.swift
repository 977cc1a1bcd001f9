import CLoopHooks
public import Dispatch
import Glibc
import RunLoopKit
public import StallMonitor

extension WatchSelection {
    /// Every loop of the process that waits in epoll or poll, including SwiftNIO's, and the main loop. Other loops of `RunLoopKit`,
    /// such as a worker's, are not included, because they publish their own heartbeat: add `.loops([worker.loop])`.
    ///
    ///     let monitor = StallMonitor.start(watching: .everyLoop)
    ///
    /// A loop that starts later is watched from then on; one that ends is forgotten. Reports name it after its thread
    /// (`NIO-ELT-0-#1`), with a number if several threads have the same name. What counts as a loop, and what watching it costs: see
    /// the article "Watching every loop" of `StallMonitor`.
    public static var everyLoop: WatchSelection { [.main, .everyLoop { _ in true }] }

    /// Those loops that wait in epoll or poll and that `isWanted` accepts, including loops that start later. The main loop is not
    /// included: see `WatchSelection.main`.
    ///
    ///     StallMonitor.start(watching: [.main, .everyLoop { $0.hasPrefix("NIO-ELT") }])
    ///
    /// - Parameter isWanted: gets the loop's name in reports. Called once for each loop, on any thread; it must not block.
    public static func everyLoop(where isWanted: @escaping @Sendable (_ label: String) -> Bool) -> WatchSelection {
        .found(by: LoopRegistrar.current) { isWanted($0.label) }
    }

    /// A serial queue. It is stalled when new work has to wait for the threshold.
    ///
    ///     let monitor = StallMonitor.start(watching: [.everyLoop, .queue(database)])
    ///
    /// While the queue has work, the monitor looks at it every 25 ms and submits an empty closure, one at a time. It measures how
    /// long that closure waits. While the queue is empty, nothing looks at it and no thread wakes. A backlog of short pieces of
    /// work is reported as `congested`. A queue that is suspended, or waits for a worker thread, is not stalled: none of its code
    /// is running.
    ///
    /// A queue that cannot be watched is reported as the fault `queueNotWatched` at the start.
    ///
    /// - Parameters:
    ///   - queue: A serial queue other than the main queue, which belongs to the main loop. Retained until the monitor stops. The
    ///     work of queues that target it counts as its own; if it targets another queue, watch that one too.
    ///   - label: Its name in reports; by default the queue's own label.
    public static func queue(_ queue: DispatchQueue, label: String? = nil) -> WatchSelection {
        let name = label ?? (queue.label.isEmpty ? "queue" : queue.label)
        do throws(StallMonitorError) {
            return .found(by: QueueDiscovery(.success(try SerialQueue(queue, label: name))))
        } catch {
            return .found(by: QueueDiscovery(.failure(error)))
        }
    }

    /// The main thread's loop if it is Foundation's `RunLoop.main` or another loop that waits in epoll or poll. For programs that
    /// do not run the main loop of `RunLoopKit`. Reports name it `main`.
    ///
    ///     let monitor = StallMonitor.start(watching: .foundationMain)
    ///     RunLoop.main.run()
    public static var foundationMain: WatchSelection {
        .found(by: LoopRegistrar.current) { $0.thread?.id == getpid() }
    }

    /// The workers that run Swift's tasks. A pool is stalled when each of its workers has been in the same job for the threshold.
    ///
    ///     let monitor = StallMonitor.start(watching: [.main, .taskPool])
    ///
    /// There is one pool for each priority, and one of them may be starved while the others work. So each is watched separately, from its first
    /// job on, and named after its priority in reports (`medium-priority tasks`). What counts as a job: see `TaskPoolHeartbeat`. One long job
    /// beside free workers is not a stall: it is counted in the run record, and reported if the configuration's `reportsJobsLongerThan`
    /// is set. See the article "The task pool" of `StallMonitor`.
    ///
    /// The main actor is not included: it belongs to the main loop. Neither are the server's own executors: see ``WatchSelection/pools(_:)``.
    ///
    /// If the pools cannot be watched (in a program linked with `-static-stdlib` and without `--wrap=dispatch_async_f`, or under the thread
    /// sanitizer), the monitor reports `taskPoolNotFound` once.
    public static var taskPool: WatchSelection { .found(by: TaskPools.shared) }

    /// The loops of ``WatchSelection/everyLoop``, which include the main loop, and the task pool.
    public static var everything: WatchSelection { [.everyLoop, .taskPool] }
}

extension StallMonitor {
    /// Whether the main thread's loop, if it waits in epoll or poll, is still to be watched by a monitor: this one, which watches all loops, or
    /// an earlier one. The loop has to wait twice, and a thread of the monitor has to run after that. False if no loops can be found.
    package var isYetToWatchMain: Bool {
        guard loop_hooks_are_called() else { return false }
        let isWatched = LoopRegistrar.current.isMainWatched
        // `isRunning` is read second: it waits for the lock under which a watch begins. So a watch that was seen above has begun completely.
        return isRunning && !isWatched
    }
}
