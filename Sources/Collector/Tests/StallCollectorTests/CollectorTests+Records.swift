import Foundation
import HTTPTypes
import StallReports
import StallStore
import Testing

@testable import StallCollector

// Records as they were sent, one page after the other.

extension CollectorTests {
    @Test("Records are returned as they were sent, run records first, selected; another collector takes them")
    func records() async throws {
        try await withCollector { client in
            let now = Timestamp.now()
            let runs = (0..<3).map { index in
                RunRecord(
                    startedAt: now.advanced(byNanoseconds: -3_600_000_000_000),
                    updatedAt: now,
                    host: .init(name: "web1"),
                    service: .init(name: index == 0 ? "other" : Self.hostile),
                    process: .init(pid: 7),
                    monitorVersion: "1"
                )
            }
            let reports = (0..<130).map { Self.report("f\($0 % 3)()") }
            let sent = try runs.map { try $0.json() } + reports.map { try $0.json() }
            try await client.execute(
                uri: "/v1/reports",
                method: .post,
                headers: Self.kind,
                body: sent.flatMap(\.self)
            ) { #expect($0.status == .accepted) }
            let all = try await client.execute(uri: "/api/v1/records", method: .get) { answer in
                #expect(answer.headers[.contentType] == "application/x-ndjson")
                return answer.body.split(separator: UInt8(ascii: "\n"))
            }
            #expect(Set(all.map(Array.init)) == Set(sent.map { Array($0.dropLast()) }))
            #expect(all.count == sent.count)
            #expect(all.prefix(3).allSatisfy { String(decoding: $0, as: UTF8.self).contains("stall-run/") })
            let lines = { (answer: Client.Answer) in answer.body.count { $0 == UInt8(ascii: "\n") } }
            #expect(
                try await client.execute(uri: "/api/v1/records?service=\(Self.escaped)", method: .get, lines) == 132
            )
            #expect(try await client.execute(uri: "/api/v1/records?service=other", method: .get, lines) == 1)
            #expect(try await client.execute(uri: "/api/v1/records?since=x", method: .get) { $0.status } == .badRequest)
            // As an operator moves them to another store.
            let copied = all.joined(separator: [UInt8(ascii: "\n")])
            try await withCollector { other in
                try await other.execute(uri: "/v1/reports", method: .post, headers: Self.kind, body: Array(copied)) {
                    #expect($0.status == .accepted)
                }
                let there = try await other.execute(uri: "/api/v1/records", method: .get) {
                    $0.body.split(separator: UInt8(ascii: "\n"))
                }
                #expect(there == all)
            }
        }
    }

    @Test("A client reads all stalls page by page, each once, while others arrive")
    func pages() async throws {
        struct List: Decodable {
            var stalls: [Stall]
            var next: String?
            struct Stall: Decodable { var id: ULID }
        }
        try await withCollector { client in
            func post(_ reports: [StallReport]) async throws {
                let body = try Self.lines(reports)
                try await client.execute(uri: "/v1/reports", method: .post, headers: Self.kind, body: body) {
                    #expect($0.status == .accepted)
                }
            }
            var reports = (0..<25).map { _ in Self.report() }
            // Of stalls that began at the same moment the id decides.
            let start = reports[0].startedAt
            for index in reports.indices {
                reports[index].startedAt = start.advanced(byNanoseconds: -Int64(max(0, index - 15)) * 1_000_000_000)
            }
            try await post(reports)
            for limit in [10, 25] {
                var (found, after): ([ULID], String?) = ([], "")
                while let last = after, found.count <= reports.count {
                    let uri = "/api/v1/stalls?limit=\(limit)" + (last.isEmpty ? "" : "&after=\(last)")
                    let list = try await client.execute(uri: uri, method: .get) {
                        try JSONDecoder().decode(List.self, from: Data($0.body))
                    }
                    (found, after) = (found + list.stalls.map(\.id), list.next)
                    if last.isEmpty { try await post([Self.report("later()")]) }
                }
                let latest = reports.sorted { ($0.startedAt, $0.id.description) > ($1.startedAt, $1.id.description) }
                #expect(found.suffix(25) == latest.map(\.id)[...])
            }
            for place in ["x", "1", "-1-\(ULID.make())", "1-x", "-"] {
                let uri = "/api/v1/stalls?after=\(place)"
                #expect(try await client.execute(uri: uri, method: .get) { $0.status } == .badRequest, "\(place)")
            }
        }
    }

    @Test("A query for too many records is refused before the first is sent")
    func tooManyRecords() async throws {
        try await Client.withServer(StubStore(counted: .max), CollectorOptions()) { client in
            try await client.execute(uri: "/api/v1/records", method: .get) {
                #expect($0.status == .contentTooLarge)
                #expect(String(decoding: $0.body, as: UTF8.self).contains("ask for a shorter time"))
            }
        }
    }

    @Test(
        "A connection on which a request arrives byte by byte is closed",
        arguments: [
            "GET / HTTP/1.1\r\nX: ", "POST /v1/reports HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999999\r\n\r\n",
        ]
    )
    func drops(begin: String) async throws {
        var options = CollectorOptions()
        (options.idleTime, options.requestTime) = (.seconds(1), .seconds(1))
        try await withCollector(options) { client in
            let connection = try Connection(port: client.port)
            #expect(connection.send(begin))
            #expect(try await connection.isClosed(sending: "x"))
            // Others are answered. A busy machine may take longer than the second that a request has here.
            var status: HTTPResponse.Status?
            for _ in 0..<10 where status != .ok {
                status = try? await client.execute(uri: "/health", method: .get) { $0.status }
            }
            #expect(status == .ok)
        }
    }
}
