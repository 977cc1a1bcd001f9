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
        keys.fixed(outline.id.rawValue)
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
        outline.repeats.map { repeats.append($0) }
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
        var shared = pool
        pool = OutlinePool()
        defer { pool = shared }
        return valid {
            var reader = ByteReader(bytes)
            let traits = try reader.list { reader throws(ByteReader.Invalid) in try reader.traits() }
                .map { shared.shared(Shared($0)) }
            let origins = try reader.list { reader throws(ByteReader.Invalid) in try reader.origin() }
                .map { shared.shared(Shared($0)) }
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

private struct OutlineRow {
    var startedAt: Timestamp
    var endedAt: Timestamp?
    var durationNs: Int64
    var runDelayShare: Double?
    var traits: Int
    var origin: Int
    var suppressed: Int
    var repeats: Int
}

extension ByteReader {
    fileprivate mutating func key() throws(Invalid) -> Segment.Key {
        let id = ULID(rawValue: try fixed(UInt128.self))
        let inode = try fixed(UInt64.self)
        let modified = try time()
        return Segment.Key(id: id, file: FileKey(inode: inode, modified: modified, size: Int(try fixed(UInt32.self))))
    }

    fileprivate mutating func row() throws(Invalid) -> OutlineRow {
        let started = try time()
        let (hasEnd, end) = (try flag(), try time())
        let duration = try fixed(Int64.self)
        let (hasShare, share) = (try flag(), Double(bitPattern: try fixed(UInt64.self)))
        let (traits, origin) = (Int(try fixed(UInt32.self)), Int(try fixed(UInt32.self)))
        return OutlineRow(
            startedAt: started,
            endedAt: hasEnd ? end : nil,
            durationNs: duration,
            runDelayShare: hasShare ? share : nil,
            traits: traits,
            origin: origin,
            suppressed: Int(clamping: try fixed(Int64.self)),
            repeats: Int(try fixed(UInt32.self))
        )
    }

    mutating func time() throws(Invalid) -> Timestamp {
        Timestamp(seconds: try fixed(Int64.self), nanoseconds: Int64(try fixed(UInt32.self)))
    }

    fileprivate mutating func repeats() throws(Invalid) -> StallReport.Repeats {
        StallReport.Repeats(
            count: try number(),
            report: try optional { reader throws(Invalid) in ULID(rawValue: try reader.fixed(UInt128.self)) },
            firstAt: try time(),
            lastAt: try time(),
            totalNs: try fixed(Int64.self),
            longestNs: try fixed(Int64.self)
        )
    }

    fileprivate mutating func origin() throws(Invalid) -> OutlineOrigin {
        OutlineOrigin(
            run: try optional { reader throws(Invalid) in ULID(rawValue: try reader.fixed(UInt128.self)) },
            host: try text(),
            service: try maybeText(),
            release: try maybeText()
        )
    }

    fileprivate mutating func traits() throws(Invalid) -> OutlineTraits {
        OutlineTraits(
            kind: StallKind(rawValue: try text()),
            state: StallState(rawValue: try text()),
            severity: Severity(rawValue: try text()),
            type: WatchedType(rawValue: try text()),
            label: try text(),
            verdict: Verdict(rawValue: try text()),
            culprit: try optional { reader throws(Invalid) in try reader.culprit() },
            culpritName: try maybeText(),
            stackError: try maybeText(),
            fingerprint: try fingerprint(),
            aliases: try optional { reader throws(Invalid) in
                try reader.list { reader throws(Invalid) in try reader.fingerprint() }
            }
        )
    }

    private mutating func fingerprint() throws(Invalid) -> Fingerprint {
        guard let fingerprint = Fingerprint(rawValue: try text()) else { throw Invalid() }
        return fingerprint
    }

    private mutating func culprit() throws(Invalid) -> StallReport.Culprit {
        StallReport.Culprit(
            function: try maybeText(),
            symbol: try maybeText(),
            module: try maybeText(),
            file: try maybeText(),
            line: try optional { reader throws(Invalid) in try reader.number() },
            stack: try number(),
            frame: try number(),
            isAwaiting: try optional { reader throws(Invalid) in try reader.flag() }
        )
    }

    private mutating func maybeText() throws(Invalid) -> String? {
        try optional { reader throws(Invalid) in try reader.text() }
    }
}

extension ByteWriter {
    mutating func time(_ time: Timestamp) {
        fixed(time.seconds)
        fixed(UInt32(time.nanoseconds))
    }

    fileprivate mutating func repeats(_ repeats: StallReport.Repeats) {
        number(repeats.count)
        optional(repeats.report) { $0.fixed($1.rawValue) }
        time(repeats.firstAt)
        time(repeats.lastAt)
        fixed(repeats.totalNs)
        fixed(repeats.longestNs)
    }

    fileprivate mutating func origin(_ origin: OutlineOrigin) {
        optional(origin.run) { $0.fixed($1.rawValue) }
        text(origin.host)
        optional(origin.service) { $0.text($1) }
        optional(origin.release) { $0.text($1) }
    }

    fileprivate mutating func traits(_ traits: OutlineTraits) {
        for word in [traits.kind.rawValue, traits.state.rawValue, traits.severity.rawValue, traits.type.rawValue] {
            text(word)
        }
        text(traits.label)
        text(traits.verdict.rawValue)
        optional(traits.culprit) { $0.culprit($1) }
        optional(traits.culpritName) { $0.text($1) }
        optional(traits.stackError) { $0.text($1) }
        text(traits.fingerprint.rawValue)
        optional(traits.aliases) { $0.list($1) { $0.text($1.rawValue) } }
    }

    private mutating func culprit(_ culprit: StallReport.Culprit) {
        for part in [culprit.function, culprit.symbol, culprit.module, culprit.file] {
            optional(part) { $0.text($1) }
        }
        optional(culprit.line) { $0.number($1) }
        number(culprit.stack)
        number(culprit.frame)
        optional(culprit.isAwaiting) { $0.flag($1) }
    }
}
