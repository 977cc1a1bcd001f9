import NIOCore
import NIOHTTP1
import NIOPosix

/// An HTTP server's answer.
struct HTTPAnswer: Sendable {
    var status: Int
    var body: ByteBuffer
    /// Whether the connection can be used for another request.
    var keepsAlive: Bool
}

/// Why there is no answer.
enum HTTPFailure: Error, Hashable {
    /// There was no connection: nothing was sent.
    case unreachable
    /// The connection ended before the answer did. The request may have been executed.
    case cut
    case timedOut
    /// The answer is larger than permitted.
    case tooLarge
}

/// A request in progress on a connection.
struct HTTPRequest: Sendable {
    var head: HTTPRequestHead
    var body: ByteBuffer
    var deadline: NIODeadline
    var maximumBytes: Int
    var answer: EventLoopPromise<HTTPAnswer>
}

/// Sends one request at a time on a connection. Each request ends with an answer or a failure, no later than at its deadline.
final class HTTPExchange: ChannelDuplexHandler {
    typealias InboundIn = HTTPClientResponsePart
    typealias OutboundIn = HTTPRequest
    typealias OutboundOut = HTTPClientRequestPart

    private var request: HTTPRequest?
    private var timer: Scheduled<Void>?
    private var (status, keepsAlive) = (0, false)
    private var body = ByteBuffer()

    static func connect(_ endpoint: ClickHouseAddress.Endpoint, deadline: NIODeadline) async throws(HTTPFailure)
        -> any Channel
    {
        let left = deadline - .now()
        guard left > .zero else { throw .timedOut }
        do {
            return try await ClientBootstrap(group: MultiThreadedEventLoopGroup.singleton)
                .connectTimeout(min(left, .seconds(5)))
                .channelOption(.tcpOption(.tcp_nodelay), value: 1)
                .channelInitializer { channel in
                    channel.eventLoop.makeCompletedFuture {
                        try channel.pipeline.syncOperations.addHTTPClientHandlers()
                        try channel.pipeline.syncOperations.addHandler(HTTPExchange())
                    }
                }
                .connect(host: endpoint.host, port: endpoint.port)
                .get()
        } catch {
            throw .unreachable
        }
    }

    /// Sends a request on a connection. It ends even if the connection has ended since it was chosen: the handlers are then removed, and
    /// only the write fails.
    static func send(_ request: HTTPRequest, on channel: any Channel) {
        let written = channel.eventLoop.makePromise(of: Void.self)
        written.futureResult.whenFailure { _ in request.answer.fail(HTTPFailure.cut) }
        channel.writeAndFlush(request, promise: written)
    }

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        let request = unwrapOutboundIn(data)
        guard self.request == nil, context.channel.isActive else {
            request.answer.fail(HTTPFailure.cut)
            promise?.fail(HTTPFailure.cut)
            return
        }
        self.request = request
        (status, keepsAlive) = (0, false)
        body = ByteBuffer()
        let bound = NIOLoopBound((self, context), eventLoop: context.eventLoop)
        timer = context.eventLoop.scheduleTask(deadline: request.deadline) {
            bound.value.0.fail(.timedOut, bound.value.1)
        }
        context.write(wrapOutboundOut(.head(request.head)), promise: nil)
        context.write(wrapOutboundOut(.body(.byteBuffer(request.body))), promise: nil)
        context.write(wrapOutboundOut(.end(nil)), promise: promise)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard let request else { return }
        switch unwrapInboundIn(data) {
        case .head(let head):
            status = Int(head.status.code)
            keepsAlive = head.isKeepAlive
        case .body(var part):
            guard body.readableBytes + part.readableBytes <= request.maximumBytes else {
                fail(.tooLarge, context)
                return
            }
            body.writeBuffer(&part)
        case .end:
            // After an answer that arrived before the request was complete, the connection is not reused.
            let answer = HTTPAnswer(status: status, body: body, keepsAlive: keepsAlive && context.channel.isActive)
            end()
            request.answer.succeed(answer)
        }
    }

    func channelInactive(context: ChannelHandlerContext) {
        fail(.cut, context)
        context.fireChannelInactive()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { fail(.cut, context) }

    private func end() {
        timer?.cancel()
        (request, timer) = (nil, nil)
        body = ByteBuffer()
    }

    private func fail(_ failure: HTTPFailure, _ context: ChannelHandlerContext) {
        let request = request
        end()
        // Before the close, which fails a write in progress: that would be a cut.
        request?.answer.fail(failure)
        context.close(promise: nil)
    }
}
