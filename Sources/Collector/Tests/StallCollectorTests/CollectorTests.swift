import Foundation
import GzipCompression
import HTTPTypes
import Logging
import StallReading
import StallReports
import StallStore
import Testing
import ZstdCompression

@testable import StallCollector

@Suite("The collector", .timeLimit(.minutes(5)))
struct CollectorTests {
    private static let hostile = "</script><b>\"a\",;b'\u{1B}[31m\n=cmd{{x}} \u{202E}x"
    private let directory = FileManager.default.temporaryDirectory.path + "/stall-collector-\(UUID().uuidString)"

    private func withCollector(
        _ options: CollectorOptions = CollectorOptions(),
        _ work: @escaping @Sendable (Client) async throws -> Void
    ) async throws {
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: directory) }
        let store = try SQLiteStore(path: directory + "/stalls.db")
        try await Client.withServer(store, options, work)
    }

    private static func report(_ function: String = "total()", milliseconds: Int64 = 500) -> StallReport {
        let start = Timestamp.now().advanced(byNanoseconds: -60_000_000_000)
        let frame = StallReport.Frame(address: 1, function: function, own: true)
        return StallReport(
            kind: .blocked,
            state: .recovered,
            startedAt: start,
            detectedAt: start,
            endedAt: start.advanced(byNanoseconds: milliseconds * 1_000_000),
            durationNs: milliseconds * 1_000_000,
            rule: .init(name: .blocked, tickNs: 50_000_000, ticks: 5),
            host: .init(name: hostile),
            service: .init(name: hostile, version: hostile),
            process: .init(pid: 7, executable: hostile),
            watched: .init(label: hostile),
            thread: .init(id: 7, name: hostile),
            cause: .init(verdict: .onCPU, summary: hostile),
            stacks: [.init(thread: .init(id: 7), capturedAt: start, frames: [frame])],
            culprit: .init(function: function, file: hostile, line: 3, stack: 0, frame: 0),
            fingerprint: .make(kind: .blocked, frames: [frame], modules: []),
            metadata: [hostile: hostile]
        )
    }

    private static func lines(_ reports: [StallReport]) throws -> [UInt8] {
        try reports.flatMap { try $0.json() }
    }

    private static let kind: HTTPFields = [.contentType: "application/x-ndjson"]

    @Test("It shows what it has accepted: as JSON, on pages and in other formats")
    func whole() async throws {
        try await withCollector { client in
            let reports = [Self.report(), Self.report(milliseconds: 900), Self.report("other()")]
            try await client.execute(uri: "/v1/reports", method: .post, headers: Self.kind, body: Self.lines(reports)) {
                #expect($0.status == .accepted)
                let receipt = try JSONDecoder().decode(IngestReceipt.self, from: Data($0.body))
                #expect(receipt == .init(accepted: 3, refused: 0, reasons: []))
            }
            try await client.execute(uri: "/api/v1/faults", method: .get) {
                let document = try JSONDecoder().decode(FaultDocument.self, from: Data($0.body))
                #expect(document.faults.map(\.count) == [2, 1])
                #expect(document.faults.first?.culprit == "total()")
            }
            let fault = reports[0].fingerprint.rawValue
            let paths = [
                "/", "/?service=\(Self.escaped)&text=%25&by=worst", "/faults/\(fault)", "/faults/\(fault)/flame",
                "/reports/\(reports[0].id)", "/api/v1/faults/\(fault)", "/api/v1/reports/\(reports[0].id)",
                "/api/v1/stalls",
                "/live", "/assets/live.js",
                "/assets/style.css", "/assets/flame.css", "/assets/flame.js", "/metrics", "/health",
            ]
            for path in paths {
                try await client.execute(uri: path, method: .get) { answer in
                    #expect(answer.status == .ok, "\(path)")
                    #expect(answer.headers[.contentSecurityPolicy] != nil)
                    let text = String(decoding: answer.body, as: UTF8.self)
                    #expect(!text.isEmpty)
                    if answer.headers[.contentType]?.hasPrefix("text/html") == true {
                        #expect(!text.contains("<b>"), "\(path)")
                        #expect(!text.contains("\u{1B}") && !text.contains("\u{202E}"), "\(path)")
                        #expect(!text.contains(" style="), "\(path)")
                        #expect(path.contains("?") || text.contains("total()"), "\(path)")
                    }
                }
            }
            // Every link of every page works.
            var (open, seen): ([String], Set<String>) = (["/?since=1h"], [])
            while let path = open.popLast() {
                guard seen.insert(path).inserted else { continue }
                let text = try await client.execute(uri: path, method: .get) { answer in
                    #expect(answer.status == .ok, "\(path)")
                    return answer.headers[.contentType]?.hasPrefix("text/html") == true
                        ? String(decoding: answer.body, as: UTF8.self) : ""
                }
                open += text.matches(of: /href="(\/[^"]*)"/).map { String($0.1).replacing("&amp;", with: "&") }
            }
            #expect(seen.count { $0.hasPrefix("/faults/") } >= 2 && seen.contains("/live"), "\(seen)")
            for format in ["svg", "speedscope", "pprof", "collapsed", "html", "csv"] {
                try await client.execute(uri: "/api/v1/faults/\(fault)/export/\(format)", method: .get) {
                    #expect($0.status == .ok)
                    #expect(!$0.body.isEmpty)
                }
            }
        }
    }

    private static let escaped =
        hostile.addingPercentEncoding(withAllowedCharacters: .alphanumerics) ?? ""

    @Test("A plus in a form's address is a blank, in one of the API it is a plus")
    func blanks() async throws {
        try await withCollector { client in
            let reports = [Self.report("my total()"), Self.report("a+b")]
            try await client.execute(uri: "/v1/reports", method: .post, headers: Self.kind, body: Self.lines(reports)) {
                #expect($0.status == .accepted)
            }
            try await client.execute(uri: "/?text=my+total", method: .get) {
                let page = String(decoding: $0.body, as: UTF8.self)
                #expect(page.contains("my total()") && !page.contains("a+b"))
            }
            try await client.execute(uri: "/api/v1/faults?text=a+b", method: .get) {
                let document = try JSONDecoder().decode(FaultDocument.self, from: Data($0.body))
                #expect(document.faults.map(\.culprit) == ["a+b"])
            }
        }
    }

    @Test("A wait is selected by the word in its report, and by that on pages")
    func waits() async throws {
        try await withCollector { client in
            var wait = Self.report("wait()")
            wait.cause.verdict = .blocked
            let reports = try Self.lines([wait, Self.report("compute()")])
            try await client.execute(uri: "/v1/reports", method: .post, headers: Self.kind, body: reports) {
                #expect($0.status == .accepted)
            }
            for word in ["blocked", "waiting"] {
                try await client.execute(uri: "/api/v1/faults?verdict=\(word)", method: .get) {
                    let document = try JSONDecoder().decode(FaultDocument.self, from: Data($0.body))
                    #expect(document.faults.map(\.culprit) == ["wait()"], "\(word)")
                }
            }
            try await client.execute(uri: "/?verdict=blocked", method: .get) {
                let page = String(decoding: $0.body, as: UTF8.self)
                #expect(page.contains("wait()") && !page.contains("compute()"))
                #expect(page.contains("<option value=\"waiting\" selected>"))
            }
        }
    }

    @Test("Of a request with good and bad lines the good ones are accepted, the bad ones reported by number")
    func mixed() async throws {
        try await withCollector { client in
            var body = try Self.lines([Self.report()])
            body += Array("nonsense\n\n{\"schema\":\"stall-report/1\"}\n".utf8)
            try await client.execute(uri: "/v1/reports", method: .post, headers: Self.kind, body: body) {
                #expect($0.status == .accepted)
                let receipt = try JSONDecoder().decode(IngestReceipt.self, from: Data($0.body))
                #expect((receipt.accepted, receipt.refused) == (1, 2))
                #expect(receipt.reasons.map(\.line) == [2, 4])
            }
        }
    }

    @Test("A body that is too large, a zip bomb, cut off, or of another type is refused and does no harm")
    func bodies() async throws {
        var options = CollectorOptions()
        (options.limits.bytes, options.limits.unpackedBytes, options.limits.records) = (100_000, 200_000, 10)
        try await withCollector(options) { client in
            func post(_ bytes: [UInt8], _ headers: HTTPFields) async throws -> HTTPResponse.Status {
                var all = Self.kind
                for field in headers { all[field.name] = field.value }
                return try await client.execute(uri: "/v1/reports", method: .post, headers: all, body: bytes) {
                    $0.status
                }
            }
            let bomb = try #require(Gzip.compressed([UInt8](repeating: 10, count: 50 << 20)))
            #expect(bomb.count < 100_000)
            let good = try #require(Gzip.compressed(Array(Self.report().json())))
            #expect(try await post(bomb, [.contentEncoding: "gzip"]) == .contentTooLarge)
            #expect(try await post([UInt8](repeating: 32, count: 150_000), [:]) == .contentTooLarge)
            #expect(try await post(Array(good.dropLast(9)), [.contentEncoding: "gzip"]) == .badRequest)
            #expect(try await post([1, 2, 3], [.contentEncoding: "gzip"]) == .badRequest)
            #expect(try await post([1, 2, 3], [.contentEncoding: "br"]) == .unsupportedMediaType)
            #expect(try await post([1, 2, 3], [.contentType: "text/plain"]) == .unsupportedMediaType)
            #expect(
                try await post(Array(repeating: "x\n", count: 11).joined().utf8.map(\.self), [:]) == .contentTooLarge
            )
            #expect(try await post([UInt8](repeating: 10, count: 22), [:]) == .contentTooLarge)
            #expect(try await post([UInt8](repeating: 10, count: 20), [:]) == .accepted)
            #expect(try await post(good, [.contentEncoding: "gzip"]) == .accepted)
            #expect(try await post(good, [.contentEncoding: "zstd"]) == .badRequest)
            let zstd = try #require(Zstd.compressed(Array(Self.report().json())))
            #expect(try await post(zstd, [.contentEncoding: "zstd"]) == .accepted)
        }
    }

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

    @Test("An invalid query is an error with a message")
    func questions() async throws {
        try await withCollector { client in
            for question in [
                "since=x", "until=x", "since=1h&until=2h", "by=x", "limit=0", "limit=x", "since=20000d",
                "since=99999999999d", (0...256).map { "host=web\($0)" }.joined(separator: "&"),
            ] {
                try await client.execute(uri: "/api/v1/faults?\(question)", method: .get) {
                    #expect($0.status == .badRequest, "\(question)")
                    #expect(String(decoding: $0.body, as: UTF8.self).contains("message"))
                }
            }
            let report = try Self.lines([Self.report()])
            try await client.execute(uri: "/v1/reports", method: .post, headers: Self.kind, body: report) { _ in }
            // The last name counts like the first.
            let names = (0..<250).map { "verdict=v\($0)" } + ["verdict=on_cpu"]
            try await client.execute(uri: "/api/v1/faults?\(names.joined(separator: "&"))", method: .get) {
                let document = try JSONDecoder().decode(FaultDocument.self, from: Data($0.body))
                #expect(document.faults.map(\.count) == [1])
            }
            for path in ["/faults/x", "/reports/x", "/api/v1/reports/x"] {
                #expect(try await client.execute(uri: path, method: .get) { $0.status } == .badRequest)
            }
            for path in ["/faults/v2:0000000000000000", "/reports/\(ULID.make())", "/assets/../x", "/nothing"] {
                #expect(try await client.execute(uri: path, method: .get) { $0.status } == .notFound)
            }
        }
    }

    @Test("A token permits what its line says, for its team")
    func tokens() async throws {
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        let file = directory + "/tokens"
        try "# who may\nred read,write red-token-0123456789\nblue read blue-token-0123456789\n"
            .write(toFile: file, atomically: true, encoding: .utf8)
        try FileManager.default.setAttributes([.posixPermissions: 0o600], ofItemAtPath: file)
        var options = CollectorOptions()
        options.tokens = try Tokens(path: file)
        try await withCollector(options) { client in
            let body = try Self.lines([Self.report()])
            func post(_ token: String?) async throws -> HTTPResponse.Status {
                var headers = Self.kind
                if let token { headers[.authorization] = token }
                return try await client.execute(uri: "/v1/reports", method: .post, headers: headers, body: body) {
                    $0.status
                }
            }
            #expect(try await post(nil) == .unauthorized)
            #expect(try await post("Bearer red-token-012345678") == .unauthorized)
            #expect(try await post("Bearer red-token-0123456789x") == .unauthorized)
            #expect(try await post("Bearer blue-token-0123456789") == .forbidden)
            #expect(try await post("Bearer red-token-0123456789") == .accepted)
            for (token, count) in [("red", 1), ("blue", 0)] {
                let password = Data("anybody:\(token)-token-0123456789".utf8).base64EncodedString()
                try await client.execute(
                    uri: "/api/v1/faults",
                    method: .get,
                    headers: [.authorization: "Basic \(password)"]
                ) {
                    let document = try JSONDecoder().decode(FaultDocument.self, from: Data($0.body))
                    #expect(document.faults.count == count)
                }
            }
            for path in ["/", "/api/v1/records"] {
                #expect(try await client.execute(uri: path, method: .get) { $0.status } == .unauthorized)
            }
            #expect(try await client.execute(uri: "/health", method: .get) { $0.status } == .ok)
        }
    }

    @Test("A token file that others can read, or with an invalid line, is not used")
    func tokenFiles() throws {
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: directory) }
        let file = directory + "/tokens"
        let cases = [
            ("a read 0123456789abcdef", 0o644), ("a read", 0o600), ("a all 0123456789abcdef", 0o600),
            ("a read short", 0o600), ("", 0o600), ("a read 0123456789abcdef 5", 0o600),
            ("a read 0123456789abcdef -5/s", 0o600),
            ("a read 0123456789abcdef 5/s x", 0o600),
            ("a read 0123456789abcdef\nb write 0123456789abcdef", 0o600),
        ]
        for (text, mode) in cases {
            try text.write(toFile: file, atomically: true, encoding: .utf8)
            try FileManager.default.setAttributes([.posixPermissions: mode], ofItemAtPath: file)
            #expect(throws: CollectorError.self, "\(text)") { _ = try Tokens(path: file) }
        }
    }

    @Test("A token file may have lines that end by CR LF, blanks at their ends, and a byte order mark")
    func editedTokenFile() throws {
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: directory) }
        let file = directory + "/tokens"
        func write(_ text: String) throws {
            try text.write(toFile: file, atomically: true, encoding: .utf8)
            try FileManager.default.setAttributes([.posixPermissions: 0o600], ofItemAtPath: file)
        }
        let lines = [
            "# who may", "red read,write red-token-0123456789", "blue read blue-token-0123456789 500/s \t", "",
        ]
        for (start, end) in [("", "\n"), ("", "\r\n"), ("\u{FEFF}", "\r\n")] {
            for lines in [lines, Array(lines.dropFirst())] {
                try write(start + lines.joined(separator: end))
                let tokens = try Tokens(path: file)
                #expect(tokens.caller(of: "red-token-0123456789".utf8)?.team == "red", "\(end.debugDescription)")
                #expect(tokens.caller(of: "blue-token-0123456789".utf8)?.recordsPerSecond == 500)
            }
        }
        try write("red read red-token-0123456789\r\n\r\nblue read short\r\n")
        let error = #expect(throws: CollectorError.self) { _ = try Tokens(path: file) }
        #expect(error?.description.hasPrefix("\(file):3: ") == true, "\(error?.description ?? "")")
    }

    @Test("Without tokens a page from another site gets no answer")
    func rebinding() async throws {
        try await withCollector { client in
            for (name, status) in [("evil.example", HTTPResponse.Status.forbidden), ("localhost:1", .ok)] {
                let found = try await client.execute(uri: "/", method: .get, headers: [HTTPField.Name("Host")!: name]) {
                    $0.status
                }
                #expect(found == status, "\(name)")
            }
        }
    }
}
