/// One turn of a loop, from its departure from rest to its next rest; a turn that no rest precedes begins with its own
/// beginning.
public struct BusyTurn: Hashable, Sendable {
    /// The time that the loop's own thread recorded.
    public var start: MonotonicInstant
    /// Likewise. Not before `start`.
    public var end: MonotonicInstant

    /// Creates one from these values, which are not checked.
    public init(start: MonotonicInstant, end: MonotonicInstant) { (self.start, self.end) = (start, end) }
}

/// The lengths of a loop's turns, counted in buckets, from which quantiles are read. A value type; any thread.
///
/// The resolution is an eighth: up to 511 ns in steps of 64 ns, above that in eight steps per octave; all lengths from 64 s on
/// share one bucket. The longest is exact.
public struct TurnHistogram: Hashable, Sendable {
    /// Per bucket; empty when nothing was counted.
    private(set) var counts: [UInt64]
    /// The longest turn, nanoseconds.
    public private(set) var longest: UInt64

    /// An empty histogram.
    public init() { (counts, longest) = ([], 0) }

    init(counts: [UInt64], longest: UInt64) { (self.counts, self.longest) = (counts, longest) }

    /// The number of turns.
    public var count: UInt64 { counts.reduce(0, &+) }

    /// The length, in nanoseconds, that the given share of the turns did not exceed: at most an eighth (or 64 ns) too long, and
    /// never longer than the longest turn. Zero without a turn.
    ///
    /// - Parameter share: 0 to 1; 0.5 is the median. A number outside is clamped, and NaN is 0.
    public func length(ofShare share: Double) -> UInt64 {
        let all = count
        guard all > 0 else { return 0 }
        let wanted = share > 0 ? max(1, UInt64((Double(all) * min(share, 1)).rounded(.up))) : 1
        var seen: UInt64 = 0
        for (index, count) in counts.enumerated() {
            seen &+= count
            if seen >= wanted { return min(Buckets.upperBound(of: index), longest) }
        }
        return longest
    }

    /// The number of turns per interval between two bounds (longer than the bound before, not longer than the bound), to within
    /// an eighth of their length. The last element counts the turns that were longer than all bounds.
    ///
    /// - Parameter bounds: Nanoseconds, in ascending order.
    package func counts(upTo bounds: [UInt64]) -> [UInt64] {
        counts.enumerated().reduce(into: [UInt64](repeating: 0, count: bounds.count + 1)) { sums, bucket in
            // By the bucket's middle: most of a bucket lies on that side of the bound.
            let length = Buckets.middle(of: bucket.offset)
            sums[bounds.firstIndex { length <= $0 } ?? bounds.count] &+= bucket.element
        }
    }

    /// The sum of both.
    public static func + (a: Self, b: Self) -> Self {
        if a.counts.isEmpty { return b }
        if b.counts.isEmpty { return a }
        return Self(counts: zip(a.counts, b.counts).map { $0 &+ $1 }, longest: max(a.longest, b.longest))
    }

    /// What was counted since an earlier reading of the same counts. If the longest turn came before that, the result's longest is
    /// only as exact as the counts are.
    package func since(_ earlier: Self) -> Self {
        guard !counts.isEmpty, !earlier.counts.isEmpty else { return self }
        let new = zip(counts, earlier.counts).map { $0 &- min($0, $1) }
        guard let last = new.lastIndex(where: { $0 > 0 }) else { return Self() }
        let isNew = longest > earlier.longest
        return Self(counts: new, longest: isNew ? longest : min(Buckets.upperBound(of: last), longest))
    }

    /// The bucket layout in which a loop's thread counts.
    enum Buckets {
        /// The number of low bits of a length that are ignored.
        private static let dropped: UInt64 = 6
        static let count = 224

        @inline(__always)
        static func index(of nanoseconds: UInt64) -> Int {
            let units = nanoseconds >> dropped
            if units < 8 { return Int(units) }
            // The octave: 3 for 8 to 15, and so on. The three bits below the highest one are the step in the octave.
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
