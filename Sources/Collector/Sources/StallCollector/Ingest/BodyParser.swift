import GzipCompression
import HTTPTypes
import StallReports
import StallStore
import ZstdCompression

/// Parses and checks the body of one request. All memory that it keeps is taken from the request's share.
struct BodyParser {
    let limits: IngestLimits
    let team: String
    let share: IngestBudget.Share
    private(set) var parsed = Parsed()

    /// The checked records of a request.
    struct Parsed: Sendable {
        var arrivals: [Arrival] = []
        var refused: [IngestReceipt.Reason] = []
        /// The bytes of the decompressed body.
        var bytes = 0
        /// The bytes of memory that `arrivals` uses.
        var heldBytes = 0

        var count: Int { arrivals.count + refused.count }
    }

    /// There is not enough memory for the request now.
    struct OutOfMemory: Error {}

    init(_ limits: IngestLimits, team: String, _ share: IngestBudget.Share) {
        (self.limits, self.team, self.share) = (limits, team, share)
    }

    /// - Throws: ``Refusal``, ``OutOfMemory``.
    static func parse(
        _ body: [UInt8],
        _ format: IngestFormat,
        _ coding: BodyCoding,
        _ limits: IngestLimits,
        team: String,
        _ share: IngestBudget.Share
    ) async throws -> Parsed {
        var parser = BodyParser(limits, team: team, share)
        try parser.grow(by: coding.windowBytes)
        defer { share.shrink(by: coding.windowBytes) }
        switch format {
        case .lines: try await parser.parseLines(body, coding)
        case .telemetry: try await parser.parseTelemetry(body, coding)
        }
        return parser.parsed
    }

    // MARK: Lines

    /// After this many bytes, other requests get a turn on the thread.
    private static let turnBytes = 1 << 20

    private mutating func parseLines(_ body: [UInt8], _ coding: BodyCoding) async throws {
        var (number, lastTurn) = (0, 0)
        do {
            var lines = try BodyLines(body, coding, limits)
            while let line = try lines.next() {
                number += 1
                // Blank lines are no records, and a small packed body can have millions.
                guard number / 2 <= limits.records else { throw tooMany }
                parsed.bytes = lines.unpackedBytes
                try take(line, number)
                if lines.returnedBytes - lastTurn > Self.turnBytes {
                    lastTurn = lines.returnedBytes
                    await Task.yield()
                }
            }
            parsed.bytes = lines.unpackedBytes
        } catch BodyLines.Failure.tooLarge {
            throw tooLarge(limits.unpackedBytes)
        } catch BodyLines.Failure.damaged {
            throw damaged(coding)
        }
    }

    private mutating func take(_ line: BodyLines.Line, _ number: Int) throws {
        if case .whole(let json) = line, json.isEmpty { return }
        let limits = limits
        let team = team
        var room = 0
        if case .whole(let json) = line, json.count > Self.quickBytes { room = Self.decodingBytes(json) }
        guard room <= limits.waitingBytes else {
            return try add(number) { () throws(RefusedArrival) in throw RefusedArrival("it has too many values") }
        }
        if room > 0 { try grow(by: room) }
        defer { share.shrink(by: room) }
        try add(number) { () throws(RefusedArrival) in
            guard case .whole(let json) = line else {
                throw RefusedArrival("more than \(limits.recordBytes) bytes")
            }
            return try Arrival(json: json, team: team)
        }
    }

    private mutating func add(_ number: Int, _ make: () throws(RefusedArrival) -> Arrival) throws {
        guard parsed.count < limits.records else { throw tooMany }
        let arrival: Arrival
        do throws(RefusedArrival) {
            arrival = try make()
        } catch {
            parsed.refused.append(.init(line: number, reason: error.description))
            return
        }
        try grow(by: arrival.heldBytes)
        parsed.arrivals.append(arrival)
        parsed.heldBytes = parsed.heldBytes.addingSaturated(arrival.heldBytes)
    }

    private var tooMany: Refusal {
        Refusal(.contentTooLarge, "more than \(limits.records) records in a request")
    }

