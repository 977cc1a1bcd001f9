import Foundation
import NIOCore
import NIOHTTP1
import NIOPosix
import Synchronization

// Servers with preset answers.

/// Answers each statement by its text.
final class StatementServer: Sendable {
    typealias Answer = @Sendable (String) -> (status: HTTPResponseStatus, body: String)

    private final class Log: Sendable {
        let statements = Mutex<[String]>([])
        let hosts = Mutex<[String]>([])
    }
    private let channel: any Channel
    private let log = Log()
    let port: Int
    var statements: [String] { log.statements.withLock { $0 } }
    /// The field `Host` of each request.
    var hosts: [String] { log.hosts.withLock { $0 } }

    init(_ answer: @escaping Answer) async throws {
        let log = log
        channel = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.configureHTTPServerPipeline()
                    try channel.pipeline.syncOperations.addHandler(Handler(log, answer))
                }
            }
            .bind(host: "127.0.0.1", port: 0).get()
        port = channel.localAddress?.port ?? 0
    }

    deinit { channel.close(promise: nil) }

    private final class Handler: ChannelInboundHandler {
        typealias InboundIn = HTTPServerRequestPart
        typealias OutboundOut = HTTPServerResponsePart
        private let log: Log
        private let answer: Answer
        private var statement = ""

        init(_ log: Log, _ answer: @escaping Answer) { (self.log, self.answer) = (log, answer) }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            switch unwrapInboundIn(data) {
            case .head(let head):
                statement = ""
                log.hosts.withLock { $0 += head.headers["Host"] }
            case .body(let part): statement += String(buffer: part)
            case .end:
                log.statements.withLock { $0.append(statement) }
                let (status, body) = answer(statement)
                let headers: HTTPHeaders = ["Content-Length": "\(body.utf8.count)"]
                let head = HTTPResponseHead(version: .http1_1, status: status, headers: headers)
                context.write(wrapOutboundOut(.head(head)), promise: nil)
                context.write(wrapOutboundOut(.body(.byteBuffer(ByteBuffer(string: body)))), promise: nil)
                context.writeAndFlush(wrapOutboundOut(.end(nil)), promise: nil)
            }
        }
    }
}

/// Answers the end of each request's head with the same bytes.
final class ScriptedServer: Sendable {
    private let channel: any Channel
    private final class Count: Sendable {
        let value = Mutex(0)
        let answersLeft: Mutex<Int>

        init(answers: Int) { answersLeft = Mutex(answers) }

        /// Whether there is one more answer to give.
        func takesAnswer() -> Bool {
            answersLeft.withLock { left in
                left -= 1
                return left >= 0
            }
        }
    }
    private let count: Count
    let port: Int
    var connections: Int { count.value.withLock { $0 } }

    /// - Parameters:
    ///   - closes: whether the connection is closed after the answer.
    ///   - answers: after how many of them it is silent.
    init(_ answer: String, closes: Bool = false, answers: Int = .max) async throws {
        let count = Count(answers: answers)
        self.count = count
        channel = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .childChannelInitializer { channel in
                count.value.withLock { $0 += 1 }
                return channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(Handler(answer, closes, count))
                }
            }
            .bind(host: "127.0.0.1", port: 0).get()
        port = channel.localAddress?.port ?? 0
    }

    func close() async throws { try await channel.close() }

    deinit { channel.close(promise: nil) }

    private final class Handler: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer
        private let (answer, closes): (String, Bool)
        private let count: Count
        private var seen = ""

        init(_ answer: String, _ closes: Bool, _ count: Count) {
            (self.answer, self.closes, self.count) = (answer, closes, count)
        }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            seen += String(buffer: unwrapInboundIn(data))
            guard let end = seen.range(of: "\r\n\r\n"), !answer.isEmpty else { return }
            seen.removeSubrange(..<end.upperBound)
            guard count.takesAnswer() else { return }
            context.writeAndFlush(NIOAny(ByteBuffer(string: answer)), promise: nil)
            if closes { context.close(promise: nil) }
        }
    }
}
