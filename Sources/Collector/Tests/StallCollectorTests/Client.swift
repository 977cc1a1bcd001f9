import Foundation
import Glibc
import HTTPTypes
import Logging
import ServiceLifecycle
import StallCollector
import StallStore
import WebRequests

/// Sends requests to a collector that runs in this process, over a real connection.
struct Client: Sendable {
    let port: Int
    private var base: String { "http://127.0.0.1:\(port)" }

    struct Answer: Sendable {
        var status: HTTPResponse.Status
        var headers: HTTPFields
        var body: [UInt8]
    }

    /// Runs a collector on a free port during the work.
    static func withServer(
        _ store: any StallStore,
        _ options: CollectorOptions,
        _ work: @escaping @Sendable (Client) async throws -> Void
    ) async throws {
        var options = options
        options.port = 0
        let (ports, port) = AsyncStream.makeStream(of: Int.self)
        let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
        let collector = try Collector(store, options, logger: logger) { port.yield($0) }
        let services = Collector.group(collector, options, ending: .ignore, logger: logger)
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask {
                defer { port.finish() }
                try await services.run()
            }
            group.addTask {
                for await port in ports {
                    try await work(Client(port: port))
                    break
                }
                await services.triggerGracefulShutdown()
            }
            do {
                try await group.waitForAll()
            } catch {
                await services.triggerGracefulShutdown()
                throw error
            }
        }
    }

    /// Receives events until there are this many.
    func events(_ path: String, lastID: String? = nil, count: Int) async throws -> [(id: String, data: String)] {
        let connection = try Connection(port: port)
        let last = lastID.map { "Last-Event-ID: \($0)\r\n" } ?? ""
        _ = connection.send("GET \(path) HTTP/1.1\r\nHost: localhost\r\n\(last)\r\n")
        var (events, text): ([(id: String, data: String)], String) = ([], "")
        while events.count < count, let more = await connection.receive() {
            text += more
            events = text.split(separator: "id: ").dropFirst().compactMap { part in
                let lines = part.split(separator: "\n", omittingEmptySubsequences: false)
                guard lines.count >= 3, lines[1].hasPrefix("data: ") else { return nil }
                return (String(lines[0]), String(lines[1].dropFirst(6)))
            }
        }
        return events
    }

    func execute<Result>(
        uri: String,
        method: HTTPRequest.Method,
        headers: HTTPFields = [:],
        body: [UInt8] = [],
        _ look: (Answer) throws -> Result
    ) async throws -> Result {
        var request = WebRequest(base + uri, limit: .whole(.seconds(60)))
        request.fields += headers.map { ($0.name.rawName, $0.value) }
        if method == .post { request.body = body }
        let (head, answer) = try await request.answer(bytes: 1 << 30)
        var fields = HTTPFields()
        for (name, value) in head.fields {
            guard let name = HTTPField.Name(name) else { continue }
            fields[name] = value
        }
        return try look(Answer(status: .init(code: head.status), headers: fields, body: answer))
    }
}

/// A plain connection to this machine.
final class Connection: Sendable {
    private let descriptor: Int32

    /// - Parameter receiveBytes: How much the kernel keeps that was not received yet. Nil: as usual, some megabytes.
    init(port: Int, receiveBytes: Int32? = nil) throws {
        descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        if var receiveBytes {
            let size = socklen_t(MemoryLayout<Int32>.size)
            _ = unsafe setsockopt(descriptor, SOL_SOCKET, SO_RCVBUF, &receiveBytes, size)
        }
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = in_port_t(port).bigEndian
        address.sin_addr.s_addr = INADDR_LOOPBACK.bigEndian
        let status = unsafe withUnsafePointer(to: &address) { pointer in
            unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                unsafe connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
        guard status == 0 else { throw URLError(.cannotConnectToHost) }
    }

    /// - Returns: whether the connection is still open.
    func send(_ text: String) -> Bool {
        let bytes = Array(text.utf8)
        return unsafe Glibc.send(descriptor, bytes, bytes.count, Int32(MSG_NOSIGNAL)) == bytes.count
    }

    /// - Returns: nil if it has ended, or nothing came for a minute or for this many hundredths of a second.
    func receive(attempts: Int = 6000) async -> String? {
        var buffer = [UInt8](repeating: 0, count: 65536)
        for _ in 0..<attempts {
            let count = unsafe recv(descriptor, &buffer, buffer.count, Int32(MSG_DONTWAIT))
            if count > 0 { return String(decoding: buffer[..<count], as: UTF8.self) }
            guard count < 0, errno == EAGAIN else { return nil }
            try? await Task.sleep(for: .milliseconds(10))
        }
        return nil
    }

    /// Sends until the other end has closed it. False if that takes more than a minute.
    func isClosed(sending text: String) async throws -> Bool {
        let end = ContinuousClock.now + .seconds(60)
        while send(text) {
            if ContinuousClock.now > end { return false }
            try await Task.sleep(for: .milliseconds(20))
        }
        return true
    }

    deinit { close(descriptor) }
}
