import CLoopHooks
import Glibc
import Locking
import RunLoopKit
import StallMonitor
import StallReports

/// Makes a loop of each thread that the hooks have found to have one, and tells the monitors of it.
///
/// One for the process. Its thread, `stall-loops`, sleeps until a thread is found; it is there from the first start of a monitor that wants
/// to know, and stays: it costs nothing while no loop comes.
final class LoopRegistrar: LoopDiscovery {
    private struct State: Sendable {
        var hasThread = false
        var loops: [FoundLoop] = []
        var listeners = LoopListeners()
        /// What keeps loops from being watched, each told once.
        var faults: [StallMonitorError] = []
        var isOverfull = false
        var hasSharers = false
    }

    private let state = ForkSafeMutex(State())

    /// A fork's child has one of its own.
    static var current: LoopRegistrar { ofProcess.current }
    private static let ofProcess = PerProcess { LoopRegistrar() }

    func begin(_ found: @escaping @Sendable (LoopFinding) -> Void) throws(StallMonitorError) -> @Sendable () -> Void {
        guard loop_hooks_are_called() else { throw StallMonitorError(.loopsNotFound, Self.notCalled) }
        let (number, loops, faults) = try state.withLock { state throws(StallMonitorError) in
            if !state.hasThread {
                try MonitorThread(name: "stall-loops") { [self] in run() }.detach()
                state.hasThread = true
            }
            return (state.listeners.add(found), state.loops, state.faults)
        }
        for loop in loops { found(.loop(loop)) }
        for fault in faults { found(.fault(fault)) }
        return { [self] in state.withLock { $0.listeners.remove(number) } }
    }

    private static let notCalled = """
        This program's calls of epoll_wait(2) and poll(2) do not come to StallMonitorLoops: something else in it defines them, as a \
        sanitizer does, or it was loaded with dlopen(3). Link StallMonitorLoops into the program itself.
        """

    private static func shared(_ labels: [String]) -> StallMonitorError {
        StallMonitorError(
            .loopsNotFound,
            """
            Threads that wait for one epoll set by turns have no loop of their own, and are not watched (\(labels.joined(separator: ", "))): \
            what one of them is at keeps no other from serving the set.
            """
        )
    }

    private static let overfull = StallMonitorError(
        .loopsNotFound,
        "More than \(LOOP_HOOKS_CAPACITY) threads have one at a time. Those that came last are not watched."
    )
}

// MARK: - The registrar's thread

extension LoopRegistrar {
    /// The thread's life, which is the process's.
    private func run() {
        while true {
            var (cursor, found) = (UInt32(0), loop_hooks_found())
            while unsafe loop_hooks_next(&cursor, &found) { enter(found) }
            dropSharers()
            noticeOverflow()
            loop_hooks_wait()
        }
    }

    private func enter(_ found: loop_hooks_found) {
        let thread = LoopThread(id: found.thread, stack: found.stack_low..<max(found.stack_low, found.stack_high))
        let name = found.thread == getpid() ? "main" : thread.name ?? "thread"
        let heartbeat = LoopHeartbeat()
        unsafe loop_hooks_bind(found.number, HeartbeatPublisher.shared, HeartbeatPublisher.handOver(heartbeat))
        tell { state in
            state.loops.removeAll { $0.heartbeat.hasEnded }
            let label = Self.label(name, besides: Set(state.loops.map(\.label)))
            let loop = FoundLoop(label: label, thread: thread, heartbeat: heartbeat, slot: found.number)
            guard !loop.sharesItsSet else { return Self.drop([loop], &state) }
            state.loops.append(loop)
            return .loop(loop)
        }
    }

    /// Threads that take turns at one epoll set, as a pool does, turn no loop of their own: while one is at its work the others serve the
    /// rest. What one of them is at keeps nobody waiting.
    private func dropSharers() {
        tell { state in
            let sharers = state.loops.filter(\.sharesItsSet)
            return sharers.isEmpty ? nil : Self.drop(sharers, &state)
        }
    }

    /// The first time there is something to be told.
    private static func drop(_ sharers: [FoundLoop], _ state: inout State) -> LoopFinding? {
        // For its watchers it is over. Its thread goes on publishing, for nobody.
        for loop in sharers { loop.heartbeat.end() }
        state.loops.removeAll(where: \.heartbeat.hasEnded)
        guard !state.hasSharers else { return nil }
        state.hasSharers = true
        let fault = shared(sharers.map(\.label))
        state.faults.append(fault)
        return .fault(fault)
    }

