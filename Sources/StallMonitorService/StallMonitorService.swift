import Dispatch
public import Logging
public import ServiceLifecycle
public import StallMonitor

/// A monitor in a server's lifecycle (swift-service-lifecycle), with its log and its metrics.
///
///     let stalls = StallMonitorService(logger: logger)
///     try await ServiceGroup(services: [stalls, server], gracefulShutdownSignals: [.sigterm], logger: logger).run()
///
/// First in the list it ends last: what stalls while the others shut down is reported, too. It watches from its making on, so that a stall
/// during the start is seen. At its end, by a signal, by cancellation, or because another service failed, it waits for its reports to be on the
/// disk, 5 s at most; a stall under way then is closed as `abandoned`.
public struct StallMonitorService: Service {
    /// For what a server asks of it: `health`, `events()`, `watch(_:)`, `expectSlow(for:_:)`.
    public let monitor: StallMonitor
    private let metrics: StallMetrics?
    private let interval: Duration

    /// Starts to watch. Any thread; returns at once.
    ///
    /// - Parameters:
    ///   - configuration: see there; `Configuration(config:)` reads one from a `ConfigReader`.
    ///   - selection: what to watch: the main loop, with it the main actor, unless given.
    ///   - logger: gets a line for each stall; see ``StallLog``. Nil: none.
    ///   - level: of these lines.
    ///   - metrics: what to count with. Nil: nothing is counted.
    ///   - interval: how often what is not an event is counted: 10 s unless given, 100 ms at least. Without metrics nothing wakes.
    ///   - onEvent: called besides, on the reporter's thread.
    public init(
        _ configuration: StallMonitor.Configuration = .init(),
        watching selection: WatchSelection = .main,
        logger: Logger? = nil,
        level: Logger.Level = .info,
        metrics: StallMetrics? = nil,
        every interval: Duration = .seconds(10),
        onEvent: (@Sendable (StallEvent) -> Void)? = nil
    ) {
        let log = logger.map { StallLog($0, level: level) }
        monitor = StallMonitor.start(configuration, watching: selection) { event in
            log?(event)
            metrics?.note(event)
            onEvent?(event)
        }
        (self.metrics, self.interval) = (metrics, max(interval, .milliseconds(100)))
    }

    /// Lasts until the group shuts down or the task is cancelled; then ends the monitor. Called by the service group, once.
    public func run() async {
        await cancelWhenGracefulShutdown {
            while !Task.isCancelled {
                metrics?.update(from: monitor)
                // Without metrics there is nothing to do in between.
                try? await Task.sleep(for: metrics == nil ? .seconds(86_400) : interval)
            }
        }
        await stop()
        // What was counted up to the end, with what the end itself has lost.
        metrics?.update(from: monitor)
    }

    /// Not on a worker of the task pool: it waits for a disk.
    private func stop() async {
        await withCheckedContinuation { continuation in
            DispatchQueue.global().async {
                monitor.stop()
                continuation.resume()
            }
        }
    }
}
