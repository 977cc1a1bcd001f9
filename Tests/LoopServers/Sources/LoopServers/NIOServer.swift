import Foundation
import Hummingbird
import NIOCore
import NIOPosix

extension EventLoop {
    /// Carries out an order on the loop.
    func obey(_ order: Order) {
        let begin = clockTime()
        switch order.name {
        case "turn":
            // As many one-millisecond callbacks, which the loop runs one after the other before it waits again.
            for _ in 0..<order.milliseconds { execute { computeUntil(clockTime() + 1_000_000) } }
            execute { order.did(since: begin) }
        case "chain": chain(order, since: begin)
        case "turns": turn(order, since: begin)
        case "polling": poll(order, since: begin)
        default: order.stall()
        }
    }

    /// Each callback enqueues the next one: the loop does not get to its sockets.
    private func chain(_ order: Order, since begin: UInt64) {
        computeUntil(clockTime() + 1_000_000)
        guard clockTime() < order.end(after: begin) else { return order.did(since: begin) }
        execute { self.chain(order, since: begin) }
    }

    /// Busy for two thirds of the time, a millisecond each turn.
    private func turn(_ order: Order, since begin: UInt64) {
        computeUntil(clockTime() + 1_000_000)
        guard clockTime() < order.end(after: begin) else { return order.did(since: begin) }
        scheduleTask(in: .microseconds(500)) { self.turn(order, since: begin) }
    }

    /// Wakes each millisecond without work.
    private func poll(_ order: Order, since begin: UInt64) {
        scheduleRepeatedTask(initialDelay: .zero, delay: .milliseconds(1)) { task in
            guard clockTime() >= order.end(after: begin) else { return }
            task.cancel()
            order.did(since: begin)
        }
    }
}

/// Reads orders from its connection, and answers HTTP requests.
private final class OrderHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private static let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let text = String(buffer: unwrapInboundIn(data))
        if text.hasPrefix("GET ") {
            let requests = text.components(separatedBy: "\r\n\r\n").count - 1
            let answers = String(repeating: Self.answer, count: max(1, requests))
            return context.writeAndFlush(wrapOutboundOut(ByteBuffer(string: answers)), promise: nil)
        }
        for order in text.split(separator: "\n").compactMap(Order.init) { context.eventLoop.obey(order) }
    }
}

/// Its orders come over a connection: it stalls in `channelRead`.
func serveNIO() -> Never {
    let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
    do {
        let server = try ServerBootstrap(group: group)
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture { try channel.pipeline.syncOperations.addHandler(OrderHandler()) }
            }
            .bind(host: "127.0.0.1", port: 0).wait()
        let client = try ClientBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .connect(to: server.localAddress!).wait()
        say("READY \(server.localAddress?.port ?? 0)")
        readOrders { order in
            client.writeAndFlush(ByteBuffer(string: "\(order.name) \(order.milliseconds)\n"), promise: nil)
        }
    } catch {
        say("FAILED \(error)")
        exit(1)
    }
    exit(0)
}

/// Each of 16 loops waits three times, so that it is known, and then without end.
func rest() -> Never {
    let group = MultiThreadedEventLoopGroup(numberOfThreads: 16)
    do {
        for _ in 0..<3 {
            for loop in group.makeIterator() { try loop.submit {}.wait() }
            usleep(100_000)
        }
    } catch {
        say("FAILED \(error)")
        exit(1)
    }
    say("READY 0")
    readOrders { $0.stall() }
    exit(0)
}

/// Its orders are tasks of the loop.
func serveHummingbird() -> Never {
    let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
    let router = Router()
    router.get("/") { _, _ in "ok" }
    let application = Application(
        router: router,
        configuration: .init(address: .hostname("127.0.0.1", port: 0)),
        onServerRunning: { channel in say("READY \(channel.localAddress?.port ?? 0)") },
        eventLoopGroupProvider: .shared(group)
    )
    Task {
        do { try await application.run() } catch { say("FAILED \(error)") }
        exit(1)
    }
    readOrders { order in
        let loop = group.any()
        loop.execute { loop.obey(order) }
    }
    exit(0)
}
