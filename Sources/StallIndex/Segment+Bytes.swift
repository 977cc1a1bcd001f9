import StallReading
import StallReports

// How keys and outlines are stored as bytes.

/// One row of a segment, as stored.
struct OutlineRow {
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
    mutating func key() throws(Invalid) -> Segment.Key {
        let id = try id()
        let inode = try fixed(UInt64.self)
        let modified = try time()
        return Segment.Key(id: id, file: FileKey(inode: inode, modified: modified, size: Int(try fixed(UInt32.self))))
    }

    mutating func row() throws(Invalid) -> OutlineRow {
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

    mutating func id() throws(Invalid) -> ULID { ULID(rawValue: try fixed(UInt128.self)) }

    mutating func time() throws(Invalid) -> Timestamp {
        Timestamp(seconds: try fixed(Int64.self), nanoseconds: Int64(try fixed(UInt32.self)))
    }

    mutating func repeats() throws(Invalid) -> StallReport.Repeats {
        StallReport.Repeats(
            count: try number(),
            report: try optional { reader throws(Invalid) in try reader.id() },
            firstAt: try time(),
            lastAt: try time(),
            totalNs: try fixed(Int64.self),
            longestNs: try fixed(Int64.self)
        )
    }

    mutating func origin() throws(Invalid) -> OutlineOrigin {
        OutlineOrigin(
            run: try optional { reader throws(Invalid) in try reader.id() },
            host: try text(),
            service: try maybeText(),
            release: try maybeText()
        )
    }

    mutating func traits() throws(Invalid) -> OutlineTraits {
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
    mutating func id(_ id: ULID) { fixed(id.rawValue) }

    mutating func time(_ time: Timestamp) {
        fixed(time.seconds)
        fixed(UInt32(time.nanoseconds))
    }

    mutating func repeats(_ repeats: StallReport.Repeats) {
        number(repeats.count)
        optional(repeats.report) { $0.id($1) }
        time(repeats.firstAt)
        time(repeats.lastAt)
        fixed(repeats.totalNs)
        fixed(repeats.longestNs)
    }

    mutating func origin(_ origin: OutlineOrigin) {
        optional(origin.run) { $0.id($1) }
        text(origin.host)
        optional(origin.service) { $0.text($1) }
        optional(origin.release) { $0.text($1) }
    }

    mutating func traits(_ traits: OutlineTraits) {
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
