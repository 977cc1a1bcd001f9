import Foundation
import GzipCompression
import HTTPTypes
import StallExport
import StallReading
import StallReports
import StallStore
import Testing
import ZstdCompression

@testable import StallCollector

@Suite("OpenTelemetry log records")
struct TelemetryTests {
    private static let kind: HTTPFields = [.contentType: "application/json"]

    /// A report with everything that a log record can carry.
    private static func report() -> StallReport {
        var report = Samples.report("Cart.total() -> (Int)")
        report.service = .init(name: "shop", version: "1.2", instance: "7")
        report.process = .init(pid: 4711, executable: "/usr/bin/shop")
        report.watched = .init(type: .eventLoop, label: "loop-3")
        report.thread = .init(id: 4712, name: "NIO-ELT-0")
        report.severity = .error
        report.detectedAt = report.startedAt.advanced(byNanoseconds: 250_000_000)
        report.excludedNs = 1000
        report.endedAt = report.startedAt.advanced(byNanoseconds: 500_001_000)
        report.repeats = .init(
            count: 4,
            report: nil,
            firstAt: report.startedAt.advanced(byNanoseconds: -9_000_000_000),
            lastAt: report.startedAt.advanced(byNanoseconds: -1_000_000_000),
            totalNs: 3_000_000_000,
            longestNs: 2_000_000_000
        )
        report.suppressed = 4
        report.aliases = [.make(kind: .blocked, frames: [], modules: [])]
        report.labels = ["checkout", "total"]
        report.trace = .init(traceID: "4bf92f3577b34da6a3ce929d0e0e4736", spanID: "00f067aa0ba902b7")
        report.metadata = ["shard": "9"]
        report.stacks[0].capturedAt = report.detectedAt
        report.stacks[0].thread = report.thread
        report.stacks[0].frames = [
            .init(address: 0, function: "memcpy"), .init(address: 0),
            .init(address: 0, function: "Cart.total() -> (Int)", file: "/src/Cart (old).swift", line: 12, own: true),
        ]
        report.culprit = .init(
            function: "Cart.total() -> (Int)",
            file: "/src/Cart (old).swift",
            line: 12,
            stack: 0,
            frame: 2
        )
        return report
    }

    private static func exported(_ reports: [StallReport]) throws -> [UInt8] {
        var exporter = ExportFormat.otlpLogs.makeExporter()
        let requests = try reports.map { report in
            String(decoding: try exporter.add(report), as: UTF8.self)
                .trimmingCharacters(in: .newlines).dropFirst("{\"resourceLogs\":[".count).dropLast("]}".count)
        }
        return Array("{\"resourceLogs\":[\(requests.joined(separator: ","))]}".utf8)
    }

    @Test("The output of 'export --format otlp-logs' becomes the same report again, as far as the record has it")
    func roundTrip() async throws {
        let report = Self.report()
        let sent = try Self.exported([report])
        try await Samples.withStore { store, _ in
            try await Client.withServer(store, CollectorOptions()) { client in
                let packed = [(sent, "identity"), (Gzip.compressed(sent), "gzip"), (Zstd.compressed(sent), "zstd")]
                for (body, coding) in packed {
                    var headers = Self.kind
                    headers[.contentEncoding] = coding
                    let body = try #require(body)
                    try await client.execute(uri: "/v1/logs", method: .post, headers: headers, body: body) {
                        #expect($0.status == .ok)
                        #expect(String(decoding: $0.body, as: UTF8.self) == "{}\n")
                    }
                }
            }
            let json = try #require(try await store.report(report.id, team: "default"))
            // A function without a name is sent as the place of its code.
            var expected = report
            expected.stacks[0].frames[1].function = "code at 0x0"
            #expect(try StallReport(json: json) == expected)
            let query = StallQuery(team: "default", since: Timestamp(seconds: 0), until: .now())
            let fault = try #require(try await store.faults(query, by: .total, limit: 10).faults.first)
            #expect((fault.reports, fault.count, fault.totalNs) == (1, 5, 3_500_000_000))
        }
    }

