import Foundation
import NIOCore
import NIOHTTP1
import Synchronization

/// Why ClickHouse did not execute a statement.
struct ClickHouseError: Error, Hashable, CustomStringConvertible {
    enum Kind: Hashable { case unreachable, cut, timedOut, tooLarge, garbled, refused(Int) }

    var kind: Kind
    var description: String

    /// The server's error number; nil if it gave none.
    var code: Int? { if case .refused(let code) = kind { code } else { nil } }

    /// Whether no replica of some shard can be reached for a Distributed table.
    var isPartOfClusterGone: Bool { code.map { [279, 519].contains($0) } ?? false }

    /// Whether another server, or the same one later, may succeed: network and socket errors, too many queries, a replica that is
    /// read-only or has lost ZooKeeper, a quorum that is not yet met, too many parts.
    var isPassing: Bool {
        switch kind {
        case .unreachable, .cut: true
        case .refused(let code): [202, 209, 210, 225, 242, 252, 279, 285, 286, 319, 999].contains(code)
        case .timedOut, .tooLarge, .garbled: false
        }
    }

    init(_ failure: HTTPFailure) {
        (kind, description) =
            switch failure {
            case .unreachable: (.unreachable, "no server of ClickHouse can be reached")
            case .cut: (.cut, "the connection to ClickHouse ended in the middle of an answer")
            case .timedOut: (.timedOut, "ClickHouse did not answer in time")
            case .tooLarge: (.tooLarge, "ClickHouse's answer is too large")
            }
    }

    init(garbled description: String) { (kind, self.description) = (.garbled, description) }

    /// The number in "Code: 395, e.displayText() = …".
    static func code(in text: String) -> Int? {
        guard text.hasPrefix("Code: ") else { return nil }
        return Int(text.dropFirst(6).prefix { $0.isASCII && $0.isNumber })
    }

    /// The error's text without the query and the rows: report data must not get into a log.
    init(code: Int, _ text: String) {
        kind = .refused(code)
        let message = text.prefix { $0 != "\n" }.prefix(300)
        description = "ClickHouse refused: \(message)"
    }
}

/// Sends statements to the servers of a store over HTTP/1.1. It reuses connections, and tries the next server if one fails.
final class ClickHouseClient: Sendable {
    struct Statement: Sendable {
        var sql: [UInt8]
        var settings: [(String, String)] = []
        var timeout = Duration.seconds(30)
        var maximumBytes = 64 << 20
        /// Whether executing it twice does no harm. Then it is sent again if it is unknown whether it was executed.
        var isIdempotent = true

        init(_ sql: String) { self.sql = Array(sql.utf8) }
        init(_ rows: TabbedRows) { sql = rows.bytes }
    }

    /// Servers close connections that were idle for 3 seconds (18.16) or 10 seconds (current versions).
    static let idleTime = TimeAmount.seconds(2)

    private let address: ClickHouseAddress
    private let state: Mutex<State>

    private struct State {
        var idle: [[(channel: any Channel, since: NIODeadline)]]
        /// The index of the server that answered last.
        var preferred: Int
    }

    init(_ address: ClickHouseAddress) {
        self.address = address
        state = Mutex(State(idle: .init(repeating: [], count: address.endpoints.count), preferred: 0))
    }

    deinit { state.withLock { for idle in $0.idle.joined() { idle.channel.close(promise: nil) } } }

    /// Tries until one server has executed the statement or the time is over.
    func send(_ statement: Statement, inDatabase: Bool = true) async throws -> [UInt8] {
        let deadline = NIODeadline.now() + TimeAmount(statement.timeout)
        let head = requestHead(statement, inDatabase: inDatabase)
        let first = state.withLock { $0.preferred }
        var (tries, answer): (Int, ClickHouseError?) = (0, nil)
        while true {
            let index = (first + tries) % address.endpoints.count
            let error: ClickHouseError
            do {
                let answer = try await exchange(statement, head, index, deadline)
                state.withLock { $0.preferred = index }
                return answer
            } catch let failure as ClickHouseError {
                error = failure
            }
            // A server's error is more informative than the fact that another server is unreachable.
            if error.code != nil { answer = error }
            let last = answer ?? error
            tries += 1
            guard error.isPassing, statement.isIdempotent || error.kind == .unreachable else { throw last }
            // Tries each server once without waiting, then all of them again after a pause. A query is not tried again.
            if tries >= address.endpoints.count {
                let pause = Duration.milliseconds(min(1000, 50 << min(tries, 5)))
                guard statement.isInsert, NIODeadline.now() + TimeAmount(pause) < deadline else { throw last }
                try await Task.sleep(for: pause)
            }
        }
    }