    /// The first that is free: `worker`, `worker #2`, …
    private static func label(_ name: String, besides taken: Set<String>) -> String {
        guard taken.contains(name) else { return name }
        return (2...).lazy.map { "\(name) #\($0)" }.first { !taken.contains($0) } ?? name
    }

    private func noticeOverflow() {
        guard loop_hooks_overflow() > 0 else { return }
        tell { state in
            guard !state.isOverfull else { return nil }
            state.isOverfull = true
            state.faults.append(Self.overfull)
            return .fault(Self.overfull)
        }
    }

    private func tell(_ find: (inout sending State) -> LoopFinding?) {
        let (finding, listeners) = state.withLock { (find(&$0), $0.listeners.all) }
        guard let finding else { return }
        for listener in listeners { listener(finding) }
    }
}

/// Those that are to hear of what is found, until they say that it is enough.
struct LoopListeners: Sendable {
    typealias Listener = @Sendable (LoopFinding) -> Void

    private var listeners: [Int: Listener] = [:]
    private var last = 0

    var isEmpty: Bool { listeners.isEmpty }
    var all: [Listener] { Array(listeners.values) }

    /// - Returns: the number to remove it by.
    mutating func add(_ listener: @escaping Listener) -> Int {
        last += 1
        listeners[last] = listener
        return last
    }

    mutating func remove(_ number: Int) { listeners[number] = nil }
}

/// A loop that was found by its waits. Its heartbeat is published by the hooks, on its thread.
final class FoundLoop: WatchableLoop {
    let label: String
    let heartbeat: LoopHeartbeat
    /// While it lives: a number can become another thread's.
    var thread: LoopThread? { heartbeat.hasEnded ? nil : known }
    private let known: LoopThread
    /// The hooks' number for it.
    private let slot: UInt32

    var type: WatchedType { .eventLoop }

    init(label: String, thread: LoopThread, heartbeat: LoopHeartbeat, slot: UInt32) {
        (self.label, known, self.heartbeat, self.slot) = (label, thread, heartbeat, slot)
    }

    func waitSet(inMode index: Int) -> Int32? {
        let set = loop_hooks_set(slot)
        return set >= 0 && !heartbeat.hasEnded ? set : nil
    }

    /// Whether another thread waits for its set, too.
    var sharesItsSet: Bool {
        let set = loop_hooks_set(slot)
        return set >= 0 && loop_hooks_count_waiting_for(set) > 1
    }

    /// Modes are not known of it.
    func modeName(at index: Int) -> String? { nil }
}

/// How the hooks publish a heartbeat: called on the loop's thread, around its waits, with the heartbeat as an opaque pointer.
///
/// Nothing here retains, allocates or takes a lock but for the watcher's own at the first departure that it asked for.
enum HeartbeatPublisher {
    /// For C, for ever. Written once, before anybody has its address.
    nonisolated(unsafe) static let shared: UnsafePointer<loop_hooks_publisher> = {
        let publisher = UnsafeMutablePointer<loop_hooks_publisher>.allocate(capacity: 1)
        unsafe publisher.initialize(
            to: loop_hooks_publisher(
                rest: { unsafe HeartbeatPublisher.publish(.waiting, $0) },
                leave: { unsafe HeartbeatPublisher.publish(.beforeTimers, $0) },
                turn: { unsafe HeartbeatPublisher.publish(.beforeTimers, $0) },
                end: { unsafe HeartbeatPublisher.end($0) }
            )
        )
        return unsafe UnsafePointer(publisher)
    }()

    /// For the hooks to keep until they end it.
    static func handOver(_ heartbeat: LoopHeartbeat) -> UnsafeMutableRawPointer {
        // Once at leisure, here: in a debug build the first use has the runtime make types, with locks and allocations.
        heartbeat.publish(.idle)
        return unsafe Unmanaged.passRetained(heartbeat).toOpaque()
    }

    /// A departure begins a turn, and so does each look that does not wait.
    @inline(__always)
    private static func publish(_ phase: LoopPhase, _ heartbeat: UnsafeMutableRawPointer) {
        // The hooks hold it until its end.
        unsafe Unmanaged<LoopHeartbeat>.fromOpaque(heartbeat)._withUnsafeGuaranteedRef { $0.publish(phase) }
    }

    private static func end(_ heartbeat: UnsafeMutableRawPointer) {
        unsafe Unmanaged<LoopHeartbeat>.fromOpaque(heartbeat).takeRetainedValue().end()
    }
}
