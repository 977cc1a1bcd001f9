import Foundation
import HTTPTypes
import Hummingbird
import NIOCore
import NIOHTTPTypes
import StallReports

struct CollectorContext: RequestContext {
    var coreContext: CoreRequestContextStorage
    /// Nil on paths that need no token.
    var caller: Caller?
    private let connection: any Channel
    /// The sender's address. Behind a trusted proxy, the one that the proxy names.
    var peer: String?

    init(source: Source) {
        coreContext = .init(source: source)
        connection = source.channel
        peer = source.channel.remoteAddress?.peer
    }

    /// That of the connection.
    var eventLoop: any EventLoop { connection.eventLoop }

    /// Tells a client that waits for this to send the body now. Others send it at once.
    func invite(bodyOf request: Request) {
        guard request.headers[.expect]?.lowercased() == "100-continue" else { return }
        connection.writeAndFlush(HTTPResponsePart.head(.init(status: .continue)), promise: nil)
    }

    /// - Throws: If the caller may not do this.
    func caller(_ scope: Caller.Scope) throws(Refusal) -> Caller {
        guard let caller else { throw Refusal(.unauthorized, "a token is needed") }
        guard caller.scopes.contains(scope) else {
            throw Refusal(
                .forbidden,
                "the token does not permit '\(scope.rawValue)'; its line in the tokens' file says what it does"
            )
        }
        return caller
    }

    /// The caller's team.
    ///
    /// - Throws: If the caller may not do this.
    func team(_ scope: Caller.Scope) throws(Refusal) -> String { try caller(scope).team }
}

extension SocketAddress {
    /// The IP address. A socket that listens on `[::]` has IPv4 addresses in another form (RFC 4291, 2.5.5.2); this is the one in which
    /// an operator writes them.
    var peer: String? {
        let mapped = "::ffff:"
        guard let text = ipAddress, text.hasPrefix(mapped), text.contains(".") else { return ipAddress }
        return String(text.dropFirst(mapped.count))
    }
}

/// Reads the sender's address from `X-Forwarded-For` if the request comes from a trusted proxy.
struct ForwardedAddress: RouterMiddleware {
    let proxies: Set<String>

    func handle(
        _ request: Request,
        context: CollectorContext,
        next: (Request, CollectorContext) async throws -> Response
    ) async throws -> Response {
        var context = context
        if let peer = context.peer, proxies.contains(peer), let sender = Self.sender(request.headers) {
            context.peer = sender
        }
        return try await next(request, context)
    }

    /// The last entry, which the proxy itself added. The sender may have forged the entries before it, also with a letter
    /// that joins with the comma, so that the comma is no character.
    static func sender(_ headers: HTTPFields) -> String? {
        guard let name = HTTPField.Name("X-Forwarded-For"),
            let last = headers[values: name].last?.utf8.split(separator: UInt8(ascii: ",")).last
        else { return nil }
        let address = withoutPort(String(decoding: last, as: UTF8.self).trimmingCharacters(in: .whitespaces))
        // A proxy that listens on `[::]` may write IPv4 addresses in the other form, too.
        if let peer = (try? SocketAddress(ipAddress: address, port: 0))?.peer { return peer }
        return address.isEmpty ? nil : VisibleText.of(address, limit: 64)
    }

    /// Some proxies write `198.51.100.7:52044` or `[2001:db8::7]:52044`. With its port each connection would count as another sender.
    private static func withoutPort(_ address: String) -> String {
        if address.hasPrefix("["), let end = address.firstIndex(of: "]") {
            return String(address[..<end].dropFirst())
        }
        let parts = address.split(separator: ":", omittingEmptySubsequences: false)
        return parts.count == 2 ? String(parts[0]) : address
    }
}

/// Identifies the caller: by `Authorization: Bearer TOKEN`, or by a browser's password, which is the token.
struct AccessMiddleware: RouterMiddleware {
    /// Nil: every process on this machine may do everything.
    let tokens: TokenFile?
    let metrics: CollectorMetrics
    let audit: AuditLog?
    /// Limits the log entries for wrong tokens, by the sender's address: someone who tries many must not fill the audit log. It
    /// never refuses a right token.
    private let denials = RateLimiter<String>()
    private static let denialRate = Rate(perSecond: 10)

    init(tokens: TokenFile?, metrics: CollectorMetrics, audit: AuditLog?) {
        (self.tokens, self.metrics, self.audit) = (tokens, metrics, audit)
    }

    func handle(
        _ request: Request,
        context: CollectorContext,
        next: (Request, CollectorContext) async throws -> Response
    ) async throws -> Response {
        var context = context
        if let tokens {
            guard let caller = Self.token(of: request).flatMap({ tokens.caller(of: $0) }) else {
                throw denial(request, context)
            }
            context.caller = caller
        } else {
            // Another site's page can make its host name point to this machine. It must not act with the rights of the user at
            // the browser.
            guard Self.isLocal(request.head.authority) else {
                metrics.denied.add(1)
                throw Refusal(
                    .forbidden,
                    "without tokens the collector answers to localhost only; give it some with --tokens"
                )
            }
            context.caller = Caller(team: "default", scopes: [.read, .write, .metrics])
        }
        return try await next(request, context)
    }

    private func denial(_ request: Request, _ context: CollectorContext) -> Refusal {
        metrics.denied.add(1)
        guard denials.take(context.peer.map(PeerNetwork.of) ?? "", Self.denialRate) == nil else {
            return Refusal(.tooManyRequests, "too many wrong tokens from this address", [.retryAfter: "1"])
        }
        let refusal = Refusal(
            .unauthorized,
            "a token is needed that the collector knows: Authorization: Bearer TOKEN",
            [.wwwAuthenticate: Self.challenge(request)]
        )
        audit?.write(.init(action: "access", team: "", peer: context.peer, refusal: refusal))
        return refusal
    }

    /// Only browsers ask the user for a password.
    private static func challenge(_ request: Request) -> String {
        request.asksForPage
            ? "Basic realm=\"stall-collector\", charset=\"UTF-8\"" : "Bearer realm=\"stall-collector\""
    }

    private static func token(of request: Request) -> [UInt8]? {
        guard let value = request.headers[.authorization] else { return nil }
        let parts = value.split(separator: " ", maxSplits: 1)
        guard parts.count == 2 else { return nil }
        switch parts[0].lowercased() {
        case "bearer": return Array(parts[1].utf8)
        case "basic":
            guard let data = Data(base64Encoded: String(parts[1])), let colon = data.firstIndex(of: UInt8(ascii: ":"))
            else {
                return nil
            }
            return [UInt8](data[data.index(after: colon)...])
        default: return nil
        }
    }

    private static func isLocal(_ authority: String?) -> Bool {
        guard let authority else { return false }
        let name = authority.hasPrefix("[") ? authority.prefix { $0 != "]" } + "]" : authority.prefix { $0 != ":" }
        return ["localhost", "127.0.0.1", "[::1]"].contains(String(name).lowercased())
    }
}
