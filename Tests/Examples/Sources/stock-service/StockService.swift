import Foundation
import GRPCCore
import GRPCNIOTransportHTTP2Posix
import StallMonitor
import StallMonitorLoops

/// A gRPC service. Its methods run on Swift's task pool: `Count` is answered at once; a few calls of `Reserve` or of `Forecast` at a
/// time occupy every worker of the pool, and then nothing else is answered.
@main struct StockServer {
    static func main() async throws {
        let monitor = StallMonitor.start(watching: [.everyLoop, .taskPool])
        defer { monitor.stop() }

        let port = ProcessInfo.processInfo.environment["PORT"].flatMap(Int.init) ?? 9001
        let server = GRPCServer(
            transport: .http2NIOPosix(
                address: .ipv4(host: "127.0.0.1", port: port),
                transportSecurity: .plaintext
            ),
            services: [StockService()]
        )
        try await withThrowingTaskGroup { group in
            group.addTask { try await server.serve() }
            print("listening on \(try await server.listeningAddress?.ipv4?.port ?? 0)")
            await untilTerminated()
            server.beginGracefulShutdown()
            try await group.waitForAll()
        }
        print("ended in order")
    }

    /// Returns when the process gets SIGTERM.
    static func untilTerminated() async {
        signal(SIGTERM, SIG_IGN)
        let source = DispatchSource.makeSignalSource(signal: SIGTERM)
        await withCheckedContinuation { continuation in
            source.setEventHandler {
                source.cancel()
                continuation.resume()
            }
            source.resume()
        }
    }
}

/// Stock of a warehouse. A request and an answer are one line of text each: so there is no generated code in this example.
struct StockService: RegistrableRPCService {
    func registerMethods<Transport: ServerTransport>(with router: inout RPCRouter<Transport>) {
        add("Count", to: &router) { article in "\(article.count)" }
        add("Reserve", to: &router) { article in reserve(article) }
        add("Forecast", to: &router) { article in forecast(article) }
    }

    private func add<Transport: ServerTransport>(
        _ method: String,
        to router: inout RPCRouter<Transport>,
        _ answer: @escaping @Sendable (String) async throws -> String
    ) {
        router.registerHandler(
            forMethod: MethodDescriptor(fullyQualifiedService: "warehouse.Stock", method: method),
            deserializer: Line(),
            serializer: Line()
        ) { request, _ in
            let request = try await ServerRequest(stream: request)
            return StreamingServerResponse(single: ServerResponse(message: try await answer(request.message)))
        }
    }

    /// Occupies a worker of the task pool: it waits for another task on the worker's thread. `await` would leave the worker to others.
    func reserve(_ article: String) -> String {
        let answered = DispatchSemaphore(value: 0)
        DispatchQueue.global().asyncAfter(deadline: .now() + .milliseconds(800)) { answered.signal() }
        answered.wait()
        return "reserved \(article)"
    }

    /// Occupies a worker of the task pool: it computes for long. It belongs on a dispatch queue or a thread of its own.
    func forecast(_ article: String) -> String {
        var demand = 0.5
        let end = ContinuousClock.now + .milliseconds(800)
        while ContinuousClock.now < end {
            for _ in 0..<1000 { demand = 3.9 * demand * (1 - demand) }
        }
        return "\(article) \(demand)"
    }
}

/// UTF-8 text.
struct Line: MessageSerializer, MessageDeserializer {
    func serialize<Bytes: GRPCContiguousBytes>(_ message: String) -> Bytes { Bytes(message.utf8) }

    func deserialize<Bytes: GRPCContiguousBytes>(_ bytes: Bytes) -> String {
        bytes.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
    }
}
