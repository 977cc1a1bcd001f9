import Glibc
import Hummingbird
import HummingbirdCore
public import Logging
import NIOCore
public import ServiceLifecycle
public import StallStore
public import UnixSignals

/// The server: it receives reports, answers queries, shows pages, and removes old reports.
public struct Collector: Service {
    private let application: any ApplicationProtocol
    /// Where it listens, in words.
    private let address: String

    /// Prepares a server, which does not listen before ``run()``.
    ///
    /// - Parameter running: Called with the port once the server listens.
    /// - Throws: ``CollectorError`` if the audit log, the certificate, the rules for alerts or the address of a proxy cannot be used.
    public init(
        _ store: any StallStore,
        _ options: CollectorOptions,
        logger: Logger,
        running: @escaping @Sendable (Int) async -> Void = { _ in }
    ) throws(CollectorError) {
        var options = options
        options.proxies = Set(try options.proxies.map(Self.address))
        let (port, metrics) = (options.port, CollectorMetrics())
        address = "\(options.host.contains(":") ? "[\(options.host)]" : options.host):\(port)"
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
                try AlertWatch(
                    rules,
                    store,
                    every: options.alertEvery,
                    patience: options.silencePatience,
                    tokens: tokens,
                    metrics: metrics,
                    logger: logger
                )
            )
        }
        let router = Self.router(store, options, tokens, retention, metrics, audit)
        application = Application(
            router: router,
            server: try Self.server(options),
            configuration: .init(
                address: .hostname(options.host, port: options.port),
                serverName: "stall-collector",
                availableConnectionsDelegate: .maximum(options.maximumConnections, logger: logger)
            ),
            services: services,
            onServerRunning: { channel in await running(channel.localAddress?.port ?? port) },
            logger: logger
        )
    }

    private static func server(_ options: CollectorOptions) throws(CollectorError) -> HTTPServerBuilder {
        let limits = ConnectionLimits(
            requestTime: TimeAmount(options.requestTime),
            writeTime: TimeAmount(options.writeTime),
            peers: PeerConnections(limit: options.maximumPeerConnections, unlimited: options.proxies)
        )
        return try HTTPServerBuilder.http1(
            configuration: .init(
                additionalChannelHandlers: [ConnectionGuard(limits)],
                idleTimeout: TimeAmount(options.idleTime),
                // The request heads of all connections together must not fill the memory.
                httpDecoderConfiguration: .init(maxHeaderFieldSize: 16 << 10, maxHeaderListSize: 16 << 10)
            )
        )
        .encrypted(by: options.certificate)
    }

    /// Serves requests. Returns when its service group shuts down, after the requests in progress have been answered.
    ///
    /// - Throws: ``CollectorError`` if the address cannot be bound; another error if a service of the collector fails.
    public func run() async throws {
        do {
            try await application.run()
        } catch let error as IOError {
            // Its own text has the names of functions.
            let reason = unsafe String(cString: strerror(error.errnoCode))
            throw CollectorError("it cannot listen on \(address): \(reason); '--listen' names another address or port")
        } catch is SocketAddressError.UnknownHost {
            throw CollectorError("it cannot listen on \(address): no address is known for this name")
        }
    }

    /// Creates a service group that contains only the collector. It shuts down gracefully on these signals, within the time of
    /// the options.
    ///
    /// - Parameter ending: What the group does when the collector has ended.
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

    /// A proxy's address in the form of a peer's.
    package static func address(_ proxy: String) throws(CollectorError) -> String {
        guard let peer = (try? SocketAddress(ipAddress: proxy, port: 0))?.peer else {
            throw CollectorError("'\(proxy)' is no proxy's IP address, like 10.0.0.1; names are not looked up")
        }
        return peer
    }

    static func router(
        _ store: any StallStore,
        _ options: CollectorOptions,
        _ tokens: TokenFile?,
        _ retention: Retention,
        _ metrics: CollectorMetrics,
        _ audit: AuditLog?
    ) -> Router<CollectorContext> {
        let router = Router(
            context: CollectorContext.self,
            // Load balancers ask for /health by HEAD.
            options: .autoGenerateHeadEndpoints
        )
        router.add(middleware: SafetyHeaders())
        if !options.proxies.isEmpty { router.add(middleware: ForwardedAddress(proxies: options.proxies)) }
        Health(store).add(to: router)
        AssetRoutes().add(to: router)
        let readers = ClientLimit(options.maximumReaders, "too many read already")
        let inner = router.group().add(middleware: AccessMiddleware(tokens: tokens, metrics: metrics, audit: audit))
            .add(middleware: LargeAnswers(readers: readers))
            .add(middleware: StoreFailures())
        IngestRoutes(store, options.limits, retention, metrics, audit).add(to: inner)
        QuestionRoutes(store: store, readers: readers).add(to: inner)
        RecordRoutes(store: store, readers: readers).add(to: inner)
        LiveRoutes(store: store, tokens: tokens).add(to: inner)
        PageRoutes(store: store, readers: readers).add(to: inner)
        inner.get("metrics") { _, context in
            _ = try context.team(.metrics)
            // A store that does not answer must not hide the counts, which may show why.
            let text = metrics.text(try? await store.size())
            return JSONAnswer.bytes(Array(text.utf8), type: "text/plain; version=0.0.4; charset=utf-8")
        }
        return router
    }
}
