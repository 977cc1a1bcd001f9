import Locking
public import RunLoopKit
public import StallReports

/// What a monitor watches, from its start or by `watch(_:)`.
///
///     StallMonitor.start(watching: .main)
///     StallMonitor.start(watching: [.main, .loops([worker.loop])])
///
/// A value; several make one in an array. The product `StallMonitorLoops` adds `everyLoop`, `taskPool`, `everything`,
/// `queue(_:label:)` and `foundationMain`.
public struct WatchSelection: Sendable, ExpressibleByArrayLiteral {
    let things: [WatchedThing]
    let searches: [LoopSearch]

    /// The main loop, which also runs the main queue and the main actor.
    public static var main: WatchSelection { .loops([EventRunLoop.main]) }

    /// These loops.
    public static func loops(_ loops: [any WatchableLoop]) -> WatchSelection {
        WatchSelection(loops.map(WatchedThing.loop), [])
    }

    /// These task pools: those of executors that publish their jobs.
    public static func pools(_ pools: [TaskPoolHeartbeat]) -> WatchSelection {
        WatchSelection(pools.map(WatchedThing.pool), [])
    }

    /// What a discovery finds, as far as it is wanted.
    package static func found(
        by discovery: any LoopDiscovery,
        where isWanted: @escaping @Sendable (any WatchableLoop) -> Bool = { _ in true }
    ) -> WatchSelection {
        WatchSelection([], [LoopSearch(discovery: discovery, isWanted: isWanted)])
    }

    private init(_ things: [WatchedThing], _ searches: [LoopSearch]) {
        (self.things, self.searches) = (things, searches)
    }

    /// All of them together.
    public init(arrayLiteral elements: WatchSelection...) {
        self.init(elements.flatMap(\.things), elements.flatMap(\.searches))
    }
}

/// Finds loops, or task pools, of this process by itself.
package protocol LoopDiscovery: AnyObject, Sendable {
    /// Tells of each loop there is and, from then on, of each that comes, once, until the end. `found` is called on the calling thread and on
    /// the discovery's own.
    ///
    /// - Returns: what ends it. Any thread.
    /// - Throws: `loopsNotFound` where none can be found, `threadNotStarted`.
    func begin(_ found: @escaping @Sendable (LoopFinding) -> Void) throws(StallMonitorError) -> @Sendable () -> Void
}

package enum LoopFinding: Sendable {
    case loop(any WatchableLoop)
    case pool(TaskPoolHeartbeat)
    /// Not all loops can be found from now on.
    case fault(StallMonitorError)
}

struct LoopSearch: Sendable {
    let discovery: any LoopDiscovery
    let isWanted: @Sendable (any WatchableLoop) -> Bool
}

/// A loop that the monitor can watch: one that publishes a heartbeat, and whose thread is known.
///
/// `EventRunLoop` is one. Another event loop joins in by publishing its phases to a heartbeat of its own. All
/// members are read from the watchdog's thread while the loop runs, and must not block.
public protocol WatchableLoop: AnyObject, Sendable {
    /// What people call the loop: "main".
    var label: String { get }
    /// Where the loop publishes its phase.
    var heartbeat: LoopHeartbeat { get }
    /// The thread that turns the loop, as far as it is known now.
    var thread: LoopThread? { get }
    /// The name of the mode that a pulse shows by its index.
    func modeName(at index: Int) -> String?
    /// Whether a wait on this descriptor (epoll_wait(2), io_uring_enter(2)) is the loop's own, in which it rests. For loops that do
    /// not publish each of their waits: a thread found in it is not stalled. False unless implemented.
    func waits(on descriptor: Int32) -> Bool
    /// The epoll set (epoll(7)) that the loop rests on in a mode, given by its index: clients that wait there during a stall are counted. Nil where it is
    /// not known, as it is unless implemented.
    func waitSet(inMode index: Int) -> Int32?
    /// What reports call this kind of thing. `run_loop` unless implemented.
    var type: WatchedType { get }
}

extension WatchableLoop {
    /// The loop publishes each of its waits.
    public func waits(on descriptor: Int32) -> Bool { false }

    /// Not known.
    public func waitSet(inMode index: Int) -> Int32? { nil }

    /// A run loop.
    public var type: WatchedType { .runLoop }
}

extension EventRunLoop: WatchableLoop {}

/// The watches by loop. It keeps no loop alive.
final class WatchIndex: Sendable {
    private struct Entry: Sendable {
        weak let heartbeat: (any WatchedHeartbeat)?
        let watch: StallMonitor.Watch
    }

    private struct State: Sendable {
        var entries: [ObjectIdentifier: Entry] = [:]
        /// How many there may be before those of loops that are gone are looked for.
        var limit = 64
    }

    private let state = ForkSafeMutex(State())

    func enter(_ watch: StallMonitor.Watch, of heartbeat: any WatchedHeartbeat) {
        state.withLock { state in
            state.entries[ObjectIdentifier(heartbeat)] = Entry(heartbeat: heartbeat, watch: watch)
            guard state.entries.count > state.limit else { return }
            state.entries = state.entries.filter { $0.value.heartbeat?.hasEnded == false }
            state.limit = max(64, state.entries.count * 2)
        }
    }

    func watch(of heartbeat: any WatchedHeartbeat) -> StallMonitor.Watch? {
        state.withLock { state in
            state.entries[ObjectIdentifier(heartbeat)].flatMap { $0.heartbeat === heartbeat ? $0.watch : nil }
        }
    }

    /// Takes the watcher off every loop, in a fork's child. The lock may be held there for ever: then it is left at that.
    func leaveAll() {
        let heartbeats = state.withLockIfAvailable { $0.entries.values.compactMap(\.heartbeat) }
        heartbeats?.forEach { $0.detach() }
    }
}
