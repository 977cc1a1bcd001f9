import Foundation
import GzipCompression
import HTTPTypes
import StallReports
import StallStore
import Testing
import ZstdCompression

@testable import StallCollector

@Suite("Limits of requests with reports", .timeLimit(.minutes(5)))
struct IngestLimitTests {
    private static let kind: HTTPFields = [.contentType: "application/x-ndjson"]

    @Test("Shares of the budget are returned when released; a single one is always admitted")
    func budget() throws {
        let budget = IngestBudget(100)
        do {
            let share = try #require(budget.share(ofBody: 90, team: "a"))
            #expect(budget.share(ofBody: 20, team: "b") == nil)
            #expect(share.grow(by: 10) && !share.grow(by: 1))
            share.shrink(by: 60)
            #expect(budget.usedBytes == 40)
        }
        #expect(budget.usedBytes == 0)
        #expect(budget.share(ofBody: 1000, team: "a") != nil)
        #expect(budget.usedBytes == 0)
    }

    @Test("Bodies of one team that are still arriving leave half of the budget to other teams")
    func arriving() throws {
        let budget = IngestBudget(100)
        let slow = try #require(budget.share(ofBody: 40, team: "a"))
        #expect(budget.share(ofBody: 11, team: "a") == nil)
        #expect(budget.share(ofBody: 60, team: "b") != nil)
        slow.keep(bodyOf: 30)
        #expect(budget.usedBytes == 30)
        let next = try #require(budget.share(ofBody: 50, team: "a"))
        #expect(budget.share(ofBody: 1, team: "a") == nil)
        withExtendedLifetime((slow, next)) {}
    }

    @Test("At most as many tasks as its width pass at a time, all get their turn, and too many waiting are turned away")
    func tasks() async throws {
        let (limit, barrier) = (TaskLimit(width: 2, waitingLimit: 3), Barrier())
        let passed = try await withThrowingTaskGroup(of: Int.self) { group in
            for number in 0..<5 {
                group.addTask {
                    try await limit.pass {
                        await barrier.pass()
                        return number
                    }
                }
            }
            while await limit.waitingCount < 3 { await Task.yield() }
            while await barrier.arrived < 2 { await Task.yield() }
            await #expect(throws: TaskLimit.Crowded.self) { try await limit.pass {} }
            #expect(await barrier.arrived == 2)
            await barrier.open()
            return try await group.reduce(into: Set<Int>()) { $0.insert($1) }
        }
        #expect(passed == [0, 1, 2, 3, 4])
        try await limit.pass {}
    }

    /// Nil if there is not enough memory.
    private static func packed(_ bytes: [UInt8], _ coding: BodyCoding) -> [UInt8]? {
        switch coding {
        case .identity: bytes
        case .gzip: Gzip.compressed(bytes)
        case .zstd: Zstd.compressed(bytes)
        }
    }

    @Test(
        "Lines are the same whether compressed or not, however they are split into pieces",
        arguments: [BodyCoding.identity, .gzip, .zstd]
    )
    func lines(coding: BodyCoding) throws {
        var limits = IngestLimits()
        limits.recordBytes = 100_000
        let long = String(repeating: "y", count: 99_999)
        let body = Array("a\n\n\(long)\n\(long)zz\nb".utf8)
        let sent = try #require(Self.packed(body, coding))
        var lines = try BodyLines(sent, coding, limits)
        var (found, ends): ([String], [Int]) = ([], [])
        while let line = try lines.next() {
            ends.append(lines.returnedBytes)
            switch line {
            case .whole(let bytes): found.append(String(decoding: bytes, as: UTF8.self))
            case .tooLong: found.append("too long")
            }
        }
        #expect(found == ["a", "", long, "too long", "b"])
        #expect(ends == [2, 3, 100_003, 200_005, 200_006])
        #expect(lines.unpackedBytes == body.count)
    }

