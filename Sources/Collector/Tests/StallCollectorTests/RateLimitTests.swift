import Foundation
import HTTPTypes
import Logging
import NIOCore
import StallReports
import StallStore
import Testing

@testable import StallCollector

@Suite("The rate limit of each token", .timeLimit(.minutes(5)))
struct RateLimitTests {
    @Test("A key has its burst at once, then its rate, and waits until a debt is paid")
    func bucket() {
        let (limiter, rate, start) = (RateLimiter<String>(), Rate(perSecond: 10, burstSeconds: 1), ContinuousClock.now)
        for _ in 0..<10 { #expect(limiter.take("a", rate, now: start) == nil) }
        func milliseconds(at moment: ContinuousClock.Instant) -> Double? {
            limiter.take("a", rate, now: moment).map { ($0 / .milliseconds(1)).rounded() }
        }
        #expect(milliseconds(at: start) == 100)
        // Others are not affected.
        #expect(limiter.take("b", rate, now: start) == nil)
        #expect(milliseconds(at: start + .milliseconds(101)) == nil)
        limiter.charge(20, to: "a", rate, now: start + .milliseconds(101))
        #expect(milliseconds(at: start + .milliseconds(1100)) == 1100)
        #expect(milliseconds(at: start + .milliseconds(2201)) == nil)
        // However long nothing came, only the burst accumulates.
        let later = start + .seconds(3600)
        #expect((0..<20).filter { _ in limiter.take("a", rate, now: later) == nil }.count == 10)
    }

    @Test("Only a limited number of keys is remembered")
    func keys() {
        let (limiter, rate, start) = (RateLimiter<Int>(maximumKeys: 8), Rate(perSecond: 1), ContinuousClock.now)
        for key in 0..<100 { #expect(limiter.take(key, rate, now: start) == nil) }
        #expect(limiter.keyCount == 8)
        // Those with a full bucket are forgotten.
        #expect(limiter.take(100, rate, now: start + .seconds(60)) == nil)
        #expect(limiter.keyCount == 1)
    }

    @Test("A token above its limit is told to wait, whatever its request contains; others continue")
    func tokens() async throws {
        try await Samples.withStore { store, directory in
            var options = CollectorOptions()
            options.tokens = try Self.tokens(
                directory,
                "red write red-token-0123456789 0.01/s\nblue write blue-token-0123456789\n"
            )
            try await Client.withServer(store, options) { client in
                let reports = (0..<3).map { _ in Samples.report() }
                let body = try reports.flatMap { try $0.json() }
                // A request is accepted as a whole; then the debt is paid.
                #expect(try await Self.post(client, body, "red").status == .accepted)
                let refused = try await Self.post(client, body, "red")
                #expect(refused.status == .tooManyRequests)
                let wait = try #require(refused.headers[.retryAfter].flatMap(Int.init))
                #expect((201...300).contains(wait))
                #expect(try await Self.post(client, Array("nonsense".utf8), "red").status == .tooManyRequests)
                for _ in 0..<3 { #expect(try await Self.post(client, body, "blue").status == .accepted) }
            }
            for team in ["red", "blue"] {
                let query = StallQuery(team: team, since: Timestamp(seconds: 0), until: .now())
                #expect(try await store.count(query, limit: 100) == 3)
            }
        }
    }

    @Test("The rate in the options applies to each token without its own")
    func rates() async throws {
        try await Samples.withStore { store, directory in
            var options = CollectorOptions()
            options.limits.recordsPerSecond = 0.01
            options.tokens = try Self.tokens(
                directory,
                "red write red-token-0123456789\nred write blue-token-0123456789 1000/s\n"
            )
            try await Client.withServer(store, options) { client in
                let body = try Samples.report().json()
                for status in [HTTPResponse.Status.accepted, .tooManyRequests] {
                    #expect(try await Self.post(client, body, "red").status == status)
                }
                for _ in 0..<3 { #expect(try await Self.post(client, body, "blue").status == .accepted) }
            }
        }
    }

    @Test("Many wrong tokens do not fill the audit log, and do not lock out a valid one")
    func wrongTokens() async throws {
        try await Samples.withStore { store, directory in
            var options = CollectorOptions()
            options.tokens = try Self.tokens(directory, "red read red-token-0123456789\n")
            options.audit = directory + "/audit"
            try await Client.withServer(store, options) { client in
                let found = try await Self.guess(client) { _ in nil }
                #expect(found[.unauthorized, default: 0] >= 100)
                #expect(try await Self.get(client, "red") == .ok)
                let lines = try String(contentsOfFile: directory + "/audit", encoding: .utf8).split(separator: "\n")
                #expect(lines.filter { $0.contains("\"access\"") }.count == found[.unauthorized, default: 0])
            }
        }
    }

    @Test("Wrong tokens from the addresses of one IPv6 network count together")
    func wrongTokensOfANetwork() async throws {
        try await Samples.withStore { store, directory in
            var options = CollectorOptions()
            options.tokens = try Self.tokens(directory, "red read red-token-0123456789\n")
            options.proxies = ["127.0.0.1"]
            try await Client.withServer(store, options) { client in
                _ = try await Self.guess(client) { "2001:db8::\($0)" }
            }
        }
    }

    @Test("The address that the proxy added counts, whatever the sender wrote before it")
    func forgedAddresses() throws {
        let name = try #require(HTTPField.Name("X-Forwarded-For"))
        for forged in ["203.0.113.9", "203.0.113.9,", "x\u{D4E}", ""] {
            var headers = HTTPFields()
            headers[name] = "\(forged), 198.51.100.7"
            #expect(ForwardedAddress.sender(headers) == "198.51.100.7", "\(forged)")
        }
    }

    @Test("The port that some proxies add to an address is no part of it")
    func forwardedPorts() throws {
        let name = try #require(HTTPField.Name("X-Forwarded-For"))
        for (written, address) in [
            ("198.51.100.7:52044", "198.51.100.7"), ("[2001:db8::7]:52044", "2001:db8::7"),
            ("[2001:db8::7]", "2001:db8::7"), ("[::ffff:198.51.100.7]:1", "198.51.100.7"),
            ("2001:db8::7", "2001:db8::7"), ("unknown:1", "unknown"), ("[", "["),
        ] { #expect(ForwardedAddress.sender([name: "203.0.113.9, \(written)"]) == address) }
        #expect(ForwardedAddress.sender([name: ":1"]) == nil)
    }

    @Test("IPv4 addresses that a proxy names in the form of IPv6 are not of one network")
    func mappedSenders() throws {
        let name = try #require(HTTPField.Name("X-Forwarded-For"))
        let peers = PeerConnections(limit: 1)
        for address in ["198.51.100.7", "198.51.100.8"] {
            let sender = ForwardedAddress.sender([name: "::ffff:\(address)"])
            #expect(sender == address)
            #expect(peers.open(try #require(sender)))
        }
        #expect(ForwardedAddress.sender([name: "unknown"]) == "unknown")
    }

    @Test("An IPv4 address is the same on a socket that listens on [::]")
    func mappedAddresses() throws {
        for (text, peer) in [
            ("::ffff:10.0.0.1", "10.0.0.1"), ("10.0.0.1", "10.0.0.1"), ("::1", "::1"), ("2001:db8::7", "2001:db8::7"),
        ] {
            #expect(try SocketAddress(ipAddress: text, port: 4319).peer == peer)
        }
    }

    @Test("Behind a trusted proxy the sender is the one it names; elsewhere nobody can claim an address")
    func proxies() async throws {
        for (proxies, peer) in [(Set(["::FFFF:127.0.0.1"]), "198.51.100.7"), ([], "127.0.0.1")]
            as [(Set<String>, String)]
        {
            try await Samples.withStore { store, directory in
                var options = CollectorOptions()
                (options.proxies, options.audit) = (proxies, directory + "/audit")
                try await Client.withServer(store, options) { client in
                    try await client.execute(
                        uri: "/v1/reports",
                        method: .post,
                        headers: [
                            .contentType: "application/x-ndjson",
                            HTTPField.Name("X-Forwarded-For")!: "203.0.113.9, 198.51.100.7",
                        ],
                        body: Samples.report().json()
                    ) { #expect($0.status == .accepted) }
                }
                let audit = try String(contentsOfFile: directory + "/audit", encoding: .utf8)
                #expect(audit.contains("\"peer\":\"\(peer)\""), "\(audit)")
                #expect(!audit.contains("203.0.113.9"))
            }
        }
        let peers = PeerConnections(limit: 1, unlimited: ["proxy"])
        #expect((0..<3).allSatisfy { _ in peers.open("proxy") } && peers.open("a") && !peers.open("a"))
    }

    @Test("A proxy that is no IP address is refused: it would never be recognized")
    func proxyNames() {
        var options = CollectorOptions()
        options.proxies = ["proxy.example"]
        #expect(throws: CollectorError.self) {
            _ = try Collector(StubStore(), options, logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
        }
    }

    private static func tokens(_ directory: String, _ text: String) throws -> Tokens {
        let file = directory + "/tokens"
        try text.write(toFile: file, atomically: true, encoding: .utf8)
        try FileManager.default.setAttributes([.posixPermissions: 0o600], ofItemAtPath: file)
        return try Tokens(path: file)
    }

    private static func post(_ client: Client, _ body: [UInt8], _ token: String) async throws -> Client.Answer {
        try await client.execute(
            uri: "/v1/reports",
            method: .post,
            headers: [.contentType: "application/x-ndjson", .authorization: "Bearer \(token)-token-0123456789"],
            body: body
        ) { $0 }
    }

    /// Sends wrong tokens until 20 of them were answered by 429. A slow machine may send fewer than the limit allows: then 400.
    ///
    /// - Parameter peer: The address from which the proxy has each of them.
    private static func guess(_ client: Client, _ peer: (Int) -> String?) async throws -> [HTTPResponse.Status: Int] {
        let start = ContinuousClock.now
        var found: [HTTPResponse.Status: Int] = [:]
        for number in 0..<400 where found[.tooManyRequests, default: 0] < 20 {
            found[try await get(client, "wrong", from: peer(number)), default: 0] += 1
        }
        let (seconds, denied) = ((.now - start) / .seconds(1), found[.unauthorized, default: 0])
        #expect(Double(denied) <= 101 + 10 * seconds, "\(found)")
        #expect(Set(found.keys).isSubset(of: [.unauthorized, .tooManyRequests]), "\(found)")
        return found
    }

    /// - Parameter peer: The sender's address, if a proxy names it.
    private static func get(_ client: Client, _ token: String, from peer: String? = nil) async throws
        -> HTTPResponse.Status
    {
        var fields: HTTPFields = [.authorization: "Bearer \(token)-token-0123456789"]
        if let peer { fields[HTTPField.Name("X-Forwarded-For")!] = peer }
        return try await client.execute(uri: "/api/v1/faults", method: .get, headers: fields) { $0.status }
    }
}
