/// The bytes of a live record: a head of one page, then places of 256 bytes for stalls. Integers are little-endian, times are
/// nanoseconds since 1970 or of `CLOCK_MONOTONIC`, texts are UTF-8 padded with zeros. Each block ends with its checksum
/// (FNV-1a, 64 bit), so a block that was read while it was written, or that a power failure tore, is detected.
///
///     0     magic "STALLIVE", version u32, head u32, place u32, places u32, run u128, length of the writer's JSON u32
///     64    status: updated i64, last look u64, watched u32, unplaced u32, exiting u32, exit status i32,
///           memory kills known u32, 0 u32, memory kills u64, waiting reports u32, 0 u32; checksum at 120
///     504   checksum of 0 ..< 64 and of the page from 512 on
///     512   the writer, JSON
///     4096  places: state u32 (0 free, 1 ongoing, 2 recovered), thread i32, report u128, started u64 (monotonic), started i64,
///           detected i64, last seen u64 (monotonic), last seen i64, length i64, least i64, most i64, turn u64, tick i64, ticks u32,
///           system call i32 (−1: none), watch u32, process i32 (0: the writer), rule 16 bytes, type 16, activity 24, label 56,
///           turns of the rule u32 (0: none); checksum at 248
enum LiveRecordLayout {
    static let magic = Array("STALLIVE".utf8)
    static let version: UInt32 = 1
    static let headSize = 4096
    static let placeSize = 256
    /// The number of simultaneous stalls for which our records have room.
    static let placeCount = 128
    static let statusRange = 64..<128
    /// The largest number of places that a reader accepts: another version may have more than this one.
    static let maximumPlaceCount = 4096
    static let maximumSize = headSize + maximumPlaceCount * placeSize

    static func offset(ofPlace index: Int) -> Int { headSize + index * placeSize }

    /// A complete file without stalls.
    static func file(run: ULID, writer: LiveRecord.Writer, status: LiveRecord.Status) throws(ReportError) -> [UInt8] {
        let json = try ReportJSON.encode(writer)
        guard json.count <= headSize - 512 else { throw ReportError(.tooLarge) }
        var head = FixedBytes(count: headSize)
        head.put(magic, at: 0)
        head.set(version, at: 8)
        head.set(UInt32(headSize), at: 12)
        head.set(UInt32(placeSize), at: 16)
        head.set(UInt32(placeCount), at: 20)
        head.set(run.rawValue, at: 24)
        head.set(UInt32(json.count), at: 40)
        head.put(json, at: 512)
        head.put(block(of: status), at: statusRange.lowerBound)
        head.set(checksumOfHead(head), at: 504)
        let place = block(of: nil)
        return head.bytes + (0..<placeCount).flatMap { _ in place }
    }

    private static func checksumOfHead(_ head: FixedBytes) -> UInt64 {
        head.checksum(of: 0..<64) ^ head.checksum(of: 512..<headSize)
    }

    /// - Throws: `.torn`, `.malformed` or `.unsupportedSchema`. An invalid place is counted and skipped.
    static func record(from bytes: [UInt8]) throws(ReportError) -> LiveRecord {
        guard bytes.count >= headSize else { throw ReportError(.torn) }
        let head = FixedBytes(bytes[..<headSize])
        guard Array(head.bytes[..<8]) == magic else { throw ReportError(.malformed, detail: "not a live record") }
        guard head.integer(at: 8) == version else {
            throw ReportError(.unsupportedSchema, detail: "expected version \(version)")
        }
        let count = Int(head.integer(at: 20, as: UInt32.self))
        guard head.integer(at: 12) == UInt32(headSize), head.integer(at: 16) == UInt32(placeSize),
            count <= maximumPlaceCount
        else { throw ReportError(.malformed, detail: "sizes") }
        guard head.integer(at: 504) == checksumOfHead(head), bytes.count >= offset(ofPlace: count) else {
            throw ReportError(.torn)
        }
        let json = Int(head.integer(at: 40, as: UInt32.self))
        guard json <= headSize - 512 else { throw ReportError(.malformed, detail: "writer") }
        var record = LiveRecord(
            run: ULID(rawValue: head.integer(at: 24)),
            writer: try ReportJSON.decode(Array(head.bytes[512..<512 + json])),
            status: try status(from: FixedBytes(head.bytes[statusRange]))
        )
        for index in 0..<count {
            let place = FixedBytes(bytes[offset(ofPlace: index)..<offset(ofPlace: index + 1)])
            switch stall(from: place) {
            case .success(let stall): if let stall { record.stalls.append(stall) }
            case .failure: record.tornStalls += 1
            }
        }
        return record
    }
}

