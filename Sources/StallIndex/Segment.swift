import StallReading
import StallReports

/// The version of a report's file from which its outline was read.
struct FileKey: Hashable {
    var inode: UInt64
    var modified: Timestamp
    var size: Int

    init(inode: UInt64, modified: Timestamp, size: Int) {
        (self.inode, self.modified, self.size) = (inode, modified, size)
    }

    init(_ version: FileStatus) { self.init(inode: version.inode, modified: version.modified, size: version.size) }
}

/// Some thousand outlines, sorted by id, as two blobs in a database: the keys, which show whether an outline is still valid, and
/// the outlines. Each blob is read at once: reading an SQL row for each of a million stalls would take seconds.
struct Segment {
    /// The number of rows of a new segment. Rewritten segments can have up to twice as many.
    static let rows = 8192

    private(set) var keys = ByteWriter()
    private(set) var first: ULID?
    private(set) var last: ULID?
    private(set) var count = 0
    private var body = ByteWriter()
    private var traits = Table<OutlineTraits>()
    private var origins = Table<OutlineOrigin>()
    private var repeats: [StallReport.Repeats] = []

    private struct Table<Value: Hashable & Sendable> {
        private(set) var values: [Value] = []
        private var indices: [Shared<Value>: Int] = [:]

        mutating func index(of value: Shared<Value>) -> UInt32 {
            if let index = indices[value] { return UInt32(index) }
            indices[value] = values.count
            values.append(value.value)
            return UInt32(values.count - 1)
        }
    }

    /// Adds a row. Call it in the order of the ids.
    mutating func add(_ outline: StallOutline, _ key: FileKey) {
        first = first ?? outline.id
        last = outline.id
        count += 1
        keys.id(outline.id)
        keys.fixed(key.inode)
        keys.time(key.modified)
        keys.fixed(UInt32(clamping: key.size))
        body.time(outline.startedAt)
        body.flag(outline.endedAt != nil)
        body.time(outline.endedAt ?? outline.startedAt)
        body.fixed(outline.durationNs)
        body.flag(outline.runDelayShare != nil)
        body.fixed((outline.runDelayShare ?? 0).bitPattern)
        body.fixed(traits.index(of: outline.traits))
        body.fixed(origins.index(of: outline.origin))
        body.fixed(Int64(outline.suppressed))
        if let found = outline.repeats { repeats.append(found) }
        body.fixed(outline.repeats == nil ? 0 : UInt32(repeats.count))
    }

    /// The outlines as bytes.
    func data() -> [UInt8] {
        var writer = ByteWriter()
        writer.reserve(body.bytes.count + 65536)
        writer.list(traits.values) { $0.traits($1) }
        writer.list(origins.values) { $0.origin($1) }
        writer.list(repeats) { $0.repeats($1) }
        return writer.bytes + body.bytes
    }
}

extension Segment {
    /// One row's key.
    struct Key {
        var id: ULID
        var file: FileKey
    }

    /// False if the bytes are not `count` keys in order.
    static func keys(_ bytes: ByteView, _ count: Int, _ body: (Key) -> Void) -> Bool {
        valid {
            var (reader, last) = (ByteReader(bytes), ULID?.none)
            for _ in 0..<count {
                let key = try reader.key()
                guard last.map({ $0 < key.id }) ?? true else { throw ByteReader.Invalid() }
                last = key.id
                body(key)
            }
            return reader.isAtEnd
        }
    }

    /// False if no segment can have these bytes.
    ///
    /// - Parameter wanted: The key of each row; nil for rows to skip.
    static func outlines(
        _ bytes: ByteView,
        _ wanted: [ULID?],
        _ pool: inout OutlinePool,
        _ body: (StallOutline) -> Void
    ) -> Bool {
        valid {
            var reader = ByteReader(bytes)
            let traits = try reader.list { reader throws(ByteReader.Invalid) in try reader.traits() }
                .map { pool.shared(Shared($0)) }
            let origins = try reader.list { reader throws(ByteReader.Invalid) in try reader.origin() }
                .map { pool.shared(Shared($0)) }
            let repeats = try reader.list { reader throws(ByteReader.Invalid) in try reader.repeats() }
            for id in wanted {
                let row = try reader.row()
                guard row.traits < traits.count, row.origin < origins.count, row.repeats <= repeats.count else {
                    throw ByteReader.Invalid()
                }
                guard let id else { continue }
                body(
                    StallOutline(
                        id: id,
                        startedAt: row.startedAt,
                        endedAt: row.endedAt,
                        durationNs: row.durationNs,
                        runDelayShare: row.runDelayShare,
                        traits: traits[row.traits],
                        origin: origins[row.origin],
                        suppressed: row.suppressed,
                        repeats: row.repeats == 0 ? nil : repeats[row.repeats - 1]
                    )
                )
            }
            return reader.isAtEnd
        }
    }

    private static func valid(_ read: () throws -> Bool) -> Bool { (try? read()) ?? false }
}

/// What a pass changes in an index: the segments to remove, and those to add.
struct SegmentChanges {
    var removed: [Int64] = []
    var added: [Segment] = []

    var isEmpty: Bool { removed.isEmpty && added.isEmpty }

    init() {}

    /// Each new row goes into the segment before it. Unchanged segments are not read.
    init(
        _ fresh: [(outline: StallOutline, key: FileKey)],
        _ parts: [IndexHeader.Part],
        _ valid: [Int64: [Bool]],
        _ file: IndexFile
    ) throws(Database.Problem) {
        var rest = fresh[...]
        for (index, part) in parts.enumerated() {
            let end = index + 1 < parts.count ? parts[index + 1].first : nil
            let own = rest.prefix { row in end.map { row.outline.id < $0 } ?? true }
            rest = rest.dropFirst(own.count)
            let flags = valid[part.row] ?? []
            // Another process may have made the index anew since the pass began: rows that were not checked do not stay.
            let isWhole = !flags.isEmpty && flags.allSatisfy(\.self)
            if own.isEmpty, isWhole { continue }
            if isWhole, part.count >= Segment.rows, let first = own.first, first.outline.id > part.last {
                added += Segment.of(own)
                continue
            }
            removed.append(part.row)
            var rows = try Self.rows(of: part, flags, file) + own
            rows.sort { $0.outline.id < $1.outline.id }
            added += Segment.of(rows[...])
        }
        if parts.isEmpty { added = Segment.of(rest) }
    }

    private static func rows(
        of part: IndexHeader.Part,
        _ valid: [Bool],
        _ file: IndexFile
    ) throws(Database.Problem) -> [(outline: StallOutline, key: FileKey)] {
        var (wanted, keys, rows): ([ULID?], [FileKey], [(outline: StallOutline, key: FileKey)]) = ([], [], [])
        try file.keys(of: part) { key in
            let isValid = wanted.count < valid.count && valid[wanted.count]
            wanted.append(isValid ? key.id : nil)
            if isValid { keys.append(key.file) }
        }
        var pool = OutlinePool()
        try file.outlines(of: part, wanted, &pool) { rows.append(($0, keys[rows.count])) }
        return rows
    }
}

extension Segment {
    /// Segments with the usual number of rows.
    static func of(_ rows: [(outline: StallOutline, key: FileKey)]) -> [Segment] { of(rows[...]) }

    static func of(_ rows: ArraySlice<(outline: StallOutline, key: FileKey)>) -> [Segment] {
        stride(from: rows.startIndex, to: rows.endIndex, by: Segment.rows).map { start in
            var segment = Segment()
            for row in rows[start..<min(start + Segment.rows, rows.endIndex)] { segment.add(row.outline, row.key) }
            return segment
        }
    }
}
