public import RunLoopKit
public import StallReports

/// A loop that the monitor can watch: it publishes a heartbeat, and its thread is known.
///
/// `EventRunLoop` is one. Another event loop can be watched if it publishes its phases to its own heartbeat. All members are read
/// on the watchdog's thread while the loop runs, and must not block. The monitor may be the last to hold the loop: then the `deinit` runs on one of
/// its threads, and must not block or stop the monitor either.
public protocol WatchableLoop: AnyObject, Sendable {
    /// The loop's name: "main".
    var label: String { get }
    /// Where the loop publishes its phase.
    var heartbeat: LoopHeartbeat { get }
    /// The thread that runs the loop, if it is known now.
    var thread: LoopThread? { get }
    /// The name of the mode with this index in a pulse.
    func modeName(at index: Int) -> String?
    /// Whether a wait on this descriptor (epoll_wait(2), io_uring_enter(2)) is the loop's own, in which it rests. For loops that
    /// do not publish all of their waits: a thread in such a wait is not stalled. False by default.
    func waits(on descriptor: Int32) -> Bool
    /// The epoll set (epoll(7)) on which the loop rests in a mode, given by its index. Clients that wait there during a stall are
    /// counted. Nil, the default, if it is unknown.
    func waitSet(inMode index: Int) -> Int32?
    /// The loop's type in reports. `run_loop` by default.
    var type: WatchedType { get }
}

extension WatchableLoop {
    /// False: the loop publishes each of its waits.
    public func waits(on descriptor: Int32) -> Bool { false }

    /// Nil: unknown.
    public func waitSet(inMode index: Int) -> Int32? { nil }

    /// `run_loop`.
    public var type: WatchedType { .runLoop }
}

extension EventRunLoop: WatchableLoop {}

/// A loop that was found by its waits. It may wait for a list of descriptors, without an epoll set, and its thread may leave it without saying so.
package protocol PollingLoop: WatchableLoop {
    /// The descriptors for which it waits in poll(2) or select(2). Empty if it does not use these.
    var polledDescriptors: [Int32] { get }
    /// Whether the number of its epoll set belongs to another loop since its thread last waited for it.
    var hasLostItsSet: Bool { get }
}

/// What a monitor watches, from its start or by `watch(_:)`.
///
///     StallMonitor.start(watching: .main)
///     StallMonitor.start(watching: [.main, .loops([worker.loop])])
///
/// Several selections are combined in an array. The product `StallMonitorLoops` adds `everyLoop`, `taskPool`, `everything`,
/// `queue(_:label:)` and `foundationMain`.
public struct WatchSelection: Sendable, ExpressibleByArrayLiteral {
    let things: [WatchedThing]
    let searches: [LoopSearch]

    /// The main loop, which also runs the main queue and the main actor. Under `dispatchMain()` and Foundation's `RunLoop.main.run()` it does
    /// not run, and nothing is seen.
    public static var main: WatchSelection { .loops([EventRunLoop.main]) }

    /// These loops.
    public static func loops(_ loops: [any WatchableLoop]) -> WatchSelection {
        WatchSelection(loops.map(WatchedThing.loop), [])
    }

    /// These task pools: those of executors that publish their jobs.
    public static func pools(_ pools: [TaskPoolHeartbeat]) -> WatchSelection {
        WatchSelection(pools.map(WatchedThing.pool), [])
    }

    /// The loops that a discovery finds and that `isWanted` accepts.
    package static func found(
        by discovery: any LoopDiscovery,
        where isWanted: @escaping @Sendable (any WatchableLoop) -> Bool = { _ in true }
    ) -> WatchSelection {
        WatchSelection([], [LoopSearch(discovery: discovery, isWanted: isWanted)])
    }

    private init(_ things: [WatchedThing], _ searches: [LoopSearch]) {
        (self.things, self.searches) = (things, searches)
    }

    /// Combines all of them.
    public init(arrayLiteral elements: WatchSelection...) {
        self.init(elements.flatMap(\.things), elements.flatMap(\.searches))
    }
}

/// Finds loops, or task pools, of this process by itself.
package protocol LoopDiscovery: AnyObject, Sendable {
    /// Calls `found` once for each existing loop and for each later one, until the search is ended. It is called on the calling
    /// thread and on the discovery's own thread.
    ///
    /// - Returns: A closure that ends the search. Any thread.
    /// - Throws: `loopsNotFound` and the like if none can be found.
    func begin(_ found: @escaping @Sendable (LoopFinding) -> Void) throws(StallMonitorError) -> @Sendable () -> Void
}

package enum LoopFinding: Sendable {
    case loop(any WatchableLoop)
    case pool(TaskPoolHeartbeat)
    /// From now on, some loops cannot be found.
    case fault(StallMonitorError)
}

struct LoopSearch: Sendable {
    let discovery: any LoopDiscovery
    let isWanted: @Sendable (any WatchableLoop) -> Bool
}
