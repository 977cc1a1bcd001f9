internal import Hummingbird
public import Logging
internal import NIOCore
public import ServiceLifecycle
internal import StallReports
public import StallStore
internal import Synchronization
public import UnixSignals

public struct CollectorOptions: Sendable {
    public var host = "127.0.0.1"
    /// 0 for one that is free.
    public var port = 4319
    /// Nil: one team, without a question, and for this machine alone.
    public var tokens: Tokens?
    /// What began earlier is removed.
    public var keep = Duration.seconds(30 * 86400)
    /// The oldest of the team that takes most is removed where the store is larger.
    public var maximumBytes: Int64?
    /// A YAML file with rules for alerts. Nil: nobody is told of anything.
    public var alerts: String?
    /// From one look at these rules to the next.
    public var alertEvery = Duration.seconds(30)
    public var limits = IngestLimits()
    /// A file with a line for each request that brings reports and each action on the collector. Nil: none is written.
    public var audit: String?
    /// From one look at the tokens' file to the next.
    public var tokensEvery = Duration.seconds(2)
    public var maximumConnections = 4096
    /// Of one address.
    public var maximumPeerConnections = 512
    /// Readers of `/api/v1/records` at a time.
    public var maximumReaders = 16
    /// A connection on which nothing comes for so long is closed.
    public var idleTime = Duration.seconds(60)
    /// From a request's head to its end. A connection that takes longer is closed.
    public var requestTime = Duration.seconds(120)
    /// For each piece of an answer, of 256 KiB at most, to be taken. A connection that takes longer is closed.
    public var writeTime = Duration.seconds(30)
    /// From the signal to end until what is still under way is cut off.
    public var shutdownTime = Duration.seconds(30)

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
        let audit = try options.audit.map { path throws(CollectorError) in try AuditLog(path: path) }
        audit?.write(.init(action: "start", outcome: "ok"))
        let tokens = options.tokens.map {
            TokenFile($0, every: options.tokensEvery, audit: audit, logger: logger)
        }
        let retention = Retention(store, options, metrics, audit, logger)
        var services: [any Service] = [retention]
        if let tokens { services.append(tokens) }
        if let rules = options.alerts {
            services.append(
                try AlertWatch(rules, store, every: options.alertEvery, metrics: metrics, logger: logger)
            )
        }
        let router = Self.router(store, options, tokens, retention, metrics, audit)
        let limits = ConnectionLimits(
            requestTime: TimeAmount(options.requestTime),
            writeTime: TimeAmount(options.writeTime),
            peers: PeerConnections(limit: options.maximumPeerConnections)
        )
        application = Application(
            router: router,
            server: .http1(
                configuration: .init(
                    additionalChannelHandlers: [ConnectionGuard(limits)],
                    idleTimeout: TimeAmount(options.idleTime),
                    // All connections together must not fill the memory with heads.
                    httpDecoderConfiguration: .init(maxHeaderFieldSize: 16 << 10, maxHeaderListSize: 16 << 10)
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

    /// A group of services with nothing but the collector, which ends by these signals: in order, and within the time that the options give.
    ///
    /// - Parameter ending: what happens when the collector has ended.
    public static func group(
        _ collector: Collector,
        _ options: CollectorOptions,
        signals: [UnixSignal] = [],
        ending: ServiceGroupConfiguration.ServiceConfiguration.TerminationBehavior = .cancelGroup,
        logger: Logger
    ) -> ServiceGroup {
        var configuration = ServiceGroupConfiguration(
            services: [.init(service: collector, successTerminationBehavior: ending)],
            gracefulShutdownSignals: signals,
            logger: logger
        )
        configuration.maximumGracefulShutdownDuration = options.shutdownTime
        return ServiceGroup(configuration: configuration)
    }

    static func router(
        _ store: any StallStore,
        _ options: CollectorOptions,
        _ tokens: TokenFile?,
        _ retention: Retention,
        _ metrics: CollectorMetrics,
        _ audit: AuditLog?
    ) -> Router<CollectorContext> {
        let router = Router(context: CollectorContext.self)
        router.add(middleware: SafetyHeaders())
        Health(store).add(to: router)
        AssetRoutes().add(to: router)
        let inner = router.group().add(middleware: AccessMiddleware(tokens: tokens, metrics: metrics, audit: audit))
            .add(middleware: StoreFailures())
        IngestRoutes(store, options.limits, retention, metrics, audit).add(to: inner)
        QuestionRoutes(store: store).add(to: inner)
        RecordRoutes(store: store, readerLimit: options.maximumReaders).add(to: inner)
        AlertRoutes(store: store).add(to: inner)
        LiveRoutes(store: store).add(to: inner)
        PageRoutes(store: store).add(to: inner)
        inner.get("metrics") { _, context in
            _ = try context.team(.metrics)
            let text = metrics.text(try await store.size())
            return JSONAnswer.bytes(Array(text.utf8), type: "text/plain; version=0.0.4; charset=utf-8")
        }
        return router
    }
}

/// Removes what is too old, or too much: every ten minutes, and when much was added since the last time.
final class Retention: Service {
    private let store: any StallStore
    private let options: CollectorOptions
    private let metrics: CollectorMetrics
    private let audit: AuditLog?
    private let logger: Logger
    /// Bytes that came since the last removal.
    private let added = Atomic(0)
    private let (calls, call) = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))

    init(
        _ store: any StallStore,
        _ options: CollectorOptions,
        _ metrics: CollectorMetrics,
        _ audit: AuditLog?,
        _ logger: Logger
    ) {
        (self.store, self.options, self.metrics) = (store, options, metrics)
        (self.audit, self.logger) = (audit, logger)
    }

    func run() async throws {
        await cancelWhenGracefulShutdown {
            await withTaskGroup(of: Void.self) { group in
                group.addTask {
                    while !Task.isCancelled {
                        self.call.yield()
                        do { try await Task.sleep(for: .seconds(600)) } catch { return }
                    }
                }
                for await _ in self.calls { await self.remove() }
                group.cancelAll()
            }
        }
    }

    /// The store took so much, or had no room for it.
    func note(bytes: Int, isFull: Bool = false) {
        guard let maximum = options.maximumBytes else { return }
        let sum = added.wrappingAdd(max(0, bytes), ordering: .relaxed).newValue
        if isFull || Int64(sum) > maximum / 16 { call.yield() }
    }

    func remove() async {
        added.store(0, ordering: .relaxed)
        let age = options.keep.components.seconds.multipliedSaturated(by: 1_000_000_000)
        do {
            let removed = try await store.removeOld(
                before: Timestamp.now().advanced(byNanoseconds: -max(0, age)),
                maximumBytes: options.maximumBytes
            )
            metrics.removed.add(removed)
            guard removed > 0 else { return }
            audit?.write(.init(action: "retention", outcome: "removed \(removed) stalls"))
            logger.info("removed old stalls", metadata: ["count": "\(removed)"])
        } catch {
            audit?.write(.init(action: "retention", outcome: "failed", reason: "\(error)"))
            logger.error("old stalls could not be removed", metadata: ["error": "\(error)"])
        }
    }
}