// Encodes and decodes the two blocks that change.

extension LiveRecordLayout {
    static func block(of status: LiveRecord.Status) -> [UInt8] {
        var block = FixedBytes(count: statusRange.count)
        block.set(status.updatedAt.unixNanoseconds, at: 0)
        block.set(status.lastLookMonotonicNs, at: 8)
        block.set(UInt32(clamping: status.watched), at: 16)
        block.set(UInt32(clamping: status.unplaced), at: 20)
        block.set(UInt32(status.exitStatus == nil ? 0 : 1), at: 24)
        block.set(status.exitStatus ?? 0, at: 28)
        block.set(UInt32(status.memoryKills == nil ? 0 : 1), at: 32)
        block.set(status.memoryKills ?? 0, at: 40)
        block.set(UInt32(clamping: status.waitingReports), at: 48)
        block.seal(at: 56)
        return block.bytes
    }

    static func status(from block: FixedBytes) throws(ReportError) -> LiveRecord.Status {
        guard block.isSealed(at: 56) else { throw ReportError(.torn) }
        return LiveRecord.Status(
            updatedAt: Timestamp(unixNanoseconds: block.integer(at: 0)),
            lastLookMonotonicNs: block.integer(at: 8),
            watched: Int(block.integer(at: 16, as: UInt32.self)),
            unplaced: Int(block.integer(at: 20, as: UInt32.self)),
            exitStatus: block.integer(at: 24, as: UInt32.self) == 0 ? nil : block.integer(at: 28),
            memoryKills: block.integer(at: 32, as: UInt32.self) == 0 ? nil : block.integer(at: 40),
            waitingReports: Int(block.integer(at: 48, as: UInt32.self))
        )
    }

    /// Encodes a place; nil is a free one.
    static func block(of stall: LiveStall?) -> [UInt8] {
        var block = FixedBytes(count: placeSize)
        defer { assert(block.isSealed(at: 248)) }
        guard let stall else {
            block.seal(at: 248)
            return block.bytes
        }
        block.set(UInt32(stall.state == .ongoing ? 1 : 2), at: 0)
        block.set(stall.threadID ?? 0, at: 4)
        block.set(stall.report.rawValue, at: 8)
        block.set(stall.startedMonotonicNs, at: 24)
        block.set(stall.startedAt.unixNanoseconds, at: 32)
        block.set(stall.detectedAt.unixNanoseconds, at: 40)
        block.set(stall.lastSeenMonotonicNs, at: 48)
        block.set(stall.lastSeenAt.unixNanoseconds, at: 56)
        block.set(stall.durationNs, at: 64)
        block.set(stall.durationMinNs, at: 72)
        block.set(stall.durationMaxNs, at: 80)
        block.set(stall.watched.turn ?? 0, at: 88)
        block.set(stall.rule.tickNs, at: 96)
        block.set(UInt32(clamping: stall.rule.ticks), at: 104)
        block.set(Int32(clamping: stall.systemCall ?? -1), at: 108)
        block.set(UInt32(clamping: stall.watch), at: 112)
        block.set(stall.processID ?? 0, at: 116)
        block.set(stall.rule.name.rawValue, at: 120, count: 16)
        block.set(stall.watched.type.rawValue, at: 136, count: 16)
        block.set(stall.watched.activity ?? "", at: 152, count: 24)
        block.set(stall.watched.label, at: 176, count: labelSize)
        block.set(UInt32(clamping: stall.rule.turns ?? 0), at: 232)
        block.seal(at: 248)
        return block.bytes
    }

    static let labelSize = 56

