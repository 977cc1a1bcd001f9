public import Configuration
public import Logging
import ServiceLifecycle
public import StallMonitor
import Synchronization

#if YAML
    import FoundationEssentials
    import SystemPackage
#endif

// A configuration that changes while the server runs.

extension StallMonitorService {
    /// Starts watching with the configuration that a reader provides, and applies changes to it while the service runs, if its
    /// provider reports them: `ReloadingFileProvider` does, and is itself a service of the group.
    ///
    ///     let file = try await ReloadingFileProvider<JSONSnapshot>(filePath: "server.json")
    ///     let config = ConfigReader(providers: [EnvironmentVariablesProvider(), file])
    ///     let stalls = try await StallMonitorService(config: config.scoped(to: "stallMonitor"), logger: logger)
    ///     try await ServiceGroup(services: [stalls, file, server], gracefulShutdownSignals: [.sigterm], logger: logger).run()
    ///
    /// Some keys change at once: <doc:ConfigurationKeys>. For the others a log message says that they need a restart. If a value
    /// is not allowed, the whole new configuration is rejected with a log message, and the monitor keeps the current one.
    ///
    /// - Parameters:
    ///   - config: Scoped to the keys, as for `Configuration(config:)`. It includes `logLevel`.
    ///   - customize: Sets options that a file cannot set, such as `details`. Called after each reading.
    /// - Throws: The errors of `Configuration(config:)`.
    public init(
        config: ConfigReader,
        watching selection: WatchSelection = .main,
        logger: Logger? = nil,
        metrics: StallMetrics? = nil,
        every interval: Duration = .seconds(10),
        customize: @escaping @Sendable (inout StallMonitor.Configuration) -> Void = { _ in },
        onEvent: (@Sendable (StallEvent) -> Void)? = nil
    ) async throws {
        let source = ConfigurationSource(config: config, customize: customize)
        try await self.init(source, selection, logger, metrics, interval, onEvent)
    }

    private init(
        _ source: ConfigurationSource,
        _ selection: WatchSelection,
        _ logger: Logger?,
        _ metrics: StallMetrics?,
        _ interval: Duration,
        _ onEvent: (@Sendable (StallEvent) -> Void)?
    ) async throws {
        let (configuration, level, unknown) = try await FileReaders.run {
            let (configuration, level) = try await source.read()
            return (configuration, level, source.findNewUnknownKeys())
        }
        self.init(
            configuration,
            from: source,
            watching: selection,
            logger: logger,
            level: level,
            metrics: metrics,
            every: interval,
            onEvent: onEvent
        )
        tell(unknownKeys: unknown)
    }

    #if YAML
        /// The same with environment variables and a YAML file: a variable takes precedence over the file, and the file over the
        /// defaults.
        ///
        /// A key of the file's section that the monitor does not know, usually a misspelt one, is logged once; so is a misspelt variable.
        ///
        /// - Parameters:
        ///   - file: The path. The file may be missing, which is logged, and may be created later. On a disk that does not answer this
        ///     waits for it, without holding a worker of the task pool.
        ///   - pause: The time between two looks at the file, 10 ms to one day. SIGHUP causes a look at once.
        /// - Throws: An error that names the file and says why it cannot be used, or the errors of `Configuration(config:)`.
        public init(
            file: String,
            checkedEvery pause: Duration = .seconds(15),
            watching selection: WatchSelection = .main,
            logger: Logger? = nil,
            metrics: StallMetrics? = nil,
            every interval: Duration = .seconds(10),
            customize: @escaping @Sendable (inout StallMonitor.Configuration) -> Void = { _ in },
            onEvent: (@Sendable (StallEvent) -> Void)? = nil
        ) async throws {
            let pause = Self.interval(pause, atLeast: .milliseconds(10))
            let (provider, exists) = try await FileReaders.run {
                let provider = try await UnusableFile.naming(file) {
                    try await ReloadingFileProvider<YAMLSnapshot>(
                        filePath: FilePath(file),
                        allowMissing: true,
                        pollInterval: pause
                    )
                }
                return (provider, FileManager.default.fileExists(atPath: file))
            }
            if !exists {
                logger?.notice("stall monitor's configuration file does not exist yet", metadata: ["file": "\(file)"])
            }
            let config = ConfigReader(providers: [EnvironmentVariablesProvider(), provider])
            let source = ConfigurationSource(
                config: config.scoped(to: "stallMonitor"),
                provider: provider,
                pause: pause,
                explaining: { UnusableFile(file, $0) },
                customize: customize,
                findNewUnknownKeys: UnknownKeys(file: file).findNew
            )
            try await self.init(source, selection, logger, metrics, interval, onEvent)
        }
    #endif

