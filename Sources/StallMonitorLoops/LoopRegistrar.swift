import CLoopHooks
import Glibc
import Locking
import RunLoopKit
import StallMonitor
import StallReports
import Synchronization

/// Creates a loop for each thread in which the hooks find one, and announces it to the monitors.
///
/// One per process. Its thread, `stall-loops`, sleeps until the hooks find a thread. It starts with the first monitor that watches loops, and
/// never ends: while no loop is found it costs nothing.
final class LoopRegistrar: LoopDiscovery {
    private struct State: Sendable {
        var hasThread = false
        var loops: [FoundLoop] = []
        var listeners = LoopListeners()
        /// The reasons why some loops are not watched. Each is announced once.
        var faults: [StallMonitorError] = []
        var isOverfull = false
        var hasSharers = false
    }

    private let state = ForkSafeMutex(State())

    /// A child process after fork(2) gets its own.
    static var current: LoopRegistrar { ofProcess.current }
    private static let ofProcess = PerProcess { LoopRegistrar() }

    func begin(_ found: @escaping @Sendable (LoopFinding) -> Void) throws(StallMonitorError) -> @Sendable () -> Void {
        guard loop_hooks_are_called() else { throw StallMonitorError(.loopsNotFound, Self.notCalled) }
        // A selection that was made before a fork refers to the parent's registrar, which has no thread here.
        let present = Self.current
        guard present === self else { return try present.begin(found) }
        let (number, loops, faults) = try state.withLock { state throws(StallMonitorError) in
            if !state.hasThread {
                _ = try MonitorThread(name: "stall-loops", orElse: .loopsNotFound) { [self] in run() }
                state.hasThread = true
            }
            return (state.listeners.add(found), state.loops, state.faults)
        }
        for loop in loops { found(.loop(loop)) }
        for fault in faults { found(.fault(fault)) }
        return { [self] in _ = state.withLock { $0.listeners.remove(number) } }
    }

    /// Whether a monitor watches the main thread's loop.
    var isMainWatched: Bool {
        state.withLock { $0.loops }.contains { $0.thread?.id == getpid() && $0.heartbeat.isWatched }
    }

    private static let notCalled = """
        This program's calls of epoll_wait(2) and poll(2) do not reach StallMonitorLoops: something else in the program defines them, for \
        example a sanitizer, or StallMonitorLoops was loaded with dlopen(3). Link StallMonitorLoops into the program itself; beside a \
        sanitizer, 'stall-monitor watch' finds the stalls of these loops from outside.
        """

    private static func shared(_ labels: [String]) -> StallMonitorError {
        StallMonitorError(
            .loopsNotFound,
            """
            Threads that wait for one epoll set in turn have no loop of their own, and are not watched (\(labels.joined(separator: ", "))): \
            while one of them works, the others serve the set.
            """
        )
    }

    private static let overfull = StallMonitorError(
        .loopsNotFound,
        "More than \(LOOP_HOOKS_CAPACITY) threads have a loop at the same time. The latest ones are not watched."
    )
}

// MARK: - The registrar's thread

extension LoopRegistrar {
    /// The thread's body. Never returns.
    private func run() {
        while true {
            var (cursor, found) = (UInt32(0), loop_hooks_found())
            while unsafe loop_hooks_next(&cursor, &found) { add(found) }
            dropSharers()
            noticeOverflow()
            loop_hooks_wait()
        }
    }

    private func add(_ found: loop_hooks_found) {
        let thread = LoopThread(id: found.thread, stack: found.stack_low..<max(found.stack_low, found.stack_high))
        let name = found.thread == getpid() ? "main" : thread.name ?? "thread"
        let heartbeat = LoopHeartbeat()
        unsafe loop_hooks_bind(found.number, HeartbeatPublisher.shared, HeartbeatPublisher.handOver(heartbeat))
        announce { state in
            state.loops.removeAll { $0.heartbeat.hasEnded }
            let label = Self.label(name, besides: Set(state.loops.map(\.label)))
            let loop = FoundLoop(label: label, thread: thread, heartbeat: heartbeat, slot: found.number)
            loop.noteSet()
            guard !loop.sharesItsSet else { return Self.drop([loop], &state) }
            state.loops.append(loop)
            return .loop(loop)
        }
    }

    /// Drops threads that take turns to wait for one epoll set. They have no loop of their own: while one works, the others serve
    /// the set, so nothing waits for it.
    private func dropSharers() {
        announce { state in
            for loop in state.loops { loop.noteSet() }
            let sharers = state.loops.filter(\.sharesItsSet)
            return sharers.isEmpty ? nil : Self.drop(sharers, &state)
        }
    }

    /// - Returns: The fault to announce. Nil if it was announced before.
    private static func drop(_ sharers: [FoundLoop], _ state: inout State) -> LoopFinding? {
        // The watchers stop watching these loops. Their threads still publish, but nothing reads that.
        for loop in sharers { loop.heartbeat.end() }
        state.loops.removeAll(where: \.heartbeat.hasEnded)
        guard !state.hasSharers else { return nil }
        state.hasSharers = true
        let fault = shared(sharers.map(\.label))
        state.faults.append(fault)
        return .fault(fault)
    }

