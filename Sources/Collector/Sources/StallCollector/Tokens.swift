import FileVersions
import Foundation
import Logging
import ServiceLifecycle
import Synchronization

/// Who makes a request, and what they may do.
struct Caller: Hashable, Sendable {
    /// The team whose reports they send and see.
    var team: String
    var scopes: Set<Scope>
    /// How many records per second the token may send. Nil: the rate in the collector's options.
    var recordsPerSecond: Double?
    /// Equal for all requests with the same token while the process runs. The token cannot be derived from it.
    var token = 0

    enum Scope: String, Sendable {
        case read, write
        /// The collector's own counts, which are totals of all teams.
        case metrics
    }
}

/// The tokens of a file that an operator maintains.
///
/// Each line is a token: `TEAM SCOPES TOKEN [RATE]`. The scopes are a list of `read`, `write` and `metrics`, separated by commas;
/// the rate is the number of records per second that the token may send, such as `500/s`. Empty lines and lines that begin with #
/// are skipped.
public struct Tokens: Sendable {
    private var callers: [(token: [UInt8], caller: Caller)] = []
    let path: String
    /// The file's version that was read.
    let version: FileVersion?

    /// Reads a token file.
    ///
    /// - Throws: ``CollectorError`` if the file cannot be read, if other users may read it, or if a line has another form.
    public init(path: String) throws(CollectorError) {
        self.path = path
        // It comes first: a change after it is noticed.
        version = FileVersion(path)
        // An editor may have ended lines by CR LF, which is one character, or begun the file with a byte order mark.
        let text = try Self.text(path).trimmingPrefix("\u{FEFF}")
        let lines = text.split(omittingEmptySubsequences: false, whereSeparator: \.isNewline)
        for (number, line) in lines.enumerated() {
            let words = line.split(whereSeparator: \.isWhitespace)
            guard let first = words.first, !first.hasPrefix("#") else { continue }
            do throws(CollectorError) {
                try add(words)
            } catch {
                throw CollectorError("\(path):\(number + 1): \(error)")
            }
        }
        guard !callers.isEmpty else { throw CollectorError("there is no token in \(path)") }
    }

    private mutating func add(_ words: [Substring]) throws(CollectorError) {
        let (caller, token) = (try Self.caller(words), Array(words[2].utf8))
        // Only one of the two lines could apply.
        guard !callers.contains(where: { $0.token == token }) else {
            throw CollectorError("an earlier line has the same token")
        }
        callers.append((token, caller))
    }

    private static func text(_ path: String) throws(CollectorError) -> String {
        guard let text = try? String(contentsOfFile: path, encoding: .utf8),
            let version = FileVersion(path)
        else { throw CollectorError("the tokens' file \(path) cannot be read") }
        guard !version.isForEverybody else {
            throw CollectorError("everybody may read the tokens' file \(path): chmod o= \(path)")
        }
        return text
    }

    private static func caller(_ words: [Substring]) throws(CollectorError) -> Caller {
        let isWhole = words.count == 3 || words.count == 4
        let scopes = isWhole ? words[1].split(separator: ",").map { Caller.Scope(rawValue: String($0)) } : []
        guard !scopes.isEmpty, !scopes.contains(nil), words[0].utf8.count <= 64 else {
            throw CollectorError("a line is TEAM SCOPES TOKEN [RATE], like: payments read,write s3cr3t… 500/s")
        }
        guard words[2].utf8.count >= 16 else {
            throw CollectorError("the token is too short to be safe: it needs at least 16 characters")
        }
        var hasher = Hasher()
        hasher.combine(words[2])
        return Caller(
            team: String(words[0]),
            scopes: Set(scopes.compactMap(\.self)),
            recordsPerSecond: try words.dropFirst(3).first.map(rate),
            token: hasher.finalize()
        )
    }

    private static func rate(_ word: Substring) throws(CollectorError) -> Double {
        guard word.hasSuffix("/s"), let number = Double(word.dropLast(2)), number.isFinite, number > 0 else {
            throw CollectorError("the rate is a number of records a second, like 500/s")
        }
        return number
    }

    /// Takes the same time for every wrong token, so that the time reveals nothing about the right ones.
    func caller(of token: some Collection<UInt8>) -> Caller? {
        let token = Array(token)
        var found: Caller?
        for (known, caller) in callers where Self.isEqual(known, token) { found = caller }
        return found
    }

    fileprivate func has(_ caller: Caller) -> Bool { callers.contains { $0.caller == caller } }

    fileprivate func has(team: String) -> Bool { callers.contains { $0.caller.team == team } }

    private static func isEqual(_ one: [UInt8], _ other: [UInt8]) -> Bool {
        var difference = UInt8(one.count == other.count ? 0 : 1)
        for index in one.indices { difference |= one[index] ^ (index < other.count ? other[index] : 0) }
        return difference == 0
    }
}

/// The current tokens. The file is read again when it has changed. Any thread.
final class TokenFile: Service {
    private let state: Mutex<(tokens: Tokens, version: FileVersion?, mistake: String?)>
    private let path: String
    private let every: Duration
    private let audit: AuditLog?
    private let logger: Logger

    init(_ tokens: Tokens, every: Duration, audit: AuditLog?, logger: Logger) {
        (path, self.every, self.audit, self.logger) = (tokens.path, every, audit, logger)
        state = Mutex((tokens, tokens.version, nil))
    }

    func caller(of token: some Collection<UInt8>) -> Caller? { state.withLock { $0.tokens }.caller(of: token) }

    /// Whether the caller's token is still there, and permits the same.
    func has(_ caller: Caller) -> Bool { state.withLock { $0.tokens }.has(caller) }

    func has(team: String) -> Bool { state.withLock { $0.tokens }.has(team: team) }

    func run() async throws {
        await cancelWhenGracefulShutdown {
            while !Task.isCancelled {
                do { try await Task.sleep(for: self.every) } catch { return }
                self.refresh()
            }
        }
    }

    /// Reads the file if it has changed. If it cannot be used, the tokens stay unchanged, and it is read again each time: the
    /// reason may be that no descriptor is left.
    func refresh() {
        let version = FileVersion(path)
        let (_, known, former) = state.withLock { $0 }
        guard version != known || former != nil else { return }
        do throws(CollectorError) {
            let tokens = try Tokens(path: path)
            state.withLock { $0 = (tokens, version, nil) }
            audit?.write(.init(action: "tokens", outcome: "read"))
            logger.notice("the tokens' file was read again")
        } catch {
            state.withLock { ($0.version, $0.mistake) = (version, error.description) }
            guard version != known || error.description != former else { return }
            audit?.write(.init(action: "tokens", outcome: "refused", reason: error.description))
            logger.error("the tokens stay as they were", metadata: ["error": "\(error)"])
        }
    }
}
