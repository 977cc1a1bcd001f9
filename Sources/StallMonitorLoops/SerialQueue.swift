import CLoopHooks
import Dispatch
import Locking
import RunLoopKit
import StallMonitor
import StallReports
import Synchronization

/// A watched serial queue. A queue does not publish turns. So while a thread runs the queue's work, the monitor submits an empty closure, the
/// probe, one at a time. The queue counts as busy until the probe has run: a stall is as long as new work has to wait.
///
/// Two threads publish the heartbeat: the watcher's, and the one that runs the probe. `state` says which of them may:
///
///     rest ──look: a thread runs its work──> publishing ──> probed ──the probe runs──> publishing ──> rest
///                                                ▲             │
///                                                └── look: no thread runs its work ──> held, until a later look or the probe
@safe final class SerialQueue: WatchableLoop {
    let label: String
    let heartbeat = LoopHeartbeat()
    private let queue: DispatchQueue
    /// libdispatch's object, which `queue` keeps alive.
    nonisolated(unsafe) private let object: UnsafeMutableRawPointer
    private let state = Atomic(State.rest)
    /// The number of items at the latest look. Used by the watcher's thread only.
    private let items = Atomic<UInt64>(0)

    private enum State: UInt8, AtomicRepresentable {
        /// The heartbeat is at rest, and no probe is submitted.
        case rest
        /// The thread that set this state is publishing.
        case publishing
        /// A probe is submitted; the heartbeat is busy.
        case probed
        /// A probe is submitted; the heartbeat is at rest, because no thread runs the queue's work.
        case held
        /// The probe has run while the watcher was publishing. The watcher then sets the heartbeat to rest.
        case ran
    }

    /// What a look found.
    enum Activity: Hashable {
        /// No work.
        case idle
        /// Work, and no thread that runs it.
        case waiting
        /// A thread runs its work.
        case running
    }

    var type: WatchedType { .queue }

    /// The thread that runs the queue's work.
    var thread: LoopThread? {
        let owner = unsafe queue_hooks_look(object).owner
        return owner > 0 ? LoopThread(id: owner, stack: 0..<0) : nil
    }

    func modeName(at index: Int) -> String? { nil }

    init(_ queue: DispatchQueue, label: String) throws(StallMonitorError) {
        queue_hooks_ask()
        _ = queue.qos
        guard let object = unsafe queue_hooks_answer() else { throw Self.refusal(label, Self.notCalled) }
        switch unsafe queue_hooks_judge(object) {
        case QUEUE_HOOKS_WATCHABLE: break
        case QUEUE_HOOKS_NOT_SERIAL:
            throw Self.refusal(label, "It is not serial: several pieces of its work run at once.")
        case QUEUE_HOOKS_MAIN: throw Self.refusal(label, "It is the main queue: watch the main loop instead.")
        default: throw Self.refusal(label, "This version of libdispatch is not known.")
        }
        (self.queue, self.label) = (queue, label)
        unsafe self.object = object
    }

    private static let notCalled = """
        Its calls do not reach StallMonitorLoops: libdispatch is linked into the program (-static-stdlib), a sanitizer has taken its \
        place, or StallMonitorLoops was loaded with dlopen(3).
        """

    static func refusal(_ label: String, _ reason: String) -> StallMonitorError {
        StallMonitorError(.queueNotWatched, "\(label): \(reason)")
    }

    /// From now on, new work on the queue, or on one that targets it, wakes the watcher. False if too many queues are watched.
    func begin() -> Bool { unsafe queue_hooks_add(object) }

    func end() { unsafe queue_hooks_remove(object) }
}

// MARK: - The watcher's looks

extension SerialQueue {
    /// Looks at the queue, and publishes what it found. The watcher's thread only.
    func look() -> Activity {
        let now = unsafe queue_hooks_look(object)
        guard now.owner > 0 else {
            hold()
            return now.items == 0 ? .idle : .waiting
        }
        let moves = now.items != items.exchange(now.items, ordering: .relaxed)
        switch state.load(ordering: .acquiring) {
        case .rest: probe()
        case .held: publish(.beforeTimers, from: .held, to: .probed)
        // Work that came before the probe has finished: the queue does many pieces of work, not one long one.
        case .probed: if moves { heartbeat.noteCallout() }
        case .publishing, .ran: break
        }
        return .running
    }