    /// The first free label: `worker`, `worker #2`, …
    private static func label(_ name: String, besides taken: Set<String>) -> String {
        guard taken.contains(name) else { return name }
        return (2...).lazy.map { "\(name) #\($0)" }.first { !taken.contains($0) } ?? name
    }

    private func noticeOverflow() {
        guard loop_hooks_overflow() > 0 else { return }
        announce { state in
            guard !state.isOverfull else { return nil }
            state.isOverfull = true
            state.faults.append(Self.overfull)
            return .fault(Self.overfull)
        }
    }

    private func announce(_ find: (inout sending State) -> LoopFinding?) {
        let (finding, listeners) = state.withLock { (find(&$0), $0.listeners.all) }
        guard let finding else { return }
        for listener in listeners { listener(finding) }
    }
}

/// The callbacks of monitors that want to know which loops are found.
struct LoopListeners: Sendable {
    typealias Listener = @Sendable (LoopFinding) -> Void

    private var listeners: [Int: Listener] = [:]
    private var last = 0

    var isEmpty: Bool { listeners.isEmpty }
    var all: [Listener] { Array(listeners.values) }

    /// - Returns: the number by which ``remove(_:)`` removes it.
    mutating func add(_ listener: @escaping Listener) -> Int {
        last += 1
        listeners[last] = listener
        return last
    }

    /// - Returns: what was removed, to be released outside the lock: it holds closures of the server.
    mutating func remove(_ number: Int) -> Listener? { listeners.removeValue(forKey: number) }
}

/// A loop that the hooks found by its waits. They publish its heartbeat, on its thread.
final class FoundLoop: PollingLoop {
    let label: String
    let heartbeat: LoopHeartbeat
    /// Nil after the loop or its thread has ended: another thread may then have its id.
    var thread: LoopThread? { heartbeat.hasEnded ? nil : known }
    private let known: LoopThread
    /// Its number in the hooks' table.
    private let slot: UInt32
    /// The epoll set at which the registrar has last seen the loop arrive. The registrar's thread only.
    private let lastSet = Atomic<Int32>(-1)

    var type: WatchedType { .eventLoop }

    init(label: String, thread: LoopThread, heartbeat: LoopHeartbeat, slot: UInt32) {
        (self.label, known, self.heartbeat, self.slot) = (label, thread, heartbeat, slot)
    }

    func waitSet(inMode index: Int) -> Int32? {
        let set = loop_hooks_set(slot)
        return set >= 0 && !heartbeat.hasEnded ? set : nil
    }

    var polledDescriptors: [Int32] {
        guard !heartbeat.hasEnded else { return [] }
        return unsafe [Int32](unsafeUninitializedCapacity: Int(LOOP_HOOKS_POLLED)) { buffer, count in
            count = unsafe Int(loop_hooks_polled(slot, buffer.baseAddress!))
        }
    }

    /// Whether another thread's loop has the number of its epoll set, and this thread has not waited for the set since. Then the thread has closed
    /// its set and left the loop, or the other thread serves the set.
    var hasLostItsSet: Bool { loop_hooks_is_in_doubt(slot) && !heartbeat.hasEnded }

    /// If the loop waits for another set than before: finds out which of the threads that have the set's number still use it.
    func noteSet() {
        let set = loop_hooks_set(slot)
        guard set >= 0, !heartbeat.hasEnded else { return }
        if lastSet.exchange(set, ordering: .relaxed) != set { loop_hooks_doubt(set) }
    }

    /// Whether another thread also waits for its epoll set.
    var sharesItsSet: Bool { loop_hooks_shares_set(slot) }

    /// The modes of such a loop are unknown.
    func modeName(at index: Int) -> String? { nil }
}

/// The functions by which the hooks publish a heartbeat. The hooks call them on the loop's thread, before and after its waits, with the heartbeat
/// as an opaque pointer.
///
/// They do not retain, allocate or lock. One exception: a departure from rest that the watcher asked for takes the watcher's lock.
enum HeartbeatPublisher {
    /// Never freed, because the hooks keep its address. Written once, before they get it.
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

    /// Passes the ownership of the heartbeat to the hooks. They return it by `end`.
    static func handOver(_ heartbeat: LoopHeartbeat) -> UnsafeMutableRawPointer {
        // In a debug build, the first call makes the runtime create types, which locks and allocates. So the first call is here.
        heartbeat.publish(.idle)
        return unsafe Unmanaged.passRetained(heartbeat).toOpaque()
    }

    /// Departing from rest begins a turn. A wait with a timeout of 0 begins one too.
    @inline(__always)
    private static func publish(_ phase: LoopPhase, _ heartbeat: UnsafeMutableRawPointer) {
        // The hooks own the heartbeat until `end`.
        unsafe Unmanaged<LoopHeartbeat>.fromOpaque(heartbeat)._withUnsafeGuaranteedRef { $0.publish(phase) }
    }

    private static func end(_ heartbeat: UnsafeMutableRawPointer) {
        unsafe Unmanaged<LoopHeartbeat>.fromOpaque(heartbeat).takeRetainedValue().end()
    }
}
