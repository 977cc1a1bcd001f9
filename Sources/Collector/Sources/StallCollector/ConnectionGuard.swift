import Glibc
import HTTPTypes
import NIOCore
import NIOHTTPTypes
import Synchronization

/// Time limits of connections.
struct ConnectionLimits: Sendable {
    /// The time from a request's head to its end. The idle timeout does not detect a request of which a byte arrives now and
    /// then.
    var requestTime: TimeAmount
    /// How long the peer may take to accept a piece of an answer.
    var writeTime: TimeAmount
    /// After an answer that closes the connection, further input is discarded for this long, so that the peer can read the
    /// answer.
    var lingerTime = TimeAmount.seconds(2)
    var peers: PeerConnections?
}

/// Closes connections that take too long: to send a request, to accept the answer, or to end after an answer that closes the
/// connection.
///
/// Each connection has its own guard.
final class ConnectionGuard: ChannelDuplexHandler, RemovableChannelHandler {
    typealias InboundIn = HTTPRequestPart
    typealias InboundOut = HTTPRequestPart
    typealias OutboundIn = HTTPResponsePart
    typealias OutboundOut = HTTPResponsePart

    private let limits: ConnectionLimits
    private var requestDeadline: Scheduled<Void>?
    private var writeDeadline: Scheduled<Void>?
    private var lingerDeadline: Scheduled<Void>?
    /// Pieces of answers that are not yet written to the socket.
    private var pendingWrites = 0
    private var closesAfterAnswer = false
    private var peer: String?

    init(_ limits: ConnectionLimits) { self.limits = limits }

    func handlerAdded(context: ChannelHandlerContext) {
        guard let peers = limits.peers, let address = context.channel.remoteAddress?.peer else { return }
        if peers.open(address) { peer = address } else { context.close(promise: nil) }
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        for deadline in [requestDeadline, writeDeadline, lingerDeadline] { deadline?.cancel() }
        if let peer { limits.peers?.close(peer) }
        peer = nil
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        // Input after the last answer is discarded.
        guard lingerDeadline == nil else { return }
        switch unwrapInboundIn(data) {
        case .head:
            requestDeadline?.cancel()
            requestDeadline = closing(context, after: limits.requestTime)
        case .body: break
        case .end: requestDeadline?.cancel()
        }
        context.fireChannelRead(data)
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if lingerDeadline != nil, case .inputClosed = event as? ChannelEvent { context.close(promise: nil) }
        context.fireUserInboundEventTriggered(event)
    }

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        let part = unwrapOutboundIn(data)
        if case .head(let head) = part { closesAfterAnswer = head.headerFields[.connection] == "close" }
        let written = promise ?? context.eventLoop.makePromise()
        pendingWrites += 1
        if pendingWrites == 1 { writeDeadline = closing(context, after: limits.writeTime) }
        written.futureResult.assumeIsolated().whenComplete { _ in self.wrote(context) }
        guard case .end = part, closesAfterAnswer else { return context.write(data, promise: written) }
        lingerDeadline = closing(context, after: limits.lingerTime)
        context.writeAndFlush(data, promise: written)
    }

    /// A piece was written, so the full time starts again for the next one.
    private func wrote(_ context: ChannelHandlerContext) {
        pendingWrites -= 1
        writeDeadline?.cancel()
        writeDeadline = nil
        guard context.channel.isActive else { return }
        if pendingWrites > 0 {
            writeDeadline = closing(context, after: limits.writeTime)
        } else if lingerDeadline != nil {
            // The connection must not be closed earlier: closing it while the peer still sends resets it, and the answer is lost.
            context.close(mode: .output, promise: nil)
        }
    }

    private func closing(_ context: ChannelHandlerContext, after time: TimeAmount) -> Scheduled<Void> {
        context.eventLoop.assumeIsolated().scheduleTask(in: time) { context.close(promise: nil) }
    }
}

/// The addresses that one sender can choose from, for limits by address.
enum PeerNetwork {
    /// Of an IPv6 address its first 64 bits, because a network of that size belongs to one site (RFC 4291, 2.5.4). An IPv4 address stays as it
    /// is.
    static func of(_ peer: String) -> String {
        var address = [UInt8](repeating: 0, count: 16)
        guard unsafe inet_pton(AF_INET6, peer, &address) == 1 else { return peer }
        return address.prefix(8).map { String($0, radix: 16) }.joined(separator: ":")
    }
}

/// Counts the connections of each peer's network. Any thread.
final class PeerConnections: Sendable {
    private let limit: Int
    private let unlimited: Set<String>
    private let counts = Mutex<[String: Int]>([:])

    /// - Parameter unlimited: Peers that may have any number of connections.
    init(limit: Int, unlimited: Set<String> = []) { (self.limit, self.unlimited) = (limit, unlimited) }

    /// - Returns: Whether the peer may have one more connection.
    func open(_ peer: String) -> Bool {
        if unlimited.contains(peer) { return true }
        let network = PeerNetwork.of(peer)
        return counts.withLock { counts in
            let count = counts[network] ?? 0
            guard count < limit else { return false }
            counts[network] = count + 1
            return true
        }
    }

    func close(_ peer: String) {
        if unlimited.contains(peer) { return }
        let network = PeerNetwork.of(peer)
        counts.withLock { counts in
            let left = (counts[network] ?? 1) - 1
            counts[network] = left > 0 ? left : nil
        }
    }
}
