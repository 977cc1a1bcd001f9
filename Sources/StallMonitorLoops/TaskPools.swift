import CLoopHooks
import Locking
import RunLoopKit
import StallMonitor
import Synchronization

/// Swift's own task pools. There is one pool of workers for each priority, with as many workers as processors. One pool can be starved while
/// the others work.
///
/// One per process. A priority's pool is announced when its first job is submitted. A fork's child has the pools of its parent, but not the
/// listeners.
final class TaskPools: LoopDiscovery {
    static let shared = TaskPools()

    private struct State: Sendable {
        var used: [UInt8] = []
        var listeners = LoopListeners()
    }

    private final class Uses: Sendable {
        let state: ForkSafeMutex<State>

        init() { state = ForkSafeMutex(State(used: TaskPools.names.keys.filter { TaskPools.isUsed($0) })) }
    }

    private let ofProcess = PerProcess { Uses() }
    /// A bit for each priority that has had a job, also before a fork.
    private static let everUsed = Atomic<UInt64>(0)
    /// By `TaskPriority.rawValue`. Never freed, because the hooks keep their addresses.
    private let pools: [UInt8: TaskPoolHeartbeat]

    private static let names: [UInt8: String] = [
        9: "background", 17: "low", 21: "medium", 25: "high", 33: "user-interactive",
    ]

    private init() {
        let width = Int(task_hooks_width())
        pools = Self.names.mapValues { TaskPoolHeartbeat(label: "\($0)-priority tasks", width: width) }
        for (priority, pool) in pools {
            if let cPool = unsafe pool.cPool { unsafe task_hooks_set_pool(priority, UnsafeMutableRawPointer(cPool)) }
        }
        task_hooks_call_at_use { TaskPools.shared.noteUse(of: $0) }
    }

    func begin(_ found: @escaping @Sendable (LoopFinding) -> Void) throws(StallMonitorError) -> @Sendable () -> Void {
        guard task_hooks_are_called() else { throw StallMonitorError(.taskPoolNotFound, Self.notCalled) }
        let uses = ofProcess.current
        let (number, used) = uses.state.withLock { state in
            task_hooks_arm(true)
            return (state.listeners.add(found), state.used)
        }
        for priority in used { announce(priority, to: found) }
        return {
            _ = uses.state.withLock { state in
                defer { if state.listeners.isEmpty { task_hooks_arm(false) } }
                return state.listeners.remove(number)
            }
        }
    }

    /// Called on the thread that submits the first job.
    private func noteUse(of priority: UInt8) {
        Self.everUsed.bitwiseOr(1 << UInt64(priority), ordering: .relaxed)
        let listeners = ofProcess.current.state.withLock { state -> [LoopListeners.Listener] in
            // In a fork's child the list may have been made since the line above: whoever made it announces the pool.
            guard !state.used.contains(priority) else { return [] }
            state.used.append(priority)
            return state.listeners.all
        }
        for listener in listeners { announce(priority, to: listener) }
    }

    private static func isUsed(_ priority: UInt8) -> Bool {
        everUsed.load(ordering: .relaxed) & (1 << UInt64(priority)) != 0
    }

    private func announce(_ priority: UInt8, to listener: (LoopFinding) -> Void) {
        if let pool = pools[priority] { listener(.pool(pool)) }
    }

    private static let notCalled = """
        The jobs that Swift's runtime submits to libdispatch do not reach StallMonitorLoops: the runtime is linked into the program \
        (-static-stdlib) without the linker's option --wrap=dispatch_async_f, a sanitizer has taken its place, or StallMonitorLoops was \
        loaded with dlopen(3). 'stall-monitor watch' finds the pool's stalls from outside.
        """
}

/// The jobs of the main actor. The main queue runs many of them in one callout of the main loop.
package enum MainActorJobs {
    /// From now on each job counts as a separate callout, so that a stall has one job as its culprit. Otherwise all jobs that the
    /// main queue runs in one callout are one stall. Call it once, on any thread.
    package static func countEach() {
        // Called on the main loop's thread, within its callout: there the main queue runs its jobs.
        task_hooks_call_at_main_jobs { EventRunLoop.main.heartbeat.noteCallout() }
    }
}
