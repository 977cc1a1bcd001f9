public import RunLoopKit

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
    /// - Throws: `loopsNotFound` if no loops can be found, or `threadNotStarted`.
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
