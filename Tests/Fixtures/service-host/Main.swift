import Dispatch
import Glibc
import Logging
import MetricsTestKit
import ServiceLifecycle
import StallMonitor
import StallMonitorService
import UnixSignals

/// A server in a service group that stalls its main actor until the group has ended, and at most for the given time: service-host
/// DIRECTORY MILLISECONDS. With the word `unheard` in place of the milliseconds: a service with a fault, and without a log and a handler.
@main struct Main {
    static func main() async throws {
        let arguments = CommandLine.arguments
        if arguments[2] == "unheard" {
            await runUnheard(in: arguments[1])
        } else {
            try await runGroup(in: arguments[1], milliseconds: Int(arguments[2])!)
        }
    }

    /// Not on the main actor: it sees the group's end while that is stalled.
    @concurrent static func runGroup(in directory: String, milliseconds: Int) async throws {
        let backend = TestMetrics()
        let stalls = StallMonitorService(
            StallMonitor.Configuration(directory: directory),
            metrics: StallMetrics(factory: backend),
            every: .milliseconds(100),
            onEvent: tell
        )
        var logger = Logger(label: "service-host") { StreamLogHandler.standardError(label: $0) }
        logger.logLevel = .error
        let isOver = DispatchSemaphore(value: 0)
        let group = ServiceGroup(
            services: [stalls, Worker(milliseconds: milliseconds, isOver: isOver) { backend.hasSeenStall }],
            gracefulShutdownSignals: [.sigterm],
            logger: logger
        )
        try await group.run()
        say("ended \(stalls.monitor.isRunning ? "and still watched" : "in order")")
        say("counted \(backend.counterTotal(label: "stall.count")), saw one under way: \(backend.hasSeenStall)")
        isOver.signal()
    }

    /// It ends at once, after it has reported that its configuration is out of range.
    static func runUnheard(in directory: String) async {
        let stalls = StallMonitorService(StallMonitor.Configuration(directory: directory, startupGrace: .seconds(-1)))
        let run = Task { await stalls.run() }
        run.cancel()
        await run.value
    }

    @Sendable static func tell(_ event: StallEvent) {
        switch event {
        case .began: say("began")
        case .ended(let report): say("told \(report.state.rawValue)")
        default: break
        }
    }
}

extension TestMetrics {
    /// Whether a stall was under way when figures were recorded.
    fileprivate var hasSeenStall: Bool {
        meters(label: "stall.ongoing.longest.seconds").flatMap(\.values).contains { $0 > 0.2 }
    }
}

/// Stalls the main actor, and prints the end.
struct Worker: Service {
    let milliseconds: Int
    let isOver: DispatchSemaphore
    let hasSeenStall: @Sendable () -> Bool

    func run() async throws {
        say("ready")
        await cancelWhenGracefulShutdown {
            // Not awaited: the worker ends while the main actor is stalled.
            Task { await stall() }
            while !Task.isCancelled { try? await Task.sleep(for: .seconds(600)) }
        }
        // The group may be told to end before the next figures are due. They are recorded until this service has ended.
        for _ in 0..<3_000 where !hasSeenStall() { try? await Task.sleep(for: .milliseconds(10)) }
        say("worker ended")
    }

    @MainActor func stall() { _ = isOver.wait(timeout: .now() + .milliseconds(milliseconds)) }
}

/// Flushed immediately, because standard output may not be a terminal.
func say(_ text: String) {
    print(text)
    fflush(nil)
}
