import Foundation
import HTTPTypes
import StallReports
import StallStore
import Testing

@testable import StallCollector

@Suite("The live feed", .timeLimit(.minutes(5)))
struct LiveTests {
    private static let kind: HTTPFields = [.contentType: "application/x-ndjson"]

    private static func withCollector(_ work: @escaping @Sendable (Client) async throws -> Void) async throws {
        try await Samples.withStore { store, _ in try await Client.withServer(store, CollectorOptions(), work) }
    }

    @Test("Stalls are sent as they arrive; a client that returns with the last event's id misses none")
    func live() async throws {
        try await Self.withCollector { client in
            func post(_ function: String) async throws {
                // Its text must not end an event.
                let report = Samples.report(function, service: "a\n\n\"data: </script>\r\u{1B}")
                let status = try await client.execute(
                    uri: "/v1/reports",
                    method: .post,
                    headers: Self.kind,
                    body: report.json()
                ) { $0.status }
                #expect(status == .accepted)
            }
            try await post("before()")
            let place = try await client.events("/api/v1/live?after=0", count: 1)
            #expect(place.first?.data.contains("before()") == true)
            async let events = client.events("/api/v1/live", lastID: place.last?.id, count: 2)
            try await post("one()")
            try await post("two()")
            let found = try await events
            #expect(found.count == 2 && found[0].data.contains("one()") && found[1].data.contains("two()"), "\(found)")
            let again = try await client.events("/api/v1/live", lastID: found[0].id, count: 1)
            #expect(again.map(\.data) == [found[1].data])
            #expect(
                try await client.execute(uri: "/api/v1/live?after=x", method: .get) { $0.status } == .badRequest
            )
        }
        // This returns: a reading client does not delay the shutdown.
    }

    @Test("A viewer with a place of another store, which had more stalls, is sent what arrives")
    func foreignPlace() async throws {
        try await Self.withCollector { client in
            let connection = try Connection(port: client.port)
            _ = connection.send("GET /api/v1/live?after=1000000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            var text = ""
            // It follows once it has sent its first comment.
            while !text.contains(":\n\n"), let more = await connection.receive() { text += more }
            let body = try Samples.report("arrived()").json()
            try await client.execute(uri: "/v1/reports", method: .post, headers: Self.kind, body: body) {
                #expect($0.status == .accepted)
            }
            while !text.contains("arrived()"), let more = await connection.receive() { text += more }
            #expect(text.contains("arrived()"))
        }
    }

    @Test("A viewer continues after all stalls of a place, even if the connection ended between them")
    func sharedPlace() async throws {
        let stalls = [5, 5, 6].map { (place: Int64($0), stall: StoredStall.sample()) }
        try await Client.withServer(StubStore(arrived: stalls), CollectorOptions()) { client in
            let connection = try Connection(port: client.port)
            _ = connection.send("GET /api/v1/live?after=4 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            var text = ""
            while text.components(separatedBy: "\"id\":").count <= stalls.count, let more = await connection.receive() {
                text += more
            }
            // An event without a number leaves the viewer at the place before it.
            let numbers = text.components(separatedBy: "data: ").dropLast().map { part in
                part.split(separator: "\n").last { $0.hasPrefix("id: ") }
            }
            #expect(numbers == [nil, "id: 5", "id: 6"])
        }
    }

    @Test("A viewer is sent the stalls that its filters select, and continues after the others")
    func liveFilters() async throws {
        let names = [("bake()", "shop"), ("clean()", "shop"), ("Bake()", "mill"), ("wash()", "mill")]
        let stalls = names.enumerated().map { index, name in
            var stall = StoredStall.sample()
            (stall.culprit, stall.service) = name
            return (place: Int64(index + 1), stall: stall)
        }
        try await Client.withServer(StubStore(arrived: stalls), CollectorOptions()) { client in
            let cases: [(filters: String, selected: [String])] = [
                ("", names.map(\.0)), ("text=bake&", ["bake()", "Bake()"]), ("service=mill&", ["Bake()", "wash()"]),
                ("service=mill&service=shop&text=BAKE&", ["bake()", "Bake()"]), ("service=mill&text=clean&", []),
                ("verdict=on_cpu&release=&", names.map(\.0)), ("verdict=waiting&", []), ("host=web1&", []),
                // They have no range.
                ("until=2020-01-01T00:00:00Z&since=2019-01-01T00:00:00Z&", names.map(\.0)),
            ]
            for (filters, selected) in cases {
                let connection = try Connection(port: client.port)
                _ = connection.send("GET /api/v1/live?\(filters)after=0 HTTP/1.1\r\nHost: localhost\r\n\r\n")
                var text = ""
                // The end of a piece of the answer.
                while !text.contains("id: 4\n") || !text.hasSuffix("\n\n\r\n"), let more = await connection.receive() {
                    text += more
                }
                let found = text.components(separatedBy: "\"culprit\":\"").dropFirst().map { $0.prefix { $0 != "\"" } }
                #expect(found.map(String.init) == selected, "\(filters)")
            }
            let page = try await client.execute(uri: "/live?since=1d&service=a%26b&text=my+f", method: .get) {
                String(decoding: $0.body, as: UTF8.self)
            }
            #expect(page.contains(" data-feed=\"/api/v1/live?service=a%26b&amp;text=my%20f&amp;after=\""))
            #expect(try await client.execute(uri: "/api/v1/live?since=x", method: .get) { $0.status } == .badRequest)
        }
    }
}
