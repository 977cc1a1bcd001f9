import Foundation
import NIOCore
import NIOPosix
import StallMonitor
import StallMonitorLoops

/// A TCP server on SwiftNIO. `price 7` is answered at once; `quote 7` and `login ada` stall the event loop of their connection.
@main struct PriceServer {
    static func main() async throws {
        let monitor = StallMonitor.start(watching: .everyLoop)
        defer { monitor.stop() }

        let port = ProcessInfo.processInfo.environment["PORT"].flatMap(Int.init) ?? 9000
        let server = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture { try channel.pipeline.syncOperations.addHandler(PriceHandler()) }
            }
            .bind(host: "127.0.0.1", port: port).get()
        print("listening on \(server.localAddress?.port ?? 0)")
        await untilTerminated()
        try await server.close()
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

/// Answers one line with one line.
final class PriceHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let words = String(buffer: unwrapInboundIn(data)).split { $0 == " " || $0.isNewline }.map(String.init)
        let answer =
            switch (words.first, words.last) {
            case ("price", let article?): "\(article.count * 100)"
            case ("quote", let article?): askSupplier(article)
            case ("login", let name?): hashPassword(of: name)
            default: "?"
            }
        context.writeAndFlush(wrapOutboundOut(ByteBuffer(string: answer + "\n")), promise: nil)
    }

    /// Stalls: it waits for another task on the loop's thread. A future would let the loop go on.
    func askSupplier(_ article: String) -> String {
        let answered = DispatchSemaphore(value: 0)
        Task.detached {
            try? await Task.sleep(for: .milliseconds(600))
            answered.signal()
        }
        answered.wait()
        return "\(article.count * 90)"
    }

    /// Stalls: it computes for long, as a hash of a password must. It belongs on a thread pool (`NIOThreadPool`).
    func hashPassword(of name: String) -> String {
        var hash: UInt64 = 0xcbf2_9ce4_8422_2325
        let end = ContinuousClock.now + .milliseconds(600)
        while ContinuousClock.now < end {
            for byte in name.utf8 { hash = (hash ^ UInt64(byte)) &* 0x0000_0100_0000_01b3 }
        }
        return String(hash, radix: 16)
    }
}
