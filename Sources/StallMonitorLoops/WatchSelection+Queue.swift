public import Dispatch
import Glibc
import RunLoopKit
public import StallMonitor

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