    private func tooLarge(_ bytes: Int) -> Refusal {
        Refusal(.contentTooLarge, "unpacked it is more than \(bytes) bytes; send fewer reports at a time")
    }

    private func damaged(_ coding: BodyCoding) -> Refusal {
        // `zstd --long` and `--ultra` make such windows.
        let window = coding == .zstd ? ", or with a window of more than \(Zstd.Unpacker.windowBytes >> 20) MiB" : ""
        return Refusal(.badRequest, "the body is cut off, or not packed as Content-Encoding says\(window)")
    }

    // MARK: The memory of decoding

    /// - Throws: ``OutOfMemory``, or a refusal if the memory would not suffice for this request alone: trying again would not help.
    private func grow(by bytes: Int) throws {
        if share.grow(by: bytes) { return }
        guard !share.canGrow(by: bytes) else { throw OutOfMemory() }
        throw Refusal(
            .contentTooLarge,
            "it needs more memory than the \(limits.waitingBytes) bytes for all requests; send fewer reports at a time"
        )
    }

    /// The reports' own decoder reads all longer lines. What it needs for others is little.
    private static let quickBytes = 1 << 18

    /// An estimate of the memory in which a decoder keeps the structure of a document. This depends on the number of its values: some
    /// kilobytes, unpacked, can have millions.
    private static func decodingBytes(_ json: [UInt8]) -> Int {
        var values = 1
        for byte in json {
            switch byte {
            case UInt8(ascii: "{"), UInt8(ascii: "["), UInt8(ascii: ","), UInt8(ascii: ":"): values += 1
            default: break
            }
        }
        return values.multipliedSaturated(by: 32)
    }

    // MARK: Log records

    private mutating func parseTelemetry(_ body: [UInt8], _ coding: BodyCoding) async throws {
        let json = try unpacked(body, coding)
        parsed.bytes = json.count
        // The unpacked text, the texts of its values, and its structure.
        let decodedBytes = Self.decodingBytes(json).addingSaturated(2 * json.count)
        guard decodedBytes <= limits.waitingBytes else {
            throw Refusal(.contentTooLarge, "it has too many values; send fewer log records at a time")
        }
        try grow(by: decodedBytes)
        defer { share.shrink(by: decodedBytes) }
        let request: TelemetryLogs
        do {
            request = try TelemetryLogs.decoded(json, records: limits.records)
        } catch is TelemetryLogs.TooMany {
            throw tooMany
        } catch {
            throw Refusal(.badRequest, "the body is not OpenTelemetry's JSON for logs")
        }
        var number = 0
        for group in request.resourceLogs ?? [] {
            for entry in (group.scopeLogs ?? []).flatMap({ $0.logRecords ?? [] }) {
                number += 1
                try take(entry.record.map { TelemetryStall($0, group.resource?.attributes) }, number)
                await Task.yield()
            }
        }
    }

    /// - Parameter stall: Nil if the record has another form.
    private mutating func take(_ stall: TelemetryStall?, _ number: Int) throws {
        let team = team
        try add(number) { () throws(RefusedArrival) in
            guard let stall else { throw RefusedArrival("it is not OpenTelemetry's JSON for a log record") }
            // Checked in the same way as a report that was sent directly.
            let report = try stall.report()
            guard let json = try? report.json() else { throw RefusedArrival("it cannot be written as a report") }
            return try Arrival(json: json, team: team)
        }
    }

    private func unpacked(_ body: [UInt8], _ coding: BodyCoding) throws -> [UInt8] {
        let limit = limits.unpackedTelemetryBytes
        do throws(Gzip.Failure) {
            guard let unpacker = try BodyUnpacker(body, coding) else {
                guard body.count <= limit else { throw .tooLarge }
                return body
            }
            var json: [UInt8] = []
            while let piece = try unpacker.next() {
                guard json.count + piece.count <= limit else { throw .tooLarge }
                json += piece
            }
            return json
        } catch {
            throw error == .tooLarge ? tooLarge(limit) : damaged(coding)
        }
    }
}
