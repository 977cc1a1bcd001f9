import CLoopHooks
import Locking
import RunLoopKit
import StallMonitor

/// Swift's own task pool: a pool of workers for each priority, each as wide as there are processors, and each starved for itself.
///
/// One for the process. A priority's pool is told of when its first job comes.
final class TaskPools: LoopDiscovery {
    static let shared = TaskPools()

    private struct State: Sendable {
        var used: [UInt8] = []
        var listeners = LoopListeners()
    }

    private let state = ForkSafeMutex(State())
    /// By what `TaskPriority.rawValue` says. They are there for good: the hooks have them.
    private let pools: [UInt8: TaskPoolHeartbeat]

    private static let names: [UInt8: String] = [
        9: "background", 17: "low", 21: "medium", 25: "high", 33: "user-interactive",
    ]

    private init() {
        let width = Int(task_hooks_width())
        pools = Self.names.mapValues { TaskPoolHeartbeat(label: "\($0)-priority tasks", width: width) }
        for (priority, pool) in pools {
            if let place = unsafe pool.place { unsafe task_hooks_set_pool(priority, UnsafeMutableRawPointer(place)) }
        }
        task_hooks_call_at_use { TaskPools.shared.noteUse(of: $0) }
    }

    func begin(_ found: @escaping @Sendable (LoopFinding) -> Void) throws(StallMonitorError) -> @Sendable () -> Void {
        guard task_hooks_are_called() else { throw StallMonitorError(.taskPoolNotFound, Self.notCalled) }
        let (number, used) = state.withLock { state in
            task_hooks_arm(true)
            return (state.listeners.add(found), state.used)
        }
        for priority in used { tell(found, priority) }
        return { [self] in
            state.withLock { state in
                state.listeners.remove(number)
                if state.listeners.isEmpty { task_hooks_arm(false) }
            }
        }
    }

    /// On the thread that hands the first job over.
    private func noteUse(of priority: UInt8) {
        let listeners = state.withLock { state in
            state.used.append(priority)
            return state.listeners.all
        }
        for listener in listeners { tell(listener, priority) }
    }

    private func tell(_ listener: (LoopFinding) -> Void, _ priority: UInt8) {
        if let pool = pools[priority] { listener(.pool(pool)) }
    }

    private static let notCalled = """
        What Swift's runtime hands over to libdispatch does not come to StallMonitorLoops: the runtime is linked into the program \
        (-static-stdlib), a sanitizer has taken its place, or StallMonitorLoops was loaded with dlopen(3).
        """
}

/// The jobs of the main actor, which the main queue runs many of in one callout of the main loop.
package enum MainActorJobs {
    /// From now on each counts as a callout of its own: it is looked at, timed and blamed for itself. Otherwise what stands is the main queue, and
    /// all that it ran is one stall. Any thread, once.
    package static func tellApart() {
        // On the main loop's thread, in its callout: it is where the main queue runs its jobs.
        task_hooks_call_at_main_jobs { EventRunLoop.main.heartbeat.noteCallout() }
    }
}
