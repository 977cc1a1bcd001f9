import Foundation
import HTTPTypes
import StallReports
import StallStore
import Testing

@testable import StallCollector

/// The form of answers, and how many clients get large ones at a time.
@Suite("Answers", .timeLimit(.minutes(5)))
struct AnswerTests {
    @Test("HEAD is answered as GET is, without the body")
    func head() async throws {
        let store = StubStore(counted: RecordRoutes.stallLimit + 1)
        try await Client.withServer(store, CollectorOptions()) { client in
            for (path, status) in [
                ("/health", 200), ("/", 200), ("/api/v1/faults", 200), ("/assets/style.css", 200),
                ("/api/v1/records", 413), ("/nothing", 404), ("/v1/reports", 404),
            ] {
                let connection = try Connection(port: client.port)
                #expect(connection.send("HEAD \(path) HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
                var text = ""
                while let more = await connection.receive() { text += more }
                #expect(text.hasPrefix("HTTP/1.1 \(status)") && text.hasSuffix("\r\n\r\n"), "\(path): \(text)")
                #expect(text.contains("Content-Length: ") && !text.contains("Content-Length: 0"), "\(path): \(text)")
            }
        }
    }

    @Test("As many clients as the limit are admitted, also before their answers have begun, and one for each that left")
    func clientLimit() {
        let limit = ClientLimit(2, "too many")
        var clients = [try? limit.admit("a"), try? limit.admit("a"), try? limit.admit("a")]
        #expect(clients.map { $0 != nil } == [true, true, false])
        clients[0] = nil
        clients = [clients[1], try? limit.admit("a"), try? limit.admit("b")]
        #expect(clients.map { $0 != nil } == [true, true, false])
    }

    @Test("Clients of one team leave some places to other teams")
    func clientsOfTeams() {
        let limit = ClientLimit(8, "too many")
        let clients = (0..<7).map { _ in try? limit.admit("a") } + (0..<3).map { _ in try? limit.admit("b") }
        #expect(clients.map { $0 != nil } == Array(repeating: true, count: 6) + [false, true, true, false])
    }

    @Test("Exports and flame graphs count as readers: more than the limit are refused")
    func readers() async throws {
        var options = CollectorOptions()
        options.maximumReaders = 0
        let fault = "faults/v2:0000000000000000"
        try await Client.withServer(StubStore(), options) { client in
            for path in ["/api/v1/records", "/api/v1/\(fault)/export/csv", "/\(fault)/flame"] {
                let status = try await client.execute(uri: path, method: .get) { $0.status }
                #expect(status == .tooManyRequests, "\(path)")
            }
        }
    }

    @Test("A large answer counts as a reader until it is sent, a small one does not", arguments: [0, 1])
    func largeAnswers(limit: Int) async throws {
        var options = CollectorOptions()
        options.maximumReaders = limit
        try await Samples.withStore { store, _ in
            let small = Samples.report()
            var large = Samples.report()
            large.metadata = ["noise": String(repeating: "x", count: 300_000)]
            _ = try await store.insert([small, large].map { try Arrival(json: $0.json(), team: "default") })
            try await Client.withServer(store, options) { [large] client in
                func status(_ report: StallReport) async throws -> HTTPResponse.Status {
                    try await client.execute(uri: "/api/v1/reports/\(report.id)", method: .get) { $0.status }
                }
                #expect(try await status(small) == .ok)
                #expect(try await status(large) == (limit == 0 ? .tooManyRequests : .ok))
                // The client has the whole answer a little before the collector knows that it is sent.
                while try await status(large) != (limit == 0 ? .tooManyRequests : .ok) {}
            }
        }
    }

    @Test("Refusals also have the headers that protect pages, and each says why")
    func safetyHeaders() async throws {
        try await Client.withServer(StubStore(), CollectorOptions()) { client in
            for path in ["/", "/nothing", "/faults/x", "/api/v1/faults?limit=x", "/faults/v2:0000000000000000"] {
                try await client.execute(uri: path, method: .get) { answer in
                    #expect(answer.headers[.contentSecurityPolicy]?.hasPrefix("default-src 'none'") == true, "\(path)")
                    #expect(answer.headers[.xContentTypeOptions] == "nosniff", "\(path)")
                    let isMessage = answer.body.starts(with: #"{"message":""#.utf8)
                    #expect(isMessage == (answer.status != .ok), "\(path)")
                }
            }
        }
    }

    @Test("A query for a distant future time is answered")
    func farAhead() async throws {
        try await Samples.withStore { store, _ in
            try await Client.withServer(store, CollectorOptions()) { client in
                for path in ["/", "/api/v1/faults", "/api/v1/records", "/live"] {
                    let uri = path + "?since=9000-01-01T00:00:00Z&until=9001-01-01T00:00:00Z"
                    let status = try await client.execute(uri: uri, method: .get) { $0.status }
                    #expect(status == .ok, "\(path)")
                }
            }
        }
    }

    @Test("The exported page can run its own script and style, and nothing else")
    func exportedPage() async throws {
        // FIPS 180-4, with its examples.
        func hex(_ text: String) -> String {
            SHA256.hash(Array(text.utf8)).map { String($0 >> 4, radix: 16) + String($0 & 15, radix: 16) }.joined()
        }
        #expect(hex("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
        #expect(
            hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")
                == "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"
        )
        try await Samples.withStore { store, _ in
            let report = Samples.report()
            _ = try await store.insert([Arrival(json: report.json(), team: "default")])
            try await Client.withServer(store, CollectorOptions()) { client in
                let path = "/api/v1/faults/\(report.fingerprint.rawValue)/export/"
                try await client.execute(uri: path + "html", method: .get) { answer in
                    let policy = answer.headers[.contentSecurityPolicy] ?? ""
                    #expect(!policy.contains("unsafe") && policy.contains("sandbox allow-scripts"), "\(policy)")
                    let page = String(decoding: answer.body, as: UTF8.self)
                    func content(_ tag: String) -> String? {
                        page.split(separator: "<\(tag)>").dropFirst().first?.split(separator: "</\(tag)>").first.map(
                            String.init
                        )
                    }
                    for (tag, directive) in [("style", "style-src"), ("script", "script-src")] {
                        let text = try #require(content(tag))
                        let hash = Data(SHA256.hash(Array(text.utf8))).base64EncodedString()
                        #expect(policy.contains("\(directive) 'sha256-\(hash)'"), "\(tag)")
                    }
                }
                for format in ["svg", "csv"] {
                    try await client.execute(uri: path + format, method: .get) {
                        #expect($0.headers[.contentSecurityPolicy] == "sandbox; default-src 'none'")
                    }
                }
            }
        }
    }
}