    private func exchange(
        _ statement: Statement,
        _ head: HTTPRequestHead,
        _ index: Int,
        _ deadline: NIODeadline
    ) async throws -> [UInt8] {
        var head = head
        head.headers.add(name: "Host", value: address.endpoints[index].authority)
        while true {
            let kept = keptChannel(index)
            do {
                var channel = kept
                if channel == nil {
                    channel = try await HTTPExchange.connect(address.endpoints[index], deadline: deadline)
                }
                guard let channel else { throw HTTPFailure.unreachable }
                return try await exchange(statement, head, channel, index, deadline)
            } catch HTTPFailure.cut where kept != nil && statement.isIdempotent {
                // The server closed the idle connection: open a new one.
                continue
            } catch let failure as HTTPFailure {
                throw ClickHouseError(failure)
            }
        }
    }

    private func exchange(
        _ statement: Statement,
        _ head: HTTPRequestHead,
        _ channel: any Channel,
        _ index: Int,
        _ deadline: NIODeadline
    ) async throws -> [UInt8] {
        let promise = channel.eventLoop.makePromise(of: HTTPAnswer.self)
        let request = HTTPRequest(
            head: head,
            body: ByteBuffer(bytes: statement.sql),
            deadline: deadline,
            maximumBytes: statement.maximumBytes,
            answer: promise
        )
        HTTPExchange.send(request, on: channel)
        let answer = try await promise.futureResult.get()
        if answer.keepsAlive {
            state.withLock { $0.idle[index].append((channel, .now())) }
        } else {
            channel.close(promise: nil)
        }
        return try Self.checked(answer)
    }

    private func keptChannel(_ index: Int) -> (any Channel)? {
        state.withLock { state in
            while let (channel, since) = state.idle[index].popLast() {
                if channel.isActive, NIODeadline.now() - since < Self.idleTime { return channel }
                channel.close(promise: nil)
            }
            return nil
        }
    }

    private static func checked(_ answer: HTTPAnswer) throws(ClickHouseError) -> [UInt8] {
        let body = Array(answer.body.readableBytesView)
        guard answer.status != 200 else { return body }
        let text = String(decoding: body.prefix(1000), as: UTF8.self)
        throw ClickHouseError(
            code: ClickHouseError.code(in: text) ?? 0,
            text.isEmpty ? "status \(answer.status)" : text
        )
    }

    private func requestHead(_ statement: Statement, inDatabase: Bool) -> HTTPRequestHead {
        var settings = [
            // Makes the server send the status after the whole answer.
            ("wait_end_of_query", "1"),
            // Long lists of ids and names need these limits.
            ("max_query_size", "67108864"), ("max_ast_elements", "2000000"), ("max_expanded_ast_elements", "2000000"),
            ("max_execution_time", "\(max(1, statement.timeout.components.seconds))"),
        ]
        if inDatabase { settings.append(("database", address.database)) }
        settings += statement.settings
        let query = settings.map { "\($0.0)=\($0.1)" }.joined(separator: "&")
        var headers: HTTPHeaders = [
            "Content-Length": "\(statement.sql.count)", "X-ClickHouse-User": address.user ?? "default",
        ]
        if let password = address.password { headers.add(name: "X-ClickHouse-Key", value: password) }
        return HTTPRequestHead(version: .http1_1, method: .POST, uri: "/?\(query)", headers: headers)
    }
}

extension ClickHouseClient.Statement {
    fileprivate var isInsert: Bool { sql.starts(with: "INSERT".utf8) }
}

extension TimeAmount {
    init(_ duration: Duration) {
        let (seconds, attoseconds) = duration.components
        self = .nanoseconds(seconds * 1_000_000_000 + attoseconds / 1_000_000_000)
    }
}
