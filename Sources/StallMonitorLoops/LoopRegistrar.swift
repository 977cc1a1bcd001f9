import CLoopHooks
import Glibc
import Locking
import RunLoopKit
import StallMonitor

/// Makes a loop of each thread that the hooks have found to have one, and tells the monitors of it.
///
/// One for the process. Its thread, `stall-loops`, sleeps until a thread is found; it is there from the first start of a monitor that wants
/// to know, and stays: it costs nothing while no loop comes.
final class LoopRegistrar: LoopDiscovery {
    private struct State: Sendable {
        var hasThread = false
        var loops: [FoundLoop] = []
        var listeners = LoopListeners()
        var isOverfull = false
    }

    private let state = ForkSafeMutex(State())

    /// A fork's child has one of its own.
    static var current: LoopRegistrar { ofProcess.current }
    private static let ofProcess = PerProcess { LoopRegistrar() }

    func begin(_ found: @escaping @Sendable (LoopFinding) -> Void) throws(StallMonitorError) -> @Sendable () -> Void {
        guard loop_hooks_are_called() else { throw StallMonitorError(.loopsNotFound, Self.notCalled) }
        let (number, loops, isOverfull) = try state.withLock { state throws(StallMonitorError) in
            if !state.hasThread {
                try MonitorThread(name: "stall-loops") { [self] in run() }.detach()
                state.hasThread = true
            }
            return (state.listeners.add(found), state.loops, state.isOverfull)
        }
        for loop in loops { found(.loop(loop)) }
        if isOverfull { found(.fault(Self.overfull)) }
        return { [self] in state.withLock { $0.listeners.remove(number) } }
    }

    private static let notCalled = """
        This program's calls of epoll_wait(2) and poll(2) do not come to StallMonitorLoops: something else in it defines them, as a \
        sanitizer does, or it was loaded with dlopen(3). Link StallMonitorLoops into the program itself.
        """

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
            state.loops.append(FoundLoop(label: label, thread: thread, heartbeat: heartbeat, slot: found.number))
            return state.loops.last.map { .loop($0) }
        }
    }

    /// The first that is free: `worker`, `worker #2`, …
    private static func label(_ name: String, besides taken: Set<String>) -> String {
        guard taken.contains(name) else { return name }
        return (2...).lazy.map { "\(name) #\($0)" }.first { !taken.contains($0) } ?? name
    }

    private func noticeOverflow() {
        guard loop_hooks_overflow() > 0 else { return }
        tell { state in
            defer { state.isOverfull = true }
            return state.isOverfull ? nil : .fault(Self.overfull)
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
