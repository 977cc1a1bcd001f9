import Foundation
import GzipCompression
import HTTPTypes
import StallReading
import StallReports
import StallStore
import Testing
import ZstdCompression

@testable import StallCollector

@Suite("The collector", .timeLimit(.minutes(5)))
struct CollectorTests {
    static let hostile = "</script><b>\"a\",;b'\u{1B}[31m\n=cmd{{x}} \u{202E}x"
    let directory = FileManager.default.temporaryDirectory.path + "/stall-collector-\(UUID().uuidString)"

    func withCollector(
        _ options: CollectorOptions = CollectorOptions(),
        _ work: @escaping @Sendable (Client) async throws -> Void
    ) async throws {
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: directory) }
        let store = try SQLiteStore(path: directory + "/stalls.db")
        try await Client.withServer(store, options, work)
    }

    static func report(_ function: String = "total()", milliseconds: Int64 = 500) -> StallReport {
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

    static func lines(_ reports: [StallReport]) throws -> [UInt8] {
        try reports.flatMap { try $0.json() }
    }

    static let kind: HTTPFields = [.contentType: "application/x-ndjson"]

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

    static let escaped =
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