    /// Decodes a place: nil if it is free. Fails if this program cannot have written the contents completely.
    static func stall(from block: FixedBytes) -> Result<LiveStall?, ReportError> {
        guard block.isSealed(at: 248) else { return .failure(ReportError(.torn)) }
        let state = block.integer(at: 0, as: UInt32.self)
        guard state != 0 else { return .success(nil) }
        let lengths = [64, 72, 80].map { block.integer(at: $0, as: Int64.self) }
        guard state <= 2, lengths.allSatisfy({ $0 >= 0 }) else { return .failure(ReportError(.malformed)) }
        let (thread, call) = (block.integer(at: 4, as: Int32.self), block.integer(at: 108, as: Int32.self))
        let process = block.integer(at: 116, as: Int32.self)
        let turns = Int(block.integer(at: 232, as: UInt32.self))
        return .success(
            LiveStall(
                report: ULID(rawValue: block.integer(at: 8)),
                state: state == 1 ? .ongoing : .recovered,
                rule: .init(
                    name: StallKind(rawValue: block.text(at: 120, count: 16)),
                    tickNs: max(1, block.integer(at: 96)),
                    ticks: max(1, Int(block.integer(at: 104, as: UInt32.self))),
                    turns: turns > 0 ? turns : nil
                ),
                watched: watched(in: block),
                watch: Int(block.integer(at: 112, as: UInt32.self)),
                threadID: thread > 0 ? thread : nil,
                processID: process > 0 ? process : nil,
                systemCall: call < 0 ? nil : Int(call),
                startedAt: Timestamp(unixNanoseconds: block.integer(at: 32)),
                startedMonotonicNs: block.integer(at: 24),
                detectedAt: Timestamp(unixNanoseconds: block.integer(at: 40)),
                lastSeenAt: Timestamp(unixNanoseconds: block.integer(at: 56)),
                lastSeenMonotonicNs: block.integer(at: 48),
                durationNs: lengths[0],
                durationMinNs: lengths[1],
                durationMaxNs: lengths[2]
            )
        )
    }

    private static func watched(in block: FixedBytes) -> StallReport.Watched {
        let activity = block.text(at: 152, count: 24)
        let type = WatchedType(rawValue: block.text(at: 136, count: 16))
        // A task pool has no turns. Those of a loop of another process are not known.
        let hasTurn = type != .taskPool && block.integer(at: 116, as: Int32.self) <= 0
        return .init(
            type: type,
            label: block.text(at: 176, count: labelSize),
            activity: activity.isEmpty ? nil : activity,
            turn: hasTurn ? block.integer(at: 88) : nil
        )
    }
}

/// A fixed number of bytes that contain integers, least significant byte first. Traps outside its bounds: the layout is fixed,
/// only the contents come from outside.
struct FixedBytes: Hashable {
    private(set) var bytes: [UInt8]

    init(count: Int) { bytes = [UInt8](repeating: 0, count: count) }

    init(_ bytes: some Sequence<UInt8>) { self.bytes = Array(bytes) }

    func integer<Value: FixedWidthInteger>(at offset: Int, as type: Value.Type = Value.self) -> Value {
        (0..<Value.bitWidth / 8).reduce(0) { $0 | Value(truncatingIfNeeded: bytes[offset + $1]) << (8 * $1) }
    }

    mutating func set(_ value: some FixedWidthInteger, at offset: Int) {
        for index in 0..<value.bitWidth / 8 { bytes[offset + index] = UInt8(truncatingIfNeeded: value >> (8 * index)) }
    }

    /// The text in `count` bytes, terminated by a zero if there is room.
    func text(at offset: Int, count: Int) -> String {
        String(decoding: bytes[offset..<offset + count].prefix { $0 != 0 }, as: UTF8.self)
    }

    /// Cuts text that does not fit between two characters.
    mutating func set(_ text: String, at offset: Int, count: Int) {
        var rest = Substring(text)
        while rest.utf8.count > count { rest.removeLast() }
        put(rest.utf8, at: offset)
    }

    mutating func put(_ content: some Collection<UInt8>, at offset: Int) {
        bytes.replaceSubrange(offset..<offset + content.count, with: content)
    }

    /// FNV-1a, 64 bit: detects a torn block, but does not protect against forgery.
    func checksum(of range: Range<Int>) -> UInt64 { fnv1a(bytes[range]) }

    /// Writes the checksum of everything before it at `offset`.
    mutating func seal(at offset: Int) { set(checksum(of: 0..<offset), at: offset) }

    func isSealed(at offset: Int) -> Bool { integer(at: offset) == checksum(of: 0..<offset) }
}
