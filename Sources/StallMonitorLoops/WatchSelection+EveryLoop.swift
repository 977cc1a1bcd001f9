import RunLoopKit
public import StallMonitor

extension WatchSelection {
    /// Every loop of the process that waits in epoll or poll, SwiftNIO's among them, and the main loop.
    ///
    ///     let monitor = StallMonitor.start(watching: .everyLoop)
    ///
    /// A loop that comes later is watched when it has come, one that ends is forgotten. Reports call it by its thread's name
    /// (`NIO-ELT-0-#1`), with a number where several are called the same. What counts as a loop, and what it costs: see the
    /// article "Watching every loop" of `StallMonitor`.
    public static var everyLoop: WatchSelection { [.main, .everyLoop { _ in true }] }

    /// Of the loops that wait in epoll or poll those that are wanted, now and later. The main loop is not among them: see
    /// `WatchSelection.main`.
    ///
    ///     StallMonitor.start(watching: [.main, .everyLoop { $0.hasPrefix("NIO-ELT") }])
    ///
    /// - Parameter isWanted: told the name that reports would have. Called once for each loop, on any thread; it must not block.
    public static func everyLoop(where isWanted: @escaping @Sendable (_ label: String) -> Bool) -> WatchSelection {
        .found(by: LoopRegistrar.current) { isWanted($0.label) }
    }
}