    @Test("A record that has got names replaces the one without")
    func amendment() async throws {
        var nameless = Self.report()
        nameless.isProvisional = true
        nameless.fingerprint = .make(kind: .blocked, frames: [.init(address: 1, function: "code at 0x1")], modules: [])
        var named = Self.report()
        (named.id, named.aliases) = (nameless.id, [nameless.fingerprint])
        try await Samples.withStore { store, _ in
            try await Client.withServer(store, CollectorOptions()) { [nameless, named] client in
                for report in [nameless, named, nameless] {
                    let body = try Self.exported([report])
                    try await client.execute(uri: "/v1/logs", method: .post, headers: Self.kind, body: body) {
                        #expect($0.status == .ok)
                    }
                }
            }
            let query = StallQuery(team: "default", since: Timestamp(seconds: 0), until: .now())
            let faults = try await store.faults(query, by: .total, limit: 10).faults
            #expect(faults.map(\.fingerprint) == [named.fingerprint])
            #expect(faults.map(\.reports) == [1])
        }
    }

    @Test("A stall without a stack keeps the reason")
    func withoutStack() async throws {
        var report = Self.report()
        report.stacks[0].frames = []
        report.stacks[0].error = "The stall was over before it was looked at: the loop had moved on."
        report.culprit = nil
        let body = try Self.exported([report])
        try await Samples.withStore { store, _ in
            try await Client.withServer(store, CollectorOptions()) { client in
                try await client.execute(uri: "/v1/logs", method: .post, headers: Self.kind, body: body) {
                    #expect($0.status == .ok)
                }
            }
            let json = try #require(try await store.report(report.id, team: "default"))
            #expect(try StallReport(json: json) == report)
        }
    }

