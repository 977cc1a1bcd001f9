/// How long a loop's turns took: counts by length, from which shares are read. A value; any thread.
///
/// Lengths are told apart to an eighth: up to 511 ns by steps of 64 ns, above that by eight steps an octave, and all from 64 s on
/// are one. The longest is exact.
public struct TurnHistogram: Hashable, Sendable {
    /// By bucket; empty when there is nothing.
    private(set) var counts: [UInt64]
    /// The longest turn, nanoseconds.
    public private(set) var longest: UInt64

    /// Without a turn.
    public init() { (counts, longest) = ([], 0) }

    init(counts: [UInt64], longest: UInt64) { (self.counts, self.longest) = (counts, longest) }

    /// How many turns there were.
    public var count: UInt64 { counts.reduce(0, &+) }

    /// The length that so large a share of the turns did not exceed, nanoseconds: at most an eighth (or 64 ns) too long, and never
    /// longer than the longest. Zero without a turn.
    ///
    /// - Parameter share: 0 to 1; 0.5 is the median.
    public func length(ofShare share: Double) -> UInt64 {
        let all = count
        guard all > 0 else { return 0 }
        let wanted = max(1, UInt64((Double(all) * min(max(share, 0), 1)).rounded(.up)))
        var seen: UInt64 = 0
        for (index, count) in counts.enumerated() {
            seen &+= count
            if seen >= wanted { return min(Buckets.upperBound(of: index), longest) }
        }
        return longest
    }

    /// How many turns were longer than the bound before and not longer than the bound, for each, give or take an eighth of their length; last
    /// those that were longer than all bounds.
    ///
    /// - Parameter bounds: nanoseconds, in rising order.
    package func counts(upTo bounds: [UInt64]) -> [UInt64] {
        counts.enumerated().reduce(into: [UInt64](repeating: 0, count: bounds.count + 1)) { sums, bucket in
            // By its middle: most of a bucket lies on that side.
            let length = Buckets.middle(of: bucket.offset)
            sums[bounds.firstIndex { length <= $0 } ?? bounds.count] &+= bucket.element
        }
    }

    /// Both taken together.
    public static func + (a: Self, b: Self) -> Self {
        if a.counts.isEmpty { return b }
        if b.counts.isEmpty { return a }
        return Self(counts: zip(a.counts, b.counts).map { $0 &+ $1 }, longest: max(a.longest, b.longest))
    }

    /// The layout that a loop's thread counts in.
    enum Buckets {
        /// The lowest bits of a length, which are not looked at.
        private static let dropped: UInt64 = 6
        static let count = 224

        @inline(__always)
        static func index(of nanoseconds: UInt64) -> Int {
            let units = nanoseconds >> dropped
            if units < 8 { return Int(units) }
            // 3 for 8 to 15, and so on: the octave; the three bits below its highest are the step in it.
            let octave = 63 - units.leadingZeroBitCount
            return min((octave - 2) << 3 | Int((units >> UInt64(octave - 3)) & 7), count - 1)
        }

        static func middle(of index: Int) -> UInt64 {
            guard index > 0 else { return 0 }
            let (lower, upper) = (upperBound(of: index - 1), upperBound(of: index))
            return lower + (upper - lower) / 2
        }

        /// The longest length that is counted there, nanoseconds.
        static func upperBound(of index: Int) -> UInt64 {
            guard index < count - 1 else { return .max }
            guard index >= 8 else { return UInt64(index + 1) << dropped - 1 }
            let (octave, step) = (UInt64(index >> 3) + 2, UInt64(index & 7))
            return (8 + step + 1) << (octave - 3 + dropped) - 1
        }
    }
}
