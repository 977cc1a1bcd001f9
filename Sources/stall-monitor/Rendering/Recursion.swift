import StallReports

/// Calls that come again right after themselves: a function that calls itself, or a few that call each other.
struct Recursion: Hashable {
    /// Frames that come again.
    let period: Int
    /// How often, besides the first time.
    let count: Int

    /// The longest cycle looked for. Parsers go round in some five functions.
    static let longest = 16

    /// By the index of the first frame that is told by the ones before. Less than three times the same is no recursion worth a word.
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

    /// What makes two frames the same for a reader.
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
