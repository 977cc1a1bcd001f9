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
///           system call i32 (−1: none), watch u32, process i32 (0: the writer), rule 16 bytes, type 16, activity 24, label 56; checksum at 248
enum LiveRecordLayout {
    static let magic = Array("STALLIVE".utf8)
    static let version: UInt32 = 1
    static let headSize = 4096
    static let placeSize = 256
    /// The number of simultaneous stalls for which our records have room.
    static let placeCount = 128
    static let statusRange = 64..<128
    static let size = headSize + placeCount * placeSize
    /// What a reader accepts: another version may have more places.
    static let maximumPlaceCount = 4096
    static let maximumSize = headSize + maximumPlaceCount * placeSize

    static func offset(ofPlace index: Int) -> Int { headSize + index * placeSize }

    /// A complete file without stalls.
    static func file(run: ULID, writer: LiveRecord.Writer, status: LiveRecord.Status) throws(ReportError) -> [UInt8] {
        let json = try ReportJSON.encode(writer)
        guard json.count <= headSize - 512 else { throw ReportError(.tooLarge) }
        var head = FixedBytes(count: headSize)
        for (index, byte) in (magic + []).enumerated() { head.set(byte, at: index) }
        head.set(version, at: 8)
        head.set(UInt32(headSize), at: 12)
        head.set(UInt32(placeSize), at: 16)
        head.set(UInt32(placeCount), at: 20)
        head.set(run.rawValue, at: 24)
        head.set(UInt32(json.count), at: 40)
        for (index, byte) in json.enumerated() { head.set(byte, at: 512 + index) }
        for (index, byte) in block(of: status).enumerated() { head.set(byte, at: statusRange.lowerBound + index) }
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