    /// Returns when the task is cancelled.
    func follow(_ source: ConfigurationSource) async {
        let refusal = Refusal()
        await withTaskGroup(of: Void.self) { group in
            if let provider = source.provider {
                group.addTask { await tellingErrors { try await provider.run() } }
                group.addTask { await tellUnreadable(source, refusal) }
            }
            await tellingErrors {
                try await source.config.watchSnapshot { updates in
                    // The first update is the present state, so that a change may be reported twice.
                    for await _ in updates { await reload(from: source, refusal) }
                }
            }
            group.cancelAll()
        }
    }

    /// Logs that the provider's file cannot be read any more. The provider keeps that to itself, and its last values.
    private func tellUnreadable(_ source: ConfigurationSource, _ refusal: Refusal) async {
        var problem: String?
        while !Task.isCancelled {
            try? await Task.sleep(for: source.pause)
            if let error = await source.fileProblem() {
                problem = "\(error)"
                tellRefusal(error, refusal)
            } else if let over = problem.take() {
                // A file that is as it was before causes no reload, which would note that.
                refusal.forget(over)
            }
        }
    }

    private func tellingErrors(_ work: () async throws -> Void) async {
        do { try await work() } catch {
            // At the end of the service, a provider may answer with the cancellation.
            guard !Task.isCancelled else { return }
            logger?.warning("stall monitor no longer follows its configuration", metadata: ["error": "\(error)"])
        }
    }

    private func reload(from source: ConfigurationSource, _ refusal: Refusal) async {
        let former = refusal.present
        do {
            let (configuration, level) = try await source.readPresent()
            // The service may have ended meanwhile, while the disk did not answer.
            guard !Task.isCancelled else { return }
            var change = monitor.reconfigure(configuration)
            if self.level.replace(by: level) { change.applied.append("logLevel") }
            // Only that one: the file may have become unreadable after this reading, and that was logged.
            refusal.forget(former)
            tell(change)
            tell(unknownKeys: source.findNewUnknownKeys())
        } catch {
            tellRefusal(error, refusal)
        }
    }

    private func tellRefusal(_ error: any Error, _ refusal: Refusal) {
        // At the end of the service, readings are cancelled.
        guard !Task.isCancelled, refusal.isNew("\(error)") else { return }
        logger?.warning("stall monitor keeps its configuration", metadata: ["error": "\(error)"])
    }

    private func tell(unknownKeys keys: [String]) {
        guard !keys.isEmpty else { return }
        guard let logger else { return StandardError.warn(ofUnknownKeys: keys) }
        logger.warning(
            "stall monitor ignores unknown keys of its configuration",
            metadata: ["keys": "\(keys.joined(separator: ", "))"]
        )
    }

    private func tell(_ change: ConfigurationChange) {
        if !change.applied.isEmpty {
            let keys = change.applied.joined(separator: ", ")
            logger?.notice("stall monitor has a new configuration", metadata: ["keys": "\(keys)"])
        }
        if !change.needsRestart.isEmpty {
            let keys = change.needsRestart.joined(separator: ", ")
            logger?.warning(
                "restart the server for the stall monitor to take these settings",
                metadata: ["keys": "\(keys)"]
            )
        }
    }
}

extension StandardError {
    /// For those who have no log.
    static func warn(ofUnknownKeys keys: [String]) {
        guard !keys.isEmpty else { return }
        write("stall-monitor: Unknown keys of the configuration are ignored: \(keys.joined(separator: ", "))\n")
    }
}

/// Why the latest configuration was refused. The same reason is logged once.
private final class Refusal: Sendable {
    private let reason = Mutex<String?>(nil)

    /// Nil: the latest configuration was applied.
    var present: String? { reason.withLock { $0 } }

    func isNew(_ new: String) -> Bool {
        reason.withLock { reason in
            defer { reason = new }
            return reason != new
        }
    }

    /// Notes that this reason is over.
    func forget(_ old: String?) { reason.withLock { if $0 == old { $0 = nil } } }
}

/// The level of messages about stalls. It may change.
final class LogLevel: Sendable {
    private let level: Mutex<Logger.Level>

    init(_ level: Logger.Level) { self.level = Mutex(level) }

    var value: Logger.Level { level.withLock { $0 } }

    /// Returns whether the level has changed.
    func replace(by new: Logger.Level) -> Bool {
        level.withLock { level in
            defer { level = new }
            return level != new
        }
    }
}
