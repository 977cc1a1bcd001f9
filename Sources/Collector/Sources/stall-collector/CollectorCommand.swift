import ArgumentParser
import ClickHouseStore
import Dispatch
import Glibc
import Logging
import ServiceLifecycle
import StallCollector
import StallReports
import StallStore
import UnixSignals

@main
struct CollectorCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "stall-collector",
        abstract: "Collects stall reports of many hosts, and shows what they cost.",
        version: "0.1.0",
        subcommands: [ServeCommand.self]
    )

    static func main() async {
        let given = Array(CommandLine.arguments.dropFirst())
        if let mistake = unknownCommand(in: given) { exit(withError: mistake) }
        await main(given)
    }

    /// The mistake if another word stands where the command is expected. Nil otherwise. Behind 'help' the parser would overlook such a word.
    static func unknownCommand(in words: [String]) -> ValidationError? {
        let known = ServeCommand._commandName
        guard let word = words.first(where: { $0 != "help" }), word != known, !word.hasPrefix("-") else { return nil }
        return ValidationError("there is no command '\(VisibleText.of(word, limit: 64))'; did you mean '\(known)'?")
    }
}

struct ServeCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "serve",
        abstract: "Takes reports over HTTP, keeps them in a file or on ClickHouse, and shows them in a browser.",
        discussion: """
            EXAMPLES
              stall-collector serve
              stall-collector serve --listen 0.0.0.0:4319 --tokens tokens
              stall-collector serve --store 'clickhouse://ch1:8123/stalls?cluster=fleet'
              stall-monitor ship /var/lib/stalls --collector http://localhost:4319

            Without --tokens it listens on this machine only, and everybody on this machine may send and read. With --tokens each line of the \
            file is TEAM SCOPES TOKEN [RATE]: the scopes are some of 'read', 'write' and 'metrics', separated by commas, and the rate is the \
            number of records a second that the token may send, like 500/s. A team sees only its own reports; 'metrics' permits /metrics, \
            which has the totals of all teams. When the file changes it is read again. A browser asks for the token as a password; the name \
            beside it does not matter.

            With --tls-certificate and --tls-key it speaks HTTPS, if it was built with '--traits TLS'. A proxy can do this too: --proxy \
            names its address, so that the senders' addresses are taken from its X-Forwarded-For.

            With --alerts it reports new faults, services that stall too often and monitors that became silent, by webhook, program or \
            mail. The collector's README shows such a file (with Debian's package: /usr/share/doc/stall-collector/collector.md).

            The database is one file (SQLite), which one collector has at a time, or with --store clickhouse://… a server or a cluster of \
            ClickHouse, on which any number of collectors may work at once.

            OpenTelemetry exporters can send the log records of stalls to /v1/logs, by OTLP over HTTP in JSON.

            A request is answered when everything that it brought is on the disk, or stored by ClickHouse. SIGTERM ends the collector in order.

            Exit code 0: ended by SIGTERM or Ctrl-C. 1: it could not start, or not go on. 64: wrong usage.
            """
    )

    @Option(help: ArgumentHelp("Where it listens.", valueName: "host:port"))
    var listen = "127.0.0.1:4319"

    @Option(
        help: ArgumentHelp(
            """
            The database: a file, or clickhouse://host:port/database[?cluster=name]. (default: stalls.db in $STATE_DIRECTORY, or else in \
            the current directory)
            """,
            valueName: "file|address"
        ),
        completion: .file()
    )
    var store: String?

    @Option(help: ArgumentHelp("Who may send and read.", valueName: "file"), completion: .file())
    var tokens: String?

    @Option(
        help: ArgumentHelp(
            "Records a second that each token may send, unless its line names another rate.",
            valueName: "number"
        )
    )
    var rate: Double?

    @Option(
        help: ArgumentHelp("The certificate for TLS, with its chain, in PEM.", valueName: "file"),
        completion: .file()
    )
    var tlsCertificate: String?

    @Option(help: ArgumentHelp("The certificate's private key, in PEM.", valueName: "file"), completion: .file())
    var tlsKey: String?

    @Option(
        help: ArgumentHelp(
            "The address of a proxy in front of the collector, whose X-Forwarded-For is trusted. Can be repeated.",
            valueName: "address"
        )
    )
    var proxy: [String] = []

    @Option(help: ArgumentHelp("Remove what is older, 1h or more.", valueName: "duration"))
    var keep = "30d"

    @Option(
        help: ArgumentHelp(
            "Remove the oldest where the database is larger: 10MB or more, as 500MB or 20GB.",
            valueName: "size"
        )
    )
    var maxSize: String?

    @Option(help: ArgumentHelp("Rules for alerts; see the README.", valueName: "file"), completion: .file())
    var alerts: String?

    @Option(
        help: ArgumentHelp(
            "Write a line for each request with reports and each action on the collector. At 32 MiB the file is renamed to FILE.1.",
            valueName: "file"
        ),
        completion: .file()
    )
    var audit: String?

    func validate() throws { _ = try options() }

    func run() async throws {
        var options = try options()
        do {
            options.tokens = try tokens.map { path throws(CollectorError) in try Tokens(path: path) }
            let (store, place, lock) = try await openStore(options.maximumBytes)
            defer { withExtendedLifetime(lock) {} }
            let (host, scheme) = (options.host, options.certificate == nil ? "http" : "https")
            var logger = Logger(label: "stall-collector") { StreamLogHandler.standardError(label: $0) }
            logger.logLevel = .notice
            options.alerts = alerts
            options.audit = audit
            options.maximumConnections = Self.connections(options.maximumConnections)
            let collector = try Collector(store, options, logger: logger) { port in
                note(
                    "listening on \(scheme)://\(host.contains(":") ? "[\(host)]" : host):\(port), the store is \(place)"
                )
            }
            // Operators may send it to have files read again, but the collector notices changed files itself.
            _ = signal(SIGHUP, SIG_IGN)
            let group = Collector.group(collector, options, signals: [.sigterm, .sigint], logger: logger)
            try await group.run()
        } catch let error as CollectorError {
            throw Failure("\(error)")
        } catch let error as StoreError {
            throw Failure("\(error)")
        } catch {
            throw Failure("it cannot listen on \(listen), or go on: \(error)")
        }
    }

    /// - Returns: The store, its name without a password, and a file's lock, which is to be kept as long as the store is served.
    private func openStore(_ maximumBytes: Int64?) async throws -> (
        store: any StallStore, name: String, lock: StoreLock?
    ) {
        if let store, store.hasPrefix(ClickHouseAddress.scheme) {
            let address = try ClickHouseAddress(store)
            return (try await ClickHouseStore(address), address.description, nil)
        }
        let path = store ?? Self.stateDirectory.map { "\($0)/stalls.db" } ?? "stalls.db"
        let (lock, signals) = try await Self.lock(path)
        defer { for signal in signals { signal.cancel() } }
        let file = try SQLiteStore(path: path, maximumBytes: maximumBytes) {
            note("converting \(path) for this version: it can take minutes; if it is interrupted, it starts again")
        }
        return (file, path, lock)
    }

    /// Waits for a former collector on the same file: one that is replaced may still be answering requests.
    ///
    /// - Returns: Its lock, and, if it had to wait, what ends this process in order at SIGTERM and SIGINT, to be cancelled when the store is open.
    private static func lock(_ path: String) async throws -> (StoreLock, [any DispatchSourceSignal]) {
        if let lock = try StoreLock.take(path) {
            if !lock.isCertain { note("\(path).lock cannot be locked: a second collector would not be noticed") }
            return (lock, [])
        }
        // The first process of a container ends by no signal that it does not handle. When the collector runs, it has handlers of its own.
        let signals = [SIGTERM, SIGINT].map(Self.endByItself)
        note("another collector has \(path): waiting at most \(patience.components.seconds) seconds for its end")
        if let lock = try await StoreLock.wait(for: path, patience) { return (lock, signals) }
        throw StoreError(
            """
            another collector has \(path), and each of them would send every alert: stop that one, or give this one another file by \
            '--store'
            """
        )
    }

    /// Ends the process in order at this signal, also while another thread uses the database.
    private static func endByItself(_ number: Int32) -> any DispatchSourceSignal {
        let source = DispatchSource.makeSignalSource(signal: number, queue: .global())
        source.setEventHandler { _exit(EXIT_SUCCESS) }
        // Until it is registered, the signal does what it did before.
        let isRegistered = DispatchSemaphore(value: 0)
        source.setRegistrationHandler { isRegistered.signal() }
        source.activate()
        _ = isRegistered.wait(timeout: .now() + .seconds(5))
        return source
    }

    /// Longer than a collector takes to end in order.
    private static let patience = CollectorOptions().shutdownTime + .seconds(5)

    private func options() throws -> CollectorOptions {
        var options = CollectorOptions()
        guard let colon = listen.lastIndex(of: ":"), let port = Int(listen[listen.index(after: colon)...]),
            (0...65535).contains(port), Self.isHost(String(listen[..<colon]).trimmingBrackets)
        else { throw ValidationError("'--listen' is a host and a port, like 127.0.0.1:4319 or [::1]:4319") }
        options.host = String(listen[..<colon]).trimmingBrackets
        options.port = port
        guard tokens != nil || ["127.0.0.1", "localhost", "::1"].contains(options.host) else {
            throw ValidationError(
                "without '--tokens' it listens on this machine alone: give a file with tokens, or 127.0.0.1"
            )
        }
        guard let keep = DurationText(keep), keep.nanoseconds >= Hours.hourNs else {
            throw ValidationError("'--keep' is a length of an hour or more, like 24h or 90d")
        }
        options.keep = .nanoseconds(keep.nanoseconds)
        try limit(&options)
        if let maxSize {
            guard let bytes = Self.bytes(maxSize), bytes >= 10_000_000 else {
                throw ValidationError("'--max-size' is a size of 10MB or more, like 500MB or 20GB")
            }
            options.maximumBytes = bytes
        }
        if let store, store.hasPrefix(ClickHouseAddress.scheme) {
            do { _ = try ClickHouseAddress(store) } catch { throw ValidationError("'--store': \(error)") }
        } else if let store, store.isEmpty || store.contains("://") {
            throw ValidationError("'--store' is the path of a file, or \(ClickHouseAddress.scheme)host:port/database")
        }
        return options
    }

    private func limit(_ options: inout CollectorOptions) throws {
        if let rate {
            guard rate.isFinite, rate > 0 else { throw ValidationError("'--rate' is a number of records a second") }
            options.limits.recordsPerSecond = rate
        }
        do { options.proxies = Set(try proxy.map(Collector.address)) } catch {
            throw ValidationError("'--proxy': \(error)")
        }
        switch (tlsCertificate, tlsKey) {
        case (nil, nil): break
        case (let chain?, let key?): options.certificate = CertificateFiles(chain: chain, key: key)
        default: throw ValidationError("'--tls-certificate' and '--tls-key' belong together")
        }
    }

    /// The number of connections, limited by the number of files that this process may open: a server that cannot accept a
    /// connection retries forever.
    private static func connections(_ wanted: Int) -> Int {
        var limit = rlimit()
        guard unsafe getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return wanted }
        // Reserves some files for the store, its log and the event loops.
        let room = max(16, Int(clamping: limit.rlim_cur).subtractingSaturated(64))
        if room < wanted { note("it may have \(limit.rlim_cur) files open: \(room) connections at most (LimitNOFILE)") }
        return min(wanted, room)
    }

    /// Whether it can be a name or an address. Whether there is such a host is seen when it listens.
    private static func isHost(_ text: String) -> Bool {
        guard text.contains(":") else { return !text.isEmpty }
        var address = in6_addr()
        // The zone of a link's own address is behind a percent sign (RFC 4007).
        return unsafe inet_pton(AF_INET6, String(text.prefix { $0 != "%" }), &address) == 1
    }

    private static func bytes(_ text: String) -> Int64? {
        for (unit, factor) in [("MB", Int64(1_000_000)), ("GB", 1_000_000_000), ("TB", 1_000_000_000_000)]
        where text.hasSuffix(unit) {
            guard let number = Int64(text.dropLast(2)), number >= 0 else { return nil }
            let (bytes, isOver) = number.multipliedReportingOverflow(by: factor)
            return isOver ? nil : bytes
        }
        return nil
    }

    /// The directory that systemd provides for a service's state (`StateDirectory=`).
    private static var stateDirectory: String? {
        guard let value = unsafe getenv("STATE_DIRECTORY") else { return nil }
        return unsafe String(cString: value).split(separator: ":").first.map(String.init)
    }
}

struct Failure: Error, CustomStringConvertible {
    let description: String
    init(_ description: String) { self.description = description }
}

/// Writes a line to standard error.
private func note(_ text: String) {
    let line = Array("stall-collector: \(text)\n".utf8)
    _ = unsafe write(STDERR_FILENO, line, line.count)
}

extension String {
    fileprivate var trimmingBrackets: String {
        hasPrefix("[") && hasSuffix("]") ? String(dropFirst().dropLast()) : self
    }
}
