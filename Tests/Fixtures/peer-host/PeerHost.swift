import Glibc
import InMemoryTracing
import Logging
import ServiceLifecycle
import StallMonitor
import StallMonitorService
import Tracing
import UnixSignals

/// A server that stalls its main actor in some requests, and has its metrics scraped and its spans sent: peer-host DIRECTORY RECEIVER REQUESTS.
/// RECEIVER is the port of an OTLP receiver on this machine. Prints the port of its metrics, then the trace of each request.
@main struct PeerHost {
    static func main() async throws {
        let arguments = CommandLine.arguments
        guard arguments.count == 4, let receiver = UInt16(arguments[2]), let requests = Int(arguments[3]) else {
            print("usage: peer-host DIRECTORY RECEIVER REQUESTS")
            exit(64)
        }
        let (metrics, tracer) = (TextMetrics(), InMemoryTracer(idGenerator: .hexadecimal))
        let tracing = StallTracing(tracer: tracer)
        let stalls = StallMonitorService(
            StallMonitor.Configuration(directory: arguments[1], repeats: .everyStall),
            metrics: StallMetrics(factory: metrics),
            every: .milliseconds(100),
            onEvent: tracing.note
        )
        let worker = Requests(number: requests, tracer: tracer, receiver: receiver)
        let group = ServiceGroup(
            services: [stalls, worker],
            gracefulShutdownSignals: [.sigterm],
            logger: .init(label: "peer-host")
        )
        print("metrics on \(try MetricsPage(metrics).port)")
        fflush(nil)
        try await group.run()
    }
}

/// Serves this number of requests, each of which stalls the main actor, and sends all ended spans.
struct Requests: Service {
    let number: Int
    let tracer: InMemoryTracer
    let receiver: UInt16

    func run() async throws {
        for _ in 0..<number {
            await serve()
            // The monitor creates the stall's span when it has found the end.
            while !tracer.finishedSpans.contains(where: { $0.operationName == "loop.blocked" }), !Task.isCancelled {
                try? await Task.sleep(for: .milliseconds(20))
            }
            try OTLPSender(port: receiver).send(tracer.popFinishedSpans())
        }
        print("served")
        fflush(nil)
        try? await gracefulShutdown()
    }

    @MainActor private func serve() async {
        await tracer.withSpan("GET /receipts", ofKind: .server) { span in
            print("request \(span.context.inMemorySpanContext?.traceID ?? "?")")
            await withStallContext(span.context) { await makeReceipts() }
        }
    }

    /// Its name must be found in the span.
    @MainActor @inline(never) private func makeReceipts() async { usleep(600_000) }
}

extension InMemoryTracer.IDGenerator {
    /// As in W3C and OTLP: 16 and 8 bytes.
    static let hexadecimal = Self(nextTraceID: { random() + random() }, nextSpanID: random)

    @Sendable private static func random() -> String {
        let digits = String(UInt64.random(in: 1 ... .max), radix: 16)
        return String(repeating: "0", count: 16 - digits.count) + digits
    }
}