    @Test("A record that is no stall or is incomplete is rejected with its number and reason; others are accepted")
    func partial() async throws {
        let reports = (0..<2).map { _ in Self.report() }
        let text = String(decoding: try Self.exported(reports), as: UTF8.self)
        let broken = [
            #"{"scopeLogs":[{"logRecords":[{"body":{"stringValue":"a log line"}}]}]}"#,
            #"{"scopeLogs":[{"logRecords":[{"attributes":[{"key":"stall.id","value":{"stringValue":"x"}}]}]}]}"#,
            #"{"scopeLogs":[{"logRecords":[{"timeUnixNano":"18446744073709551615"},7]}]}"#,
            #"{"scopeLogs":[{}]}"#, #"{}"#,
        ]
        // An empty name is left out in this encoding.
        let odd = [
            #"{"value":{"stringValue":"x"}}"#, #"{"key":"odd","value":{"intValue":"99999999999999999999"}}"#,
            #"{"key":"none"}"#,
        ].joined(separator: ",")
        let body = Array(
            text.replacing("[{\"resource\"", with: "[\(broken.joined(separator: ",")),{\"resource\"")
                .replacing("\"attributes\":[", with: "\"attributes\":[\(odd),").utf8
        )
        try await Samples.withStore { store, _ in
            try await Client.withServer(store, CollectorOptions()) { client in
                try await client.execute(uri: "/v1/logs", method: .post, headers: Self.kind, body: body) {
                    #expect($0.status == .ok)
                    let answer = String(decoding: $0.body, as: UTF8.self)
                    #expect(answer.contains("\"rejectedLogRecords\":\"4\""), "\(answer)")
                    #expect(answer.contains("log record 1: it is not the log record of a stall"), "\(answer)")
                }
            }
            for report in reports { #expect(try await store.report(report.id, team: "default") != nil) }
        }
    }

    @Test("Each attribute that every stall has is required; extreme numbers do no harm")
    func hostile() throws {
        let text = String(decoding: try Self.exported([Self.report()]), as: UTF8.self)
        for name in ["stall.id", "stall.kind", "stall.state", "stall.fingerprint", "stall.duration_ns"] {
            let found = try Self.parsed(text.replacing("\"\(name)\"", with: "\"x\""))
            #expect(throws: RefusedArrival.self, "\(name)") { _ = try found.report() }
        }
        let numbers = [Int64.min, -1, 0, .max].map(String.init)
        for number in numbers {
            let pattern = try Regex(#""intValue":"-?\d+""#)
            let found = try Self.parsed(text.replacing(pattern, with: "\"intValue\":\(number)"))
            // Accepted or refused, and the process survives.
            _ = try? Arrival(json: try found.report().json(), team: "x")
        }
    }

    @Test("Numbers and names that Foundation's decoder does not survive, or reads for long, do no harm")
    func longWords() throws {
        let number = String(repeating: "9", count: 168) + "e-152"
        let name = "e" + String(repeating: "\u{301}\u{323}", count: 300)
        let long = #"{"key":"\#(name)","value":{"stringValue":"\"\#(number)"}}"#
        let attributes = #"[\#(long),{"key":"a","value":{"intValue":-7}}]"#
        let records = [
            "{\"timeUnixNano\":\(number)}", "{\"severityText\":\"x\",\"\(name)\" \n:\(number)}",
            #"{"attributes":\#(attributes)}"#,
        ]
        let request = #"{"resourceLogs":[{"scopeLogs":[{"logRecords":[\#(records.joined(separator: ","))]}]}]}"#
        let read = try TelemetryLogs.decoded(Array(request.utf8), records: 3)
        let entries = try #require(read.resourceLogs?.first?.scopeLogs?.first?.logRecords)
        #expect(entries.map { $0.record == nil } == [true, false, false])
        #expect(entries[1].record?.severityText == "x")
        #expect(entries[2].record?.attributes?.number("a") == -7)
        #expect(entries[2].record?.attributes?.values.count == 2)
    }

    @Test("UTF-16 and UTF-32, in which JSON is not sent (RFC 8259), are refused")
    func encodings() throws {
        let encodings: [String.Encoding] = [
            .utf16, .utf16LittleEndian, .utf16BigEndian, .utf32, .utf32LittleEndian, .utf32BigEndian,
        ]
        for encoding in encodings {
            let encoded = try #require("{}".data(using: encoding))
            #expect(throws: (any Error).self, "\(encoding)") { try TelemetryLogs.decoded([UInt8](encoded), records: 1) }
        }
    }

    private static func parsed(_ text: String) throws -> TelemetryStall {
        let request = try TelemetryLogs.decoded(Array(text.utf8), records: 1)
        let group = try #require(request.resourceLogs?.first)
        let entry = try #require(group.scopeLogs?.first?.logRecords?.first)
        return TelemetryStall(try #require(entry.record), group.resource?.attributes)
    }

    @Test("No more records are decoded than a request may have, in whatever groups they are")
    func tooMany() throws {
        let group = #"{"scopeLogs":[{"logRecords":[{},7]},{"logRecords":[{}]}]}"#
        let json = Array(#"{"resourceLogs":[\#(group),\#(group)]}"#.utf8)
        _ = try TelemetryLogs.decoded(json, records: 6)
        #expect(throws: TelemetryLogs.TooMany.self) { try TelemetryLogs.decoded(json, records: 5) }
    }

    @Test("Frames are read as they are written, including names with parentheses")
    func frames() {
        let frames = TelemetryStall.frames(
            "a(b:) (/x y.swift:3)\n?\nclosure #1 (Int) in f()\nf (x:0)\ng (x:-9)\nh ()\ni() -> (Int) (/x (y).swift:4)"
        )
        #expect(
            frames.map(\.function) == [
                "a(b:)", nil, "closure #1 (Int) in f()", "f (x:0)", "g (x:-9)", "h ()", "i() -> (Int)",
            ]
        )
        #expect(frames.map(\.file) == ["/x y.swift", nil, nil, nil, nil, nil, "/x (y).swift"])
        #expect(frames.map(\.line) == [3, nil, nil, nil, nil, nil, 4])
    }

    @Test("A body of another type, too large, deep, cut off or not JSON is refused and does no harm")
    func bodies() async throws {
        var options = CollectorOptions()
        options.limits.unpackedTelemetryBytes = 100_000
        let large = [UInt8](repeating: UInt8(ascii: " "), count: 100_001)
        let packed = try #require(Gzip.compressed(large))
        let cases: [(body: [UInt8], fields: HTTPFields, status: HTTPResponse.Status)] = [
            (Array("{}".utf8), [.contentType: "application/x-protobuf"], .unsupportedMediaType),
            (large, Self.kind, .contentTooLarge),
            (packed, [.contentType: "application/json", .contentEncoding: "gzip"], .contentTooLarge),
            (packed.dropLast(9), [.contentType: "application/json", .contentEncoding: "gzip"], .badRequest),
            (Array("{".utf8), Self.kind, .badRequest), (Array("[]".utf8), Self.kind, .badRequest),
            (Array(#"{"resourceLogs":7}"#.utf8), Self.kind, .badRequest),
            (Array(repeating: UInt8(ascii: "["), count: 90_000), Self.kind, .badRequest),
            (Array("{}".utf8), Self.kind, .ok),
        ]
        try await Client.withServer(StubStore(), options) { client in
            for (number, one) in cases.enumerated() {
                try await client.execute(uri: "/v1/logs", method: .post, headers: one.fields, body: Array(one.body)) {
                    #expect($0.status == one.status, "\(number)")
                }
            }
        }
    }
}
