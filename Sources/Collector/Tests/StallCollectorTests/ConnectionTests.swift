import Foundation
import HTTPTypes
import Logging
import ServiceLifecycle
import StallReports
import StallStore
import Synchronization
import Testing

@testable import StallCollector

@Suite("Connections that take too long", .serialized, .timeLimit(.minutes(5)))
struct ConnectionTests {
    @Test("A client that sends more after a refusal gets the answer and the end of the connection")
    func refused() async throws {
        try await Samples.withStore { store, directory in
            let file = directory + "/tokens"
            try "red read,write red-token-0123456789\n".write(toFile: file, atomically: true, encoding: .utf8)
            try FileManager.default.setAttributes([.posixPermissions: 0o600], ofItemAtPath: file)
            var options = CollectorOptions()
            options.tokens = try Tokens(path: file)
            options.requestTime = .seconds(3600)
            try await Client.withServer(store, options) { client in
                let connection = try Connection(port: client.port)
                #expect(
                    connection.send("POST /v1/reports HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999999\r\n\r\nx")
                )
                var text = ""
                while !text.contains("\r\n\r\n"), let more = await connection.receive() { text += more }
                #expect(text.hasPrefix("HTTP/1.1 401"), "\(text)")
                // The announced body never ends; the server does not wait for it.
                while await connection.receive() != nil {}
                #expect(try await connection.isClosed(sending: String(repeating: "x", count: 1000)))
            }
        }
    }

    @Test("A body in a wrong transfer encoding is the sender's mistake, not the store's")
    func wrongChunks() async throws {
        try await Client.withServer(StubStore(), CollectorOptions()) { client in
            let connection = try Connection(port: client.port)
            let head = "POST /v1/reports HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
            #expect(connection.send(head + "Transfer-Encoding: chunked\r\n\r\nno length\r\n"))
            var text = ""
            while let more = await connection.receive() { text += more }
            #expect(text.hasPrefix("HTTP/1.1 400") && text.contains("transfer encoding"), "\(text)")
        }
    }

    @Test("A client that waits to be told sends its body when it will be read, and is not told if it will not")
    func expectations() async throws {
        try await Client.withServer(StubStore(), CollectorOptions()) { client in
            let body = String(decoding: try Samples.report().json(), as: UTF8.self)
            let length = "Content-Length: \(body.utf8.count)\r\n"
            let head = "POST /v1/reports HTTP/1.1\r\nHost: localhost\r\n\(length)Expect: 100-continue\r\n"
            let connection = try Connection(port: client.port)
            #expect(connection.send(head + "Content-Type: application/x-ndjson\r\n\r\n"))
            #expect(await connection.receive() == "HTTP/1.1 100 Continue\r\n\r\n")
            #expect(connection.send(body))
            #expect(await connection.receive()?.hasPrefix("HTTP/1.1 202") == true)
            let refused = try Connection(port: client.port)
            #expect(refused.send(head + "Content-Type: text/plain\r\n\r\n"))
            #expect(await refused.receive()?.hasPrefix("HTTP/1.1 415") == true)
        }
    }

    @Test("A client that does not read is cut off and does not delay the shutdown")
    func stalledReaders() async throws {
        var options = CollectorOptions()
        options.writeTime = .milliseconds(500)
        // More than all buffers between the two hold.
        let store = StubStore(reportBytes: 1 << 20)
        try await Client.withServer(store, options) { client in
            let connection = try Connection(port: client.port)
            #expect(connection.send("GET /api/v1/records HTTP/1.1\r\nHost: localhost\r\n\r\n"))
            // It is closed although nothing is read: sending to it finally fails.
            #expect(try await connection.isClosed(sending: "\r\n"))
        }
    }

    @Test("A client that does not read a large answer counts as a reader until the rest of it is sent")
    func slowReader() async throws {
        var options = CollectorOptions()
        (options.maximumReaders, options.writeTime) = (1, .seconds(300))
        try await Samples.withStore { store, _ in
            var report = Samples.report()
            // More than the kernel keeps of what was not received.
            report.metadata = ["noise": String(repeating: "x", count: 8_000_000)]
            _ = try await store.insert([Arrival(json: report.json(), team: "default")])
            let path = "/api/v1/reports/\(report.id)"
            try await Client.withServer(store, options) { client in
                let slow = try Connection(port: client.port, receiveBytes: 4096)
                _ = slow.send("GET \(path) HTTP/1.1\r\nHost: localhost\r\n\r\n")
                #expect(await slow.receive()?.hasPrefix("HTTP/1.1 200") == true)
                for _ in 0..<3 {
                    let status = try await client.execute(uri: path, method: .get) { $0.status }
                    #expect(status == .tooManyRequests)
                }
                withExtendedLifetime(slow) {}
            }
        }
    }

    @Test("Work that is unfinished at the end of the shutdown time is cut off")
    func shutdown() async throws {
        var options = CollectorOptions()
        (options.writeTime, options.shutdownTime) = (.seconds(3600), .milliseconds(500))
        let store = StubStore(reportBytes: 1 << 20)
        let connections = Mutex<[Connection]>([])
        try await Client.withServer(store, options) { client in
            let connection = try Connection(port: client.port)
            #expect(connection.send("GET /api/v1/records HTTP/1.1\r\nHost: localhost\r\n\r\n"))
            #expect(await connection.receive() != nil)
            connections.withLock { $0.append(connection) }
        }
        // This returns: a client that no longer reads does not delay the shutdown.
        #expect(connections.withLock { $0.count } == 1)
    }

    @Test("An address gets at most its number of connections, and new ones when some have ended")
    func peers() async throws {
        let peers = PeerConnections(limit: 2)
        #expect(peers.open("a") && peers.open("a") && !peers.open("a") && peers.open("b"))
        peers.close("a")
        #expect(peers.open("a") && !peers.open("a"))
        // A site has 2^64 addresses of IPv6, in one network.
        #expect(peers.open("2001:db8::1") && peers.open("2001:db8:0:0:ffff::2") && !peers.open("2001:db8::3"))
        #expect(peers.open("2001:db8:0:1::1") && peers.open("10.0.0.1") && peers.open("10.0.0.2"))
        peers.close("2001:db8::1")
        #expect(peers.open("2001:db8::3") && !peers.open("2001:db8::1"))
        var options = CollectorOptions()
        options.maximumPeerConnections = 2
        try await Client.withServer(StubStore(), options) { client in
            let connections = try (0..<2).map { _ in try Connection(port: client.port) }
            for connection in connections {
                #expect(connection.send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"))
                #expect(await connection.receive()?.hasPrefix("HTTP/1.1 200") == true)
            }
            let third = try Connection(port: client.port)
            _ = third.send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            #expect(await third.receive() == nil)
            #expect(try await third.isClosed(sending: "\r\n"))
        }
    }

    @Test("After a shutdown amid many requests, everything acknowledged is on the disk")
    func shutdownUnderLoad() async throws {
        try await Samples.withStore { store, directory in
            var options = CollectorOptions()
            options.port = 0
            let (ports, port) = AsyncStream.makeStream(of: Int.self)
            let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
            let collector = try Collector(store, options, logger: logger) { port.yield($0) }
            let services = Collector.group(collector, options, ending: .ignore, logger: logger)
            let acknowledged = Acknowledged()
            try await withThrowingTaskGroup(of: Void.self) { group in
                group.addTask { try await services.run() }
                var found = ports.makeAsyncIterator()
                let client = Client(port: try #require(await found.next()))
                for _ in 0..<8 {
                    group.addTask {
                        // Until it no longer exists.
                        while let ids = try? await Self.post(client) { acknowledged.add(ids) }
                    }
                }
                group.addTask {
                    while acknowledged.ids.count < 200 { try await Task.sleep(for: .milliseconds(5)) }
                    await services.triggerGracefulShutdown()
                }
                try await group.waitForAll()
            }
            let later = try SQLiteStore(path: directory + "/stalls.db")
            for id in acknowledged.ids {
                #expect(try await later.report(id, team: "default") != nil, "\(id) was acknowledged")
            }
        }
    }

    private struct Refused: Error {}

    private final class Acknowledged: Sendable {
        private let known = Mutex<[ULID]>([])
        var ids: [ULID] { known.withLock { $0 } }
        func add(_ more: [ULID]) { known.withLock { $0 += more } }
    }

    private static func post(_ client: Client) async throws -> [ULID] {
        let reports = (0..<5).map { _ in Samples.report() }
        let status = try await client.execute(
            uri: "/v1/reports",
            method: .post,
            headers: [.contentType: "application/x-ndjson"],
            body: reports.flatMap { try $0.json() }
        ) { $0.status }
        guard status == .accepted else { throw Refused() }
        return reports.map(\.id)
    }
}
