import Foundation
import Hummingbird
import Logging
import NIOCore
import RunLoopKit
import StallMonitor
import StallMonitorLoops
import StallReports

/// A small HTTP server whose handlers work on the main actor. The monitor watches
/// the main loop, SwiftNIO's event loops, and the task pool that runs the handlers.
struct DemoServer {
    let port: Int
    let directory: String

    /// Serves until SIGTERM or SIGINT. `ready` is called with the port once it listens.
    func run(ready: @escaping @Sendable (Int) -> Void) async throws {
        var logger = Logger(label: "demo")
        logger.logLevel = .error
        var configuration = StallMonitor.Configuration(directory: directory)
        configuration.service = .init(name: "stall-monitor-demo")
        // A user who injects the same stall twice expects two reports.
        configuration.repeats = .everyStall
        let monitor = StallMonitor.start(configuration, watching: .everything)
        defer { monitor.stop() }
        let application = Application(
            router: router(),
            configuration: .init(address: .hostname("127.0.0.1", port: port), serverName: "stall-monitor-demo"),
            onServerRunning: { channel in ready(channel.localAddress?.port ?? 0) },
            logger: logger
        )
        do {
            try await application.runService()
        } catch let error as IOError {
            let reason = unsafe String(cString: strerror(error.errnoCode))
            throw DemoFailure("cannot serve on 127.0.0.1:\(port): \(reason); choose another --port")
        }
    }

    private func router() -> Router<DemoContext> {
        let router = Router(context: DemoContext.self)
        router.get("health") { _, _ in "ok\n" }
        router.get("work") { _, _ in "\(await shortWork())\n" }
        router.get("stall/:kind") { request, context in
            let kind = try context.parameters.require("kind")
            guard let stall = DemoStall(rawValue: kind) else {
                throw HTTPError(.notFound, message: "no such stall; there are \(DemoStall.names)")
            }
            return try await stall.perform(milliseconds: milliseconds(of: request), on: context.eventLoop)
        }
        return router
    }

    private func milliseconds(of request: Request) throws -> Int {
        guard let text = request.uri.queryParameters["ms"] else { return 600 }
        guard let value = Int(text), (1...60_000).contains(value) else {
            throw HTTPError(.badRequest, message: "ms takes 1 to 60000")
        }
        return value
    }
}

/// The context of a request, including the event loop that serves its connection.
struct DemoContext: RequestContext {
    var coreContext: CoreRequestContextStorage
    let eventLoop: any EventLoop

    init(source: Source) {
        coreContext = .init(source: source)
        eventLoop = source.channel.eventLoop
    }
}

/// About half a millisecond of work on the main actor: the duration of a healthy handler.
@MainActor
private func shortWork() -> Int {
    (0..<2_000).reduce(into: [Int: Int]()) { $0[$1 % 257, default: 0] += $1 }.count
}

extension StallReceipt: ResponseEncodable {}

extension DemoStall {
    static var names: String { allCases.map(\.rawValue).joined(separator: ", ") }
}

/// The line in which a server prints its address, and the parser of that line.
struct DemoAnnouncement {
    var port: Int
    var directory: String

    private static let prefix = "listening on http://127.0.0.1:"

    func text(forPeople: Bool) -> String {
        let line = "\(Self.prefix)\(port), reports in \(directory)\n"
        guard forPeople else { return line }
        let stalls = DemoStall.allCases.map {
            "  curl 'http://127.0.0.1:\(port)/stall/\($0.rawValue)?ms=600'    # \($0.title)\n"
        }
        return line + stalls.joined() + "  stall-monitor tail -f \(directory)\nctrl-C ends it\n"
    }

    /// The port in a line that `text` produced. Nil for any other line.
    static func port(in line: String) -> Int? {
        guard line.hasPrefix(prefix) else { return nil }
        return Int(line.dropFirst(prefix.count).prefix { $0.isNumber })
    }
}

/// Ends the process at the end of its standard input, because the process that started it has ended.
enum InputWatch {
    static func exitAtEnd() {
        Thread {
            var byte: UInt8 = 0
            // Not readLine: it would hold the lock of `stdin`, and a thread that flushes all streams would wait for it.
            while unsafe read(STDIN_FILENO, &byte, 1) > 0 {}
            // First a regular shutdown, if the server handles the signal.
            kill(getpid(), SIGTERM)
            sleep(5)
            exit(0)
        }.start()
    }
}
