import CLoopHooks
import Locking
import RunLoopKit
import StallMonitor

/// Looks at the watched queues while work is on them.
///
/// One for the process. Its thread, `stall-queues`, sleeps until work comes to a watched queue, then looks every 25 ms until all are empty.
final class QueueWatcher: Sendable {
    private struct State: Sendable {
        var hasThread = false
        var queues: [SerialQueue] = []
    }

    private let state = ForkSafeMutex(State())

    private static let tick: Int64 = 25_000_000
    /// Work that is done by then was no stall, and is not looked at.
    private static let firstLook: Int64 = 2_000_000
    /// For so many looks a queue that has work and is not drained keeps the watcher awake. A suspended one rings when it is resumed.
    private static let patience = 40

    /// A fork's child has one of its own.
    static var current: QueueWatcher { ofProcess.current }
    private static let ofProcess = PerProcess { QueueWatcher() }

    func add(_ queue: SerialQueue) throws(StallMonitorError) {
        try state.withLock { state throws(StallMonitorError) in
            if !state.hasThread {
                try MonitorThread(name: "stall-queues") { [self] in run() }.detach()
                state.hasThread = true
            }
            guard queue.begin() else {
                throw SerialQueue.refusal(queue.label, "\(QUEUE_HOOKS_CAPACITY) queues are watched already.")
            }
            state.queues.append(queue)
        }
        queue_hooks_ring()
    }

    func remove(_ queue: SerialQueue) {
        state.withLock { state in
            guard let index = state.queues.firstIndex(where: { $0 === queue }) else { return }
            state.queues.remove(at: index).end()
        }
    }

    /// The thread's life, which is the process's.
    private func run() {
        while true {
            _ = queue_hooks_wait(Self.firstLook)
            lookUntilQuiet()
            queue_hooks_park(true)
            // What came before is seen now, what comes later rings; and what was under way in between is seen a tick later. Work that has
            // rung may have no worker yet.
            if look() != .drained, !queue_hooks_wait(Self.tick), look() != .drained { _ = queue_hooks_wait(-1) }
            queue_hooks_park(false)
        }
    }

    private func lookUntilQuiet() {
        var undrained = 0
        while undrained < Self.patience {
            switch look() {
            case .quiet: return
            case .undrained: undrained += 1
            case .drained: undrained = 0
            }
            _ = queue_hooks_wait(Self.tick)
        }
    }

    private func look() -> SerialQueue.Sight {
        let sights = state.withLock { $0.queues }.map { $0.look() }
        return sights.contains(.drained) ? .drained : sights.contains(.undrained) ? .undrained : .quiet
    }
}

/// One queue, for a monitor that is to watch it.
final class QueueDiscovery: LoopDiscovery {
    private let queue: Result<SerialQueue, StallMonitorError>

    init(_ queue: Result<SerialQueue, StallMonitorError>) { self.queue = queue }

    func begin(_ found: @escaping @Sendable (LoopFinding) -> Void) throws(StallMonitorError) -> @Sendable () -> Void {
        let (queue, watcher) = (try queue.get(), QueueWatcher.current)
        try watcher.add(queue)
        found(.loop(queue))
        return { watcher.remove(queue) }
    }
}
