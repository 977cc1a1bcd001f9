internal import Foundation
internal import HTTPTypes
internal import Hummingbird
internal import Logging
internal import ServiceLifecycle
internal import Synchronization

/// Who asks, and what they may do.
struct Caller: Hashable, Sendable {
    /// Whose reports they send and see.
    var team: String
    var scopes: Set<Scope>

    enum Scope: String, Sendable {
        case read, write
        /// The collector's own counts, in which all teams are added up.
        case metrics
    }
}

/// The tokens that are known, by a file that an operator keeps.
///
/// A line is a token: `TEAM SCOPES TOKEN`, the scopes some of `read`, `write` and `metrics`, with commas. Empty lines and those that begin with #
/// are passed over.
public struct Tokens: Sendable {
    private var callers: [(token: [UInt8], caller: Caller)] = []
    let path: String

    /// - Throws: ``CollectorError``: where it cannot be read, or a line is not as above; or where others than its owner may read it.
    public init(path: String) throws(CollectorError) {
        self.path = path
        let text: String
        do {
            text = try String(contentsOfFile: path, encoding: .utf8)
            let mode = try FileManager.default.attributesOfItem(atPath: path)[.posixPermissions] as? Int
            guard let mode, mode & 0o007 == 0 else {
                throw CollectorError("everybody may read the tokens' file \(path): chmod o= \(path)")
            }
        } catch let error as CollectorError {
            throw error
        } catch {
            throw CollectorError("the tokens' file \(path) cannot be read")
        }
        for (number, line) in text.split(separator: "\n", omittingEmptySubsequences: false).enumerated() {
            let words = line.split(whereSeparator: \.isWhitespace)
            guard let first = words.first, !first.hasPrefix("#") else { continue }
            let scopes =
                words.count == 3 ? words[1].split(separator: ",").map { Caller.Scope(rawValue: String($0)) } : []
            guard !scopes.isEmpty, !scopes.contains(nil), first.utf8.count <= 64 else {
                throw CollectorError(
                    "\(path):\(number + 1): a line is TEAM SCOPES TOKEN, like: payments read,write s3cr3t…"
                )
            }
            guard words[2].utf8.count >= 16 else {
                throw CollectorError("\(path):\(number + 1): the token is too short to be safe: 16 characters at least")
            }
            callers.append((Array(words[2].utf8), Caller(team: String(first), scopes: Set(scopes.compactMap(\.self)))))
        }
        guard !callers.isEmpty else { throw CollectorError("there is no token in \(path)") }
    }

    /// Takes the same time for each wrong token.
    func caller(of token: some Collection<UInt8>) -> Caller? {
        let token = Array(token)
        var found: Caller?
        for (known, caller) in callers where Self.isEqual(known, token) { found = caller }
        return found
    }

    private static func isEqual(_ one: [UInt8], _ other: [UInt8]) -> Bool {
        var difference = UInt8(one.count == other.count ? 0 : 1)
        for index in one.indices { difference |= one[index] ^ (index < other.count ? other[index] : 0) }
        return difference == 0
    }
}

/// The tokens as they are now: the file is read again when it changed. For any thread.
final class TokenFile: Service {
    private let state: Mutex<(tokens: Tokens, version: Version?)>
    private let path: String
    private let every: Duration
    private let audit: AuditLog?
    private let logger: Logger

    private struct Version: Hashable {
        var modifiedAt: Date?
        var number: Int?
        var size: Int?

        init?(_ path: String) {
            guard let attributes = try? FileManager.default.attributesOfItem(atPath: path) else { return nil }
            modifiedAt = attributes[.modificationDate] as? Date
            number = attributes[.systemFileNumber] as? Int
            size = attributes[.size] as? Int
        }
    }

    init(_ tokens: Tokens, every: Duration, audit: AuditLog?, logger: Logger) {
        (path, self.every, self.audit, self.logger) = (tokens.path, every, audit, logger)
        state = Mutex((tokens, Version(tokens.path)))
    }

    func caller(of token: some Collection<UInt8>) -> Caller? { state.withLock { $0.tokens }.caller(of: token) }

    func run() async throws {
        await cancelWhenGracefulShutdown {
            while !Task.isCancelled {
                do { try await Task.sleep(for: self.every) } catch { return }
                self.refresh()
            }
        }
    }

    /// A file that cannot be used leaves the tokens as they were.
    func refresh() {
        let version = Version(path)
        guard version != state.withLock({ $0.version }) else { return }
        do throws(CollectorError) {
            let tokens = try Tokens(path: path)
            state.withLock { $0 = (tokens, version) }
            audit?.write(.init(action: "tokens", outcome: "read"))
            logger.notice("the tokens' file was read again")
        } catch {
            state.withLock { $0.version = version }
            audit?.write(.init(action: "tokens", outcome: "refused", reason: error.description))
            logger.error("the tokens stay as they were", metadata: ["error": "\(error)"])
        }
    }
}

struct CollectorContext: RequestContext {
    var coreContext: CoreRequestContextStorage
    /// Set where a path asks for one.
    var caller: Caller?
    /// Its address.
    let peer: String?

    init(source: Source) {
        coreContext = .init(source: source)
        peer = source.channel.remoteAddress?.ipAddress
    }

    /// The team, where the caller may do this.
    func team(_ scope: Caller.Scope) throws(Refusal) -> String {
        guard let caller else { throw Refusal(.unauthorized, "a token is needed") }
        guard caller.scopes.contains(scope) else {
            throw Refusal(
                .forbidden,
                "the token does not permit '\(scope.rawValue)'; its line in the tokens' file says what it does"
            )
        }
        return caller.team
    }
}

/// Finds out who asks: by `Authorization: Bearer TOKEN`, or by a browser's own question for a password, which is the token.
struct AccessMiddleware: RouterMiddleware {
    /// Nil: anybody on this machine may do everything.
    let tokens: TokenFile?
    let metrics: CollectorMetrics
    let audit: AuditLog?

    func handle(
        _ request: Request,
        context: CollectorContext,
        next: (Request, CollectorContext) async throws -> Response
    ) async throws -> Response {
        var context = context
        if let tokens {
            guard let caller = Self.token(of: request).flatMap({ tokens.caller(of: $0) }) else {
                metrics.denied.add(1)
                let refusal = Refusal(
                    .unauthorized,
                    "a token is needed that the collector knows: Authorization: Bearer TOKEN",
                    [.wwwAuthenticate: Self.challenge(request)]
                )
                audit?.write(.init(action: "access", team: "", peer: context.peer, refusal: refusal))
                throw refusal
            }
            context.caller = caller
        } else {
            // A page from elsewhere, whose name was made to lead here, must not speak for the person before the browser.
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

    /// Only browsers ask a person for a password.
    private static func challenge(_ request: Request) -> String {
        let isBrowser = request.headers[.accept]?.contains("text/html") ?? false
        return isBrowser ? "Basic realm=\"stall-collector\", charset=\"UTF-8\"" : "Bearer realm=\"stall-collector\""
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
