import StallReading
import StallReports

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
    ) throws(IndexFile.Problem) {
        var rest = fresh[...]
        for (index, part) in parts.enumerated() {
            let end = index + 1 < parts.count ? parts[index + 1].first : nil
            let own = rest.prefix { row in end.map { row.outline.id < $0 } ?? true }
            rest = rest.dropFirst(own.count)
            let flags = valid[part.row] ?? []
            let isWhole = flags.allSatisfy(\.self)
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
    ) throws(IndexFile.Problem) -> [(outline: StallOutline, key: FileKey)] {
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