    private func probe() {
        state.store(.publishing, ordering: .sequentiallyConsistent)
        heartbeat.publish(.beforeTimers)
        state.store(.probed, ordering: .sequentiallyConsistent)
        let probe = unsafe Unmanaged.passRetained(self).toOpaque()
        unsafe queue_hooks_submit(object, probe) {
            unsafe Unmanaged<SerialQueue>.fromOpaque($0).takeRetainedValue().probeRan()
        }
        // The probe itself adds one item.
        items.store(unsafe queue_hooks_look(object).items, ordering: .relaxed)
    }

    /// Sets the heartbeat to rest. No thread runs the queue's work, because the queue is suspended or waits for a worker; so none
    /// of its code is stalled.
    private func hold() {
        if state.load(ordering: .acquiring) == .probed { publish(.waiting, from: .probed, to: .held) }
    }

    private func publish(_ phase: LoopPhase, from old: State, to new: State) {
        guard state.compareExchange(expected: old, desired: .publishing, ordering: .sequentiallyConsistent).exchanged
        else { return }
        heartbeat.publish(phase)
        let isSet = state.compareExchange(expected: .publishing, desired: new, ordering: .sequentiallyConsistent)
        guard !isSet.exchanged else { return }
        if !phase.isAtRest { heartbeat.publish(.waiting) }
        state.store(.rest, ordering: .sequentiallyConsistent)
    }

    /// Called by the probe, on the queue's thread.
    private func probeRan() {
        while true {
            let present = state.load(ordering: .acquiring)
            let next: State = present == .probed ? .publishing : present == .publishing ? .ran : .rest
            guard state.compareExchange(expected: present, desired: next, ordering: .sequentiallyConsistent).exchanged
            else { continue }
            guard present == .probed else { return }
            heartbeat.publish(.waiting)
            return state.store(.rest, ordering: .sequentiallyConsistent)
        }
    }
}

/// Looks at the watched queues while they have work.
///
/// One per process. Its thread, `stall-queues`, sleeps until a watched queue gets work. Then it looks every 25 ms until all queues are empty.
final class QueueWatcher: Sendable {
    private struct State: Sendable {
        var hasThread = false
        var queues: [SerialQueue] = []
    }

    private let state = ForkSafeMutex(State())

    private static let tick: Int64 = 25_000_000
    /// The delay of the first look after new work. Work that finishes within it is never looked at.
    private static let firstLook: Int64 = 2_000_000
    /// The watcher sleeps after this many looks at queues whose work no thread runs. A suspended queue wakes it when it is
    /// resumed.
    private static let waitingLooks = 40

    /// A child process after fork(2) gets its own.
    static var current: QueueWatcher { ofProcess.current }
    private static let ofProcess = PerProcess { QueueWatcher() }

    func add(_ queue: SerialQueue) throws(StallMonitorError) {
        try state.withLock { state throws(StallMonitorError) in
            if !state.hasThread {
                _ = try MonitorThread(name: "stall-queues", orElse: .queueNotWatched) { [self] in run() }
                state.hasThread = true
            }
            guard queue.begin() else {
                throw SerialQueue.refusal(queue.label, "\(QUEUE_HOOKS_CAPACITY) queues are watched already.")
            }
            state.queues.append(queue)
        }
        queue_hooks_wake()
    }

    func remove(_ queue: SerialQueue) {
        state.withLock { state in
            guard let index = state.queues.firstIndex(where: { $0 === queue }) else { return }
            state.queues.remove(at: index).end()
        }
    }

    /// The thread's body. Never returns.
    private func run() {
        while true {
            _ = queue_hooks_wait(Self.firstLook)
            lookUntilIdle()
            queue_hooks_park(true)
            // This look finds work that came before it. Work that comes later wakes the watcher. Work that was being submitted in
            // between is found a tick later. Work that wakes the watcher may not have a thread yet.
            if look() != .running, !queue_hooks_wait(Self.tick), look() != .running { _ = queue_hooks_wait(-1) }
            queue_hooks_park(false)
        }
    }

    private func lookUntilIdle() {
        var waiting = 0
        while waiting < Self.waitingLooks {
            switch look() {
            case .idle: return
            case .waiting: waiting += 1
            case .running: waiting = 0
            }
            _ = queue_hooks_wait(Self.tick)
        }
    }

    private func look() -> SerialQueue.Activity {
        let found = state.withLock { $0.queues }.map { $0.look() }
        return found.contains(.running) ? .running : found.contains(.waiting) ? .waiting : .idle
    }
}

/// Offers one queue to a monitor.
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
