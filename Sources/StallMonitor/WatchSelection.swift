public import RunLoopKit

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
