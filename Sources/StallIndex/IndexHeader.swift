import StallReading
import StallReports

/// What an index knows about its directory and its segments.
struct IndexHeader: Hashable {
    /// Increases with each change of the format or of an outline's contents.
    static let format: UInt32 = 1

    /// A segment in the database.
    struct Part: Hashable {
        var row: Int64
        var first: ULID
        var last: ULID
        var count: Int
        var keysSum: UInt64
        var dataSum: UInt64
    }

    /// The directory's path, with symbolic links resolved.
    var path: String
    /// Sorted by their ids.
    var parts: [Part] = []
    /// The names in the directory when its index was last complete. Nil after an interrupted first build.
    var names: Names?
    /// Whether the directory lists other inode numbers than its files have (some file systems do). Then each pass checks every
    /// file's status.
    var looksAtEachFile = false

    /// The names that are in no segment.
    struct Names: Hashable {
        var stamp: DirectoryStamp
        var readAt: Timestamp
        var runs: [ULID]
        var records: [ULID]
        var below: [String]
        /// Stalls without a known outline, and the inode numbers of their files.
        var others: [ULID]
        var inodes: [UInt64]
    }

    var rows: Int { parts.reduce(0) { $0 + $1.count } }
}

extension IndexHeader {
    /// The header as bytes, with a checksum at the end.
    func bytes() -> [UInt8] {
        var writer = ByteWriter()
        writer.fixed(Self.format)
        writer.text(StallReport.currentSchema)
        writer.text(path)
        writer.flag(looksAtEachFile)
        writer.list(parts) { $0.part($1) }
        writer.optional(names) { $0.names($1) }
        writer.fixed(Checksum.of(writer.bytes))
        return writer.bytes
    }

    /// Nil if ``bytes()`` did not write these bytes.
    init?(_ bytes: ByteView) {
        guard bytes.count > 12 else { return nil }
        let content = bytes[0..<bytes.count - 8]
        guard Checksum.of(content) == bytes.load(at: bytes.count - 8, as: UInt64.self),
            let header = try? Self.read(content)
        else { return nil }
        self = header
    }

    private static func read(_ bytes: ByteView) throws(ByteReader.Invalid) -> IndexHeader {
        var reader = ByteReader(bytes)
        guard try reader.fixed(UInt32.self) == format, try reader.text() == StallReport.currentSchema else {
            throw ByteReader.Invalid()
        }
        var header = IndexHeader(path: try reader.text())
        header.looksAtEachFile = try reader.flag()
        header.parts = try reader.list { reader throws(ByteReader.Invalid) in try reader.part() }
        header.names = try reader.optional { reader throws(ByteReader.Invalid) in try reader.names() }
        guard reader.isAtEnd, header.isInOrder else { throw ByteReader.Invalid() }
        return header
    }

    private var isInOrder: Bool {
        parts.allSatisfy { $0.count > 0 && $0.count <= 4 * Segment.rows && $0.first <= $0.last }
            && zip(parts, parts.dropFirst()).allSatisfy { $0.last < $1.first }
            && names.map { $0.others.count == $0.inodes.count } ?? true
    }
}

extension ByteWriter {
    fileprivate mutating func part(_ part: IndexHeader.Part) {
        fixed(part.row)
        id(part.first)
        id(part.last)
        number(part.count)
        fixed(part.keysSum)
        fixed(part.dataSum)
    }

    fileprivate mutating func names(_ names: IndexHeader.Names) {
        fixed(names.stamp.inode)
        for moment in [names.stamp.modified, names.stamp.changed, names.readAt] { time(moment) }
        for ids in [names.runs, names.records, names.others] { list(ids) { $0.id($1) } }
        list(names.inodes) { $0.fixed($1) }
        list(names.below) { $0.text($1) }
    }
}

extension ByteReader {
    fileprivate mutating func part() throws(Invalid) -> IndexHeader.Part {
        IndexHeader.Part(
            row: try fixed(Int64.self),
            first: try id(),
            last: try id(),
            count: try number(),
            keysSum: try fixed(UInt64.self),
            dataSum: try fixed(UInt64.self)
        )
    }

    fileprivate mutating func names() throws(Invalid) -> IndexHeader.Names {
        let stamp = DirectoryStamp(inode: try fixed(UInt64.self), modified: try time(), changed: try time())
        let readAt = try time()
        let (runs, records, others) = (try ids(), try ids(), try ids())
        let inodes = try list { reader throws(Invalid) in try reader.fixed(UInt64.self) }
        return IndexHeader.Names(
            stamp: stamp,
            readAt: readAt,
            runs: runs,
            records: records,
            below: try list { reader throws(Invalid) in try reader.text() },
            others: others,
            inodes: inodes
        )
    }

    private mutating func ids() throws(Invalid) -> [ULID] {
        try list { reader throws(Invalid) in try reader.id() }
    }
}