    @Test("Unpacking an endless or a truncated body ends at the limit", arguments: [BodyCoding.gzip, .zstd])
    func bombs(coding: BodyCoding) throws {
        var limits = IngestLimits()
        limits.unpackedBytes = 1 << 20
        let bomb = try #require(Self.packed([UInt8](repeating: UInt8(ascii: "x"), count: 50 << 20), coding))
        var lines = try BodyLines(bomb, coding, limits)
        #expect(throws: BodyLines.Failure.tooLarge) { while try lines.next() != nil {} }
        #expect(lines.unpackedBytes <= limits.unpackedBytes + 65536)
        let whole = try #require(Self.packed(Array("a\nb\n".utf8), coding))
        for wrong in [Array(whole.dropLast(3)), [], whole + [1], [1, 2, 3]] {
            lines = try BodyLines(wrong, coding, limits)
            #expect(throws: BodyLines.Failure.damaged, "\(wrong)") { while try lines.next() != nil {} }
        }
    }

    @Test("Frames of Zstandard may follow each other; one that demands more memory than HTTP permits is refused")
    func frames() throws {
        let frames = try ["a\n", "", "b\n"].map { try #require(Zstd.compressed(Array($0.utf8))) }
        #expect(try Zstd.decompressed(Array(frames.joined()), limit: 4) == Array("a\nb\n".utf8))
        #expect(throws: Zstd.Failure.tooLarge) { try Zstd.decompressed(Array(frames.joined()), limit: 3) }
        // RFC 8878, 3.1.1: a window descriptor, whose upper five bits are the size's exponent above 1 KiB; then a raw block of one byte.
        func frame(windowLog: UInt8) -> [UInt8] { Zstd.magic + [0, (windowLog - 10) << 3, 9, 0, 0, UInt8(ascii: "x")] }
        #expect(try Zstd.decompressed(frame(windowLog: 23), limit: 1) == [UInt8(ascii: "x")])
        #expect(throws: Zstd.Failure.damaged) { try Zstd.decompressed(frame(windowLog: 24), limit: 1) }
    }

    @Test("Members of gzip may follow each other, also empty ones")
    func members() throws {
        let texts = ["a\n", "", "", String(repeating: "b", count: 100_000), "c\n"]
        let packed = try texts.map { try #require(Gzip.compressed(Array($0.utf8))) }
        let members = Array(packed.joined())
        #expect(try Gzip.decompressed(members, limit: 100_004) == Array(texts.joined().utf8))
        #expect(throws: Gzip.Failure.tooLarge) { try Gzip.decompressed(members, limit: 100_003) }
        for wrong: [UInt8] in [members.dropLast(), members + [0x1f], members + members.prefix(12)] {
            #expect(throws: Gzip.Failure.damaged) { try Gzip.decompressed(wrong, limit: 1 << 20) }
        }
    }

    @Test("Many short members or frames share a piece: a small body would otherwise take seconds for its pieces")
    func shortMembers() throws {
        let text = [UInt8](repeating: UInt8(ascii: "x"), count: 2)
        let members = [[UInt8]](repeating: try #require(Gzip.compressed(text)), count: 40_000)
        let frames = [[UInt8]](repeating: try #require(Zstd.compressed(text)), count: 40_000)
        let (gzip, zstd) = (try Gzip.Unpacker(Array(members.joined())), try Zstd.Unpacker(Array(frames.joined())))
        for next in [{ try gzip.next() }, { try zstd.next() }] {
            var sizes: [Int] = []
            while let piece = try next() { sizes.append(piece.count) }
            #expect(sizes == [65_536, 80_000 - 65_536])
        }
    }

    @Test("A sender that compresses with too large a window is told so")
    func wideWindow() async throws {
        let fields: HTTPFields = [.contentType: "application/x-ndjson", .contentEncoding: "zstd"]
        try await Client.withServer(StubStore(), CollectorOptions()) { client in
            let body = Zstd.magic + [0, (24 - 10) << 3, 9, 0, 0, UInt8(ascii: "x")]
            try await client.execute(uri: "/v1/reports", method: .post, headers: fields, body: body) {
                #expect($0.status == .badRequest)
                #expect(String(decoding: $0.body, as: UTF8.self).contains("a window of more than 8 MiB"))
            }
        }
    }

    @Test("Memory for unpacking is taken from the budget, and returned")
    func unpackingMemory() async throws {
        let limits = IngestLimits()
        let budget = IngestBudget(BodyCoding.zstd.windowBytes + 1000)
        let body = try #require(Zstd.compressed(Array("x\n".utf8)))
        func parse(_ share: IngestBudget.Share) async throws -> Int {
            try await BodyParser.parse(body, .lines, .zstd, limits, team: "a", share).refused.count
        }
        let share = try #require(budget.share(ofBody: 100, team: "a"))
        do {
            let other = try #require(budget.share(ofBody: 1000, team: "b"))
            await #expect(throws: BodyParser.OutOfMemory.self) { _ = try await parse(share) }
            other.shrink(by: 1000)
        }
        #expect(try await parse(share) == 1)
        #expect(budget.usedBytes == 100)
    }

    @Test("Memory for decoding is taken from the budget by the number of values, and returned")
    func decodingMemory() async throws {
        var limits = IngestLimits()
        limits.waitingBytes = 10_000_000
        let budget = IngestBudget(limits.waitingBytes)
        func parsed(_ format: IngestFormat, values: Int, held: Int = 1) async throws -> BodyParser.Parsed {
            let share = try #require(budget.share(ofBody: held, team: "a"))
            let list = String(repeating: "{},", count: values) + "{}"
            let body =
                format == .lines ? "{\"schema\":\"stall-report/1\",\"x\":[\(list)]}" : "{\"resourceLogs\":[\(list)]}"
            return try await BodyParser.parse(
                Array(body.utf8),
                format,
                .identity,
                limits,
                team: "a",
                share
            )
        }
        do {
            let other = try #require(budget.share(ofBody: 5_000_000, team: "b"))
            for format in [IngestFormat.lines, .telemetry] {
                await #expect(throws: BodyParser.OutOfMemory.self) { _ = try await parsed(format, values: 100_000) }
            }
            other.shrink(by: 5_000_000)
        }
        // Not for want of other requests' memory: it would never be accepted.
        for format in [IngestFormat.lines, .telemetry] {
            await #expect {
                _ = try await parsed(format, values: 100_000, held: 5_000_000)
            } throws: {
                ($0 as? Refusal)?.status == .contentTooLarge
            }
        }
        let refused = try await parsed(.lines, values: 100_000).refused
        #expect(refused.count == 1 && refused[0].reason != "it has too many values")
        #expect(try await parsed(.telemetry, values: 100_000).count == 0)
        #expect(try await parsed(.lines, values: 200_000).refused.map(\.reason) == ["it has too many values"])
        await #expect {
            _ = try await parsed(.telemetry, values: 200_000)
        } throws: {
            ($0 as? Refusal)?.status == .contentTooLarge
        }
        #expect(budget.usedBytes == 0)
    }

    @Test("A request without memory for it is refused before its body is read")
    func noMemory() async throws {
        var options = CollectorOptions()
        options.limits.waitingBytes = 1_000_000
        let barrier = Barrier()
        let store = StubStore(inserting: { arrivals in
            await barrier.pass()
            return arrivals.count
        })
        try await Client.withServer(store, options) { client in
            // One holds its share and never sends what it announced. Which of them is seen first is not known.
            var holders: [Connection] = []
            var answer = ""
            while !answer.contains("HTTP/1.1 429") {
                try #require(holders.count < 100)
                let other = try Connection(port: client.port)
                // No byte of the body is sent.
                #expect(other.send(Self.head(bytes: 900_000)))
                holders.append(other)
                // The one that has its share gets no answer.
                answer = await other.receive(attempts: 50) ?? ""
            }
            while !answer.contains("memory"), let more = await holders.last?.receive() { answer += more }
            #expect(answer.lowercased().contains("retry-after: 1"), "\(answer)")
            #expect(answer.contains("too much waits for memory"), "\(answer)")
            await barrier.open()
        }
    }

    @Test("A body without an announced size takes the memory of its own size, not of the largest one")
    func unannounced() async throws {
        var options = CollectorOptions()
        options.limits.waitingBytes = 1_000_000
        let report = try String(decoding: Samples.report().json(), as: UTF8.self)
        let length = String(report.utf8.count, radix: 16)
        try await Client.withServer(StubStore(), options) { client in
            let connection = try Connection(port: client.port)
            let head =
                "POST /v1/reports HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n"
            #expect(connection.send(head + "\(length)\r\n\(report)\r\n0\r\n\r\n"))
            let answer = await connection.receive() ?? ""
            #expect(answer.hasPrefix("HTTP/1.1 202"), "\(answer)")
        }
    }

    private static func head(bytes: Int) -> String {
        "POST /v1/reports HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\nContent-Length: \(bytes)\r\n\r\n"
    }

    @Test("A sender whose clock is far ahead of the collector's is told to wait, and its reports are not refused")
    func clocks() async throws {
        let format = DateFormatter()
        format.locale = Locale(identifier: "en_US_POSIX")
        format.timeZone = .gmt
        format.dateFormat = "EEE, dd MMM yyyy HH:mm:ss 'GMT'"
        let hours = [-1000, 0, 23, 26, 100_000].map { format.string(from: Date(timeIntervalSinceNow: $0 * 3600)) }
        let report = try Samples.report().json()
        try await Client.withServer(StubStore(), CollectorOptions()) { client in
            var answers: [Int] = []
            for date in hours + ["soon"] {
                let fields: HTTPFields = [.contentType: "application/x-ndjson", .date: date]
                try await client.execute(uri: "/v1/reports", method: .post, headers: fields, body: report) {
                    answers.append($0.status.code)
                    #expect(($0.headers[.retryAfter] == "60") == ($0.status == .serviceUnavailable))
                }
            }
            #expect(answers == [202, 202, 202, 503, 503, 202])
            try await client.execute(uri: "/metrics", method: .get) {
                #expect(String(decoding: $0.body, as: UTF8.self).contains("stall_collector_ingest_overloads_total 2\n"))
            }
        }
    }

    @Test("A sender's time is read in the form of HTTP, and in no other")
    func dates() {
        for (text, time) in [
            ("Sun, 06 Nov 1994 08:49:37 GMT", "1994-11-06T08:49:37Z"),
            ("Thu, 29 Feb 2024 23:59:60 GMT", "2024-02-29T23:59:60Z"),
            ("Fri, 31 Dec 9999 23:59:59 GMT", "9999-12-31T23:59:59Z"),
        ] { #expect(SenderClock.time(text) == Timestamp(rfc3339: time)) }
        for text in [
            "", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994", "Sun, 06 Nov 1994 08:49:37 CET",
            "Sun, 31 Feb 2024 08:49:37 GMT", "Sun, 6 Nov 1994 08:49:37 GMT", "Sun,  06 Nov 1994 08:49:37 GMT",
        ] { #expect(SenderClock.time(text) == nil, "\(text)") }
    }

    @Test("A report that could not be shown later is refused, wherever it is broken")
    func wholeReports() async throws {
        try await Client.withServer(StubStore(), CollectorOptions()) { client in
            let good = try String(decoding: Samples.report().json(), as: UTF8.self)
            let broken = [
                good.replacing("\"stacks\":[", with: "\"stacks\":[7,"),
                good.replacing("\"address\":", with: "\"address\":[],\"x\":"),
                good.replacing("\"modules\":[", with: "\"modules\":[{}"),
            ]
            #expect(broken.allSatisfy { $0 != good })
            let body = Array((broken + [good]).joined().utf8)
            try await client.execute(uri: "/v1/reports", method: .post, headers: Self.kind, body: body) {
                let receipt = try JSONDecoder().decode(IngestReceipt.self, from: Data($0.body))
                #expect((receipt.accepted, receipt.refused) == (1, 3), "\(receipt)")
            }
        }
    }
}
