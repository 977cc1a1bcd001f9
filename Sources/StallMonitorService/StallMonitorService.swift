import Dispatch
public import Logging
public import ServiceLifecycle
public import StallMonitor

/// A monitor in a server's lifecycle (swift-service-lifecycle), with its log and its metrics.
///
///     let stalls = StallMonitorService(logger: logger)
///     try await ServiceGroup(services: [stalls, server], gracefulShutdownSignals: [.sigterm], logger: logger).run()
///
/// The first service in the list ends last, so stalls during the shutdown of the others are reported, too. It watches from its initializer
/// on, so that stalls during the start are reported. When it ends (by a signal, by cancellation, or because another service failed), it waits
/// until its reports are written, 5 s at most. A stall that is ongoing then is closed as `abandoned`.
public struct StallMonitorService: Service {
    /// The monitor, for `health`, `events()`, `watch(_:)` and `expectSlow(for:_:)`.
    public let monitor: StallMonitor
    private let metrics: StallMetrics?
    private let interval: Duration

    /// Starts to watch, and returns at once. Any thread.
    ///
    /// - Parameters:
    ///   - configuration: `Configuration(config:)` reads one from a `ConfigReader`.
    ///   - selection: what to watch; by default the main loop, which includes the main actor.
    ///   - logger: gets a message for each stall; see ``StallLog``. Nil: no log.
    ///   - level: the level of these messages.
    ///   - metrics: the metrics to update. Nil: no metrics.
    ///   - interval: how often the figures that are not events are updated: by default every 10 s, 100 ms at least. Without metrics no thread
    ///     wakes for that.
    ///   - onEvent: also called for each event, on the reporter's thread.
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

    /// Runs until the group shuts down or the task is cancelled, then ends the monitor. Called by the service group, once.
    public func run() async {
        await cancelWhenGracefulShutdown {
            while !Task.isCancelled {
                metrics?.update(from: monitor)
                // Without metrics there is nothing to do until the end.
                try? await Task.sleep(for: metrics == nil ? .seconds(86_400) : interval)
            }
        }
        await stop()
        // The final figures, including the reports that were lost at the end.
        metrics?.update(from: monitor)
    }

    /// Not on a thread of the task pool, because it waits for a disk.
    private func stop() async {
        await withCheckedContinuation { continuation in
            DispatchQueue.global().async {
                monitor.stop()
                continuation.resume()
            }
        }
    }
}
