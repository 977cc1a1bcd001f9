internal import Hummingbird
public import Logging
internal import NIOCore
public import ServiceLifecycle
internal import StallReports
public import StallStore

public struct CollectorOptions: Sendable {
    public var host = "127.0.0.1"
    /// 0 for one that is free.
    public var port = 4319
    /// Nil: one team, without a question, and for this machine alone.
    public var tokens: Tokens?
    /// What began earlier is removed.
    public var keep = Duration.seconds(30 * 86400)
    /// The oldest is removed where the store is larger.
    public var maximumBytes: Int64?
    /// A YAML file with rules for alerts. Nil: nobody is told of anything.
    public var alerts: String?
    /// From one look at these rules to the next.
    public var alertEvery = Duration.seconds(30)
    public var limits = IngestLimits()
    public var maximumConnections = 4096
    /// A connection on which nothing comes for so long is closed.
    public var idleTime = Duration.seconds(60)
    /// From a request's head to its end. A connection that takes longer is closed.
    public var requestTime = Duration.seconds(120)

    public init() {}
}

/// The server: takes reports, answers questions, shows pages, removes what is old.
public struct Collector: Service {
    private let application: any ApplicationProtocol

    /// - Parameter running: told the port that it listens on, once it does.
    /// - Throws: where the rules for alerts cannot be used.
    public init(
        _ store: any StallStore,
        _ options: CollectorOptions,
        logger: Logger,
        running: @escaping @Sendable (Int) async -> Void = { _ in }
    ) throws(CollectorError) {
        let metrics = CollectorMetrics()
        var services: [any Service] = [Retention(store: store, options: options, metrics: metrics, logger: logger)]
        if let rules = options.alerts {
            services.append(
                try AlertWatch(rules, store, every: options.alertEvery, metrics: metrics, logger: logger)
            )
        }
        let router = Self.router(store, options, metrics)
        let requestTime = TimeAmount(options.requestTime)
        application = Application(
            router: router,
            server: .http1(
                configuration: .init(
                    additionalChannelHandlers: [RequestDeadline(requestTime)],
                    idleTimeout: TimeAmount(options.idleTime)
                )
            ),
            configuration: .init(
                address: .hostname(options.host, port: options.port),
                serverName: "stall-collector",
                availableConnectionsDelegate: .maximum(options.maximumConnections, logger: logger)
            ),
            services: services,
            onServerRunning: { channel in await running(channel.localAddress?.port ?? options.port) },
            logger: logger
        )
    }

    /// Returns when its service group shuts down: requests that were begun have been answered.
    public func run() async throws { try await application.run() }

    static func router(
        _ store: any StallStore,
        _ options: CollectorOptions,
        _ metrics: CollectorMetrics
    ) -> Router<CollectorContext> {
        let router = Router(context: CollectorContext.self)
        router.add(middleware: SafetyHeaders())
        router.get("health") { _, _ in try JSONAnswer.make(["status": "ok"]) }
        AssetRoutes().add(to: router)
        let inner = router.group().add(middleware: AccessMiddleware(tokens: options.tokens, metrics: metrics))
        let queue = IngestQueue(store, maximumBytes: options.limits.waitingBytes)
        IngestRoutes(queue: queue, limits: options.limits, metrics: metrics).add(to: inner)
        QuestionRoutes(store: store).add(to: inner)
        RecordRoutes(store: store).add(to: inner)
        AlertRoutes(store: store).add(to: inner)
        LiveRoutes(store: store).add(to: inner)
        PageRoutes(store: store).add(to: inner)
        inner.get("metrics") { _, context in
            _ = try context.team(.read)
            let text = metrics.text(try await store.size())
            return JSONAnswer.bytes(Array(text.utf8), type: "text/plain; version=0.0.4; charset=utf-8")
        }
        return router
    }
}

/// Removes what is too old, or too much, every ten minutes.
struct Retention: Service {
    let store: any StallStore
    let options: CollectorOptions
    let metrics: CollectorMetrics
    let logger: Logger

    func run() async throws {
        await cancelWhenGracefulShutdown {
            while !Task.isCancelled {
                await remove()
                do { try await Task.sleep(for: .seconds(600)) } catch { return }
            }
        }
    }

    func remove() async {
        let age = DurationText(nanoseconds: options.keep.components.seconds * 1_000_000_000).nanoseconds
        do {
            let removed = try await store.removeOld(
                before: Timestamp.now().advanced(byNanoseconds: -age),
                maximumBytes: options.maximumBytes
            )
            metrics.removed.add(removed)
            if removed > 0 { logger.info("removed old stalls", metadata: ["count": "\(removed)"]) }
        } catch {
            logger.error("old stalls could not be removed", metadata: ["error": "\(error)"])
        }
    }
}
