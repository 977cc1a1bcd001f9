import Dispatch
public import Logging
public import ServiceLifecycle
public import StallMonitor

/// A monitor in a server's lifecycle (swift-service-lifecycle), with its log and its metrics.
///
///     let stalls = StallMonitorService(logger: logger)
///     try await ServiceGroup(services: [stalls, server], gracefulShutdownSignals: [.sigterm], logger: logger).run()
///
/// The first service in the list ends last, so stalls while the others shut down are reported too. Only services that send logs,
/// metrics or spans belong before it, because its last ones come at its end. It watches from its initializer on, so stalls during
/// the start are reported. When it ends (by a signal, by cancellation, or because another service failed), it waits until its
/// reports are written, for at most 5 s. A stall that is still ongoing is closed as `abandoned`.
public struct StallMonitorService: Service {
    /// The monitor, for `health`, `events()`, `watch(_:)` and `expectSlow(for:_:)`.
    public let monitor: StallMonitor
    private let metrics: StallMetrics?
    let interval: Duration
    let logger: Logger?
    let level: LogLevel
    /// The source of the configuration, if the service applies changes to it.
    private let source: ConfigurationSource?

    /// Starts watching, and returns at once. Any thread.
    ///
    /// - Parameters:
    ///   - configuration: `Configuration(config:)` reads one from a `ConfigReader`.
    ///   - selection: What to watch; by default the main loop, which includes the main actor.
    ///   - logger: Gets a message for each stall; see ``StallLog``. Nil: no log; without `onEvent` too, faults of the monitor go to
    ///     standard error.
    ///   - level: The level of these messages.
    ///   - metrics: The metrics to update. Nil: no metrics.
    ///   - interval: How often figures that are not events are updated: 100 ms to one day, every 10 s by default. Without metrics
    ///     no thread wakes for this.
    ///   - onEvent: Also called for each event, on the reporter's thread.
    public init(
        _ configuration: StallMonitor.Configuration = .init(),
        watching selection: WatchSelection = .main,
        logger: Logger? = nil,
        level: Logger.Level = .info,
        metrics: StallMetrics? = nil,
        every interval: Duration = .seconds(10),
        onEvent: (@Sendable (StallEvent) -> Void)? = nil
    ) {
        self.init(
            configuration,
            from: nil,
            watching: selection,
            logger: logger,
            level: level,
            metrics: metrics,
            every: interval,
            onEvent: onEvent
        )
    }

    init(
        _ configuration: StallMonitor.Configuration,
        from source: ConfigurationSource?,
        watching selection: WatchSelection,
        logger: Logger?,
        level: Logger.Level,
        metrics: StallMetrics?,
        every interval: Duration,
        onEvent: (@Sendable (StallEvent) -> Void)?
    ) {
        let level = LogLevel(level)
        monitor = StallMonitor.start(configuration, watching: selection) { event in
            if let logger { StallLog(logger, level: level.value)(event) }
            // As for a monitor without a handler: its faults must not stay unknown.
            if logger == nil, onEvent == nil { StandardError.log(event) }
            metrics?.note(event)
            onEvent?(event)
        }
        (self.metrics, self.interval) = (metrics, Self.interval(interval, atLeast: .milliseconds(100)))
        (self.source, self.logger, self.level) = (source, logger, level)
    }

    /// Brings the time between two wake-ups into its range. A shorter one would occupy a processor, and the system's clock ends the
    /// process when it is asked to wait for far longer than that.
    static func interval(_ wanted: Duration, atLeast least: Duration) -> Duration {
        min(max(wanted, least), .seconds(86_400))
    }

    /// Runs until the group shuts down or the task is cancelled, then ends the monitor. Called by the service group, once.
    public func run() async {
        // Not a child task, for whose end this would wait: a read of the file does not return while a disk does not answer.
        let following = source.map { source in Task(executorPreference: FileReaders.shared) { await follow(source) } }
        await cancelWhenGracefulShutdown {
            while !Task.isCancelled {
                metrics?.update(from: monitor)
                // Without metrics there is nothing to do until the end.
                try? await Task.sleep(for: metrics == nil ? .seconds(86_400) : interval)
            }
        }
        following?.cancel()
        await stop()
        // The final figures, including the reports that were lost at the end.
        metrics?.update(from: monitor)
    }

    /// Stops the monitor on a thread outside the task pool, because this waits for a disk.
    private func stop() async {
        await withCheckedContinuation { continuation in
            DispatchQueue(label: "stall-monitor.stop").async {
                monitor.stop()
                continuation.resume()
            }
        }
    }
}
