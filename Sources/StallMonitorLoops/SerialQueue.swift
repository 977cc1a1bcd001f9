import CLoopHooks
import Dispatch
import Locking
import RunLoopKit
import StallMonitor
import StallReports
import Synchronization

/// A serial queue under watch. It has no loop that publishes its turns: while a thread drains it, a closure is handed over to it, one at a
/// time, and the queue counts as busy until that has run. So a stall is what a new piece of work would wait for.
///
/// Who may publish the heartbeat is handed on by `state`:
///
///     rest ──look: it is drained──> publishing ──> probed ──the probe runs──> publishing ──> rest
///                                       ▲             │
///                                       └── look: nobody drains it ──> held, which a later look or the probe ends
@safe final class SerialQueue: WatchableLoop {
    let label: String
    let heartbeat = LoopHeartbeat()
    private let queue: DispatchQueue
    /// libdispatch's object, which `queue` holds.
    nonisolated(unsafe) private let place: UnsafeMutableRawPointer
    private let state = Atomic(State.rest)
    /// Of the watcher's thread alone.
    private let items = Atomic<UInt64>(0)

    private enum State: UInt8, AtomicRepresentable {
        /// The heartbeat is at rest, and no probe is on its way.
        case rest
        /// Whoever put it there publishes just now.
        case publishing
        /// A probe is on its way; the heartbeat is busy.
        case probed
        /// A probe is on its way; the heartbeat is at rest, because nobody drains the queue.
        case held
        /// The probe has run while the watcher published, which is then to end it.
        case ran
    }

    enum Sight: Hashable {
        /// No work.
        case quiet
        /// Work, and no thread for it.
        case undrained
        case drained
    }

    var type: WatchedType { .queue }

    /// Who drains the queue.
    var thread: LoopThread? {
        let owner = unsafe queue_hooks_look(place).owner
        return owner > 0 ? LoopThread(id: owner, stack: 0..<0) : nil
    }

    func modeName(at index: Int) -> String? { nil }

    init(_ queue: DispatchQueue, label: String) throws(StallMonitorError) {
        queue_hooks_ask()
        _ = queue.qos
        guard let place = unsafe queue_hooks_answer() else { throw Self.refusal(label, Self.notCalled) }
        switch unsafe queue_hooks_judge(place) {
        case QUEUE_HOOKS_WATCHABLE: break
        case QUEUE_HOOKS_NOT_SERIAL:
            throw Self.refusal(label, "It is not serial: several pieces of its work run at once.")
        case QUEUE_HOOKS_MAIN: throw Self.refusal(label, "It is the main queue: watch the main loop instead.")
        default: throw Self.refusal(label, "This version of libdispatch is not known.")
        }
        (self.queue, self.label) = (queue, label)
        unsafe self.place = place
    }

    private static let notCalled = """
        Its calls do not come to StallMonitorLoops: libdispatch is linked into the program (-static-stdlib), a sanitizer has taken its \
        place, or StallMonitorLoops was loaded with dlopen(3).
        """

    static func refusal(_ label: String, _ reason: String) -> StallMonitorError {
        StallMonitorError(.queueNotWatched, "\(label): \(reason)")
    }

    /// Has work for the queue ring. False if there are too many.
    func begin() -> Bool { unsafe queue_hooks_add(place) }

    func end() { unsafe queue_hooks_remove(place) }
}

// MARK: - The watcher's looks

extension SerialQueue {
    /// One look. The watcher's thread only.
    ///
    /// What it saw, and has published.
    func look() -> Sight {
        let sight = unsafe queue_hooks_look(place)
        guard sight.owner > 0 else {
            hold()
            return sight.items == 0 ? .quiet : .undrained
        }
        let moves = sight.items != items.exchange(sight.items, ordering: .relaxed)
        switch state.load(ordering: .acquiring) {
        case .rest: probe()
        case .held: publish(.beforeTimers, from: .held, to: .probed)
        // Work has gone from the queue before the probe: a turn of many pieces, and not one that stands.
        case .probed: if moves { heartbeat.noteCallout() }
        case .publishing, .ran: break
        }
        return .drained
    }

    private func probe() {
        state.store(.publishing, ordering: .sequentiallyConsistent)
        heartbeat.publish(.beforeTimers)
        state.store(.probed, ordering: .sequentiallyConsistent)
        let probe = unsafe Unmanaged.passRetained(self).toOpaque()
        unsafe queue_hooks_hand_over(place, probe) {
            unsafe Unmanaged<SerialQueue>.fromOpaque($0).takeRetainedValue().probeRan()
        }
        // It is one item more.
        items.store(unsafe queue_hooks_look(place).items, ordering: .relaxed)
    }

    /// Nobody drains it, though it has work: it is suspended, or waits for a worker. No code stands in it.
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

    /// On the queue.
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
