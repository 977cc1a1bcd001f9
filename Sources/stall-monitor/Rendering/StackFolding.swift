import StallReports

extension StackListing {
    /// A part of a listing: a frame to print, or a number of omitted frames.
    enum Part: Hashable {
        case frame(Int)
        case folded(Int)
        /// The preceding frames repeat.
        case repeated(Recursion)
        /// Frames beyond the limit.
        case cut(Int)
        /// Frames that the report does not have.
        case leftOut(Int)

        /// How many of the stack's frames it covers.
        var count: Int {
            switch self {
            case .frame: 1
            case .folded(let count), .cut(let count): count
            case .repeated(let recursion): recursion.count * recursion.period
            case .leftOut: 0
            }
        }
    }

    /// Shows own frames, the frames that they called, and the innermost frame; without own frames, the first ten. A single frame
    /// is never folded. Recursion is shown once.
    var parts: [Part] {
        let hasOwn = stack.frames.contains(where: \.own)
        let recursions = recursions
        var parts: [Part] = []
        var index = 0
        var gap = gap
        while index < stack.frames.count, parts.count < Self.limit {
            if let found = gap, found.after <= index {
                parts.append(.leftOut(found.count))
                gap = nil
            }
            if let recursion = recursions[index] {
                parts.append(.repeated(recursion))
                index += recursion.count * recursion.period
                continue
            }
            let rest = index..<max(index, gap?.after ?? stack.frames.count)
            let hidden = rest.prefix {
                recursions[$0] == nil && !(hasOwn ? isShown($0) : showsAllFrames || $0 < 10)
            }
            parts.append(hidden.count > 1 ? .folded(hidden.count) : .frame(index))
            index += max(1, hidden.count)
        }
        if index < stack.frames.count { parts.append(.cut(stack.frames.count - index)) }
        // The gap is at the end, or among the frames that were cut.
        return parts + (gap.map { [.leftOut($0.count)] } ?? [])
    }

    /// Clamped to the stack's frames, because a file may contain any number.
    private var gap: StallReport.LeftOut? {
        stack.leftOut.map { .init(after: min(max($0.after, 0), stack.frames.count), count: $0.count) }
    }

    /// Searched on each side of the gap separately: frames on both sides of it are not adjacent.
    private var recursions: [Int: Recursion] {
        let end = gap?.after ?? stack.frames.count
        return Recursion.all(in: stack.frames[..<end])
            .merging(Recursion.all(in: stack.frames[end...])) { first, _ in first }
    }

    private func isShown(_ index: Int) -> Bool {
        if showsAllFrames || index == 0 || stack.frames[index].own { return true }
        return index + 1 < stack.frames.count && stack.frames[index + 1].own
    }
}

/// Recursion in a stack: a function that calls itself, or a few functions that call each other.
struct Recursion: Hashable {
    /// The number of frames in one cycle.
    let period: Int
    /// The number of repetitions after the first occurrence.
    let count: Int

    /// The longest cycle to search for. Recursive parsers have cycles of about five functions.
    static let longest = 16

    /// All recursions by the index of the first repeated frame. Two occurrences are too few to fold.
    static func all(in frames: ArraySlice<StallReport.Frame>) -> [Int: Recursion] {
        let identities = frames.map(Identity.init)
        var found: [Int: Recursion] = [:]
        var index = 0
        while index < identities.count {
            let best = (1...longest).lazy.compactMap { recursion(in: identities, at: index, period: $0) }.first
            if let best { found[frames.startIndex + index + best.period] = best }
            index += best.map { $0.period * ($0.count + 1) } ?? 1
        }
        return found
    }

    private static func recursion(in identities: [Identity], at start: Int, period: Int) -> Recursion? {
        var end = start + period
        while end < identities.count, identities[end] == identities[end - period] { end += 1 }
        let count = (end - start) / period - 1
        return count >= 2 ? Recursion(period: period, count: count) : nil
    }

    /// Two frames with equal values look the same to a reader.
    private struct Identity: Hashable {
        let name: String
        let kind: FrameKind?
        let line: Int?
        let own: Bool

        init(_ frame: StallReport.Frame) {
            name = frame.symbol ?? frame.function ?? "\(frame.module ?? -1) \(frame.offset ?? frame.address)"
            (kind, line, own) = (frame.kind, frame.line, frame.own)
        }
    }
}
