import CRunLoopShims
import Synchronization

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

    /// The bucket layout in which a loop's thread counts: the classes of `task_pool_class_of`.
    enum Buckets {
        /// The number of low bits of a length that are ignored.
        private static let dropped: UInt64 = 6
        /// Computed: the first use of a stored property may take a lock, and a loop may count in a signal handler.
        static var count: Int { Int(TASK_POOL_CLASSES) }

        @inline(__always)
        static func index(of nanoseconds: UInt64) -> Int { Int(task_pool_class_of(nanoseconds)) }

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

/// What a loop's own thread records about its turns: the length of each, and the times of the long ones.
///
/// Here a *turn* is counted from the loop's departure from rest to its next rest; a turn that no rest precedes, from its own
/// beginning. (The engine's turn that begins right after a departure is a part of that turn.) So a loop that polls between
/// pieces of work has many turns, and a loop that does not check for new work has one.
///
/// Written by the loop's thread alone, so no operation here needs more than a load and a store; any thread can read it.
@safe final class TurnTally: Sendable {
    /// When the current turn began; 0 at rest, and if the beginning was not seen.
    let start = Atomic<UInt64>(0)
    /// Whether no turn of the engine has begun since the departure from rest.
    private let hasJustLeft = Atomic<Bool>(false)
    /// The length, in nanoseconds, above which a turn's times are also recorded.
    private let longLimit = Atomic<UInt64>(.max)
    private let longest = Atomic<UInt64>(0)
    /// The lesser of `longest` and `longLimit`, or less: a turn that does not exceed it is only counted.
    private let remarkable = Atomic<UInt64>(0)
    /// The number of long turns; their times are in a ring.
    private let longCount = Atomic<UInt64>(0)
    // The pointer is immutable after init, and it points at atomics.
    nonisolated(unsafe) private let ring: UnsafeMutablePointer<Atomic<UInt64>>
    // An atomic pointer to atomics. Allocated when the first watcher is attached and kept until deinit: the loop's thread may
    // write there at any time.
    nonisolated(unsafe) private let buckets = unsafe Atomic<UnsafeMutablePointer<Atomic<UInt64>>?>(nil)

    private static let ringCapacity: UInt64 = 8
    /// The number of ring entries that a reader uses: the others may be about to be overwritten.
    private static let readable: UInt64 = 5

    init() { unsafe ring = Self.zeros(Int(2 * Self.ringCapacity)) }

    deinit {
        unsafe ring.deallocate()
        unsafe buckets.load(ordering: .relaxed)?.deallocate()
    }

    private static func zeros(_ count: Int) -> UnsafeMutablePointer<Atomic<UInt64>> {
        let memory = UnsafeMutablePointer<Atomic<UInt64>>.allocate(capacity: count)
        for index in 0..<count { unsafe (memory + index).initialize(to: Atomic(0)) }
        return unsafe memory
    }
}

// MARK: - The loop's thread

extension TurnTally {
    /// - Parameter asTurn: The engine's first turn begins with the departure itself, not with a beginning that is still
    ///   to come.
    func noteDeparture(at now: UInt64, asTurn: Bool = false) {
        start.store(now, ordering: .relaxed)
        hasJustLeft.store(!asTurn, ordering: .relaxed)
    }

    func noteBeginning(at now: UInt64) {
        if hasJustLeft.load(ordering: .relaxed) { return hasJustLeft.store(false, ordering: .relaxed) }
        finish(at: now)
        start.store(now, ordering: .relaxed)
    }

    func noteRest(at now: UInt64) {
        finish(at: now)
        start.store(0, ordering: .relaxed)
        hasJustLeft.store(false, ordering: .relaxed)
    }

    /// Clears everything, for a new watcher.
    func clear() {
        start.store(0, ordering: .relaxed)
        hasJustLeft.store(false, ordering: .relaxed)
        longest.store(0, ordering: .relaxed)
        remarkable.store(0, ordering: .relaxed)
        guard let counts = unsafe buckets.load(ordering: .acquiring) else { return }
        for index in 0..<TurnHistogram.Buckets.count { unsafe counts[index].store(0, ordering: .relaxed) }
    }

    private func finish(at now: UInt64) {
        let start = start.load(ordering: .relaxed)
        guard start != 0, now >= start, let counts = unsafe buckets.load(ordering: .acquiring) else { return }
        let length = now - start
        let index = TurnHistogram.Buckets.index(of: length)
        unsafe counts[index].store(counts[index].load(ordering: .relaxed) &+ 1, ordering: .relaxed)
        if length > remarkable.load(ordering: .relaxed) { noteRemarkable(start, now) }
    }

    @inline(never)
    private func noteRemarkable(_ start: UInt64, _ end: UInt64) {
        let (length, limit) = (end - start, longLimit.load(ordering: .sequentiallyConsistent))
        let greatest = max(length, longest.load(ordering: .relaxed))
        longest.store(greatest, ordering: .relaxed)
        // Sequentially consistent, as in `keep`: either a new limit is seen here, or its zero is stored after this.
        remarkable.store(min(greatest, limit), ordering: .sequentiallyConsistent)
        if longLimit.load(ordering: .sequentiallyConsistent) != limit { remarkable.store(0, ordering: .relaxed) }
        if length > limit { noteLong(start, end) }
    }

    private func noteLong(_ start: UInt64, _ end: UInt64) {
        let number = longCount.load(ordering: .relaxed)
        let place = Int(2 * (number % Self.ringCapacity))
        unsafe ring[place].store(start, ordering: .relaxed)
        unsafe ring[place + 1].store(end, ordering: .relaxed)
        // Releasing: a thread that reads the number also sees the times.
        longCount.store(number &+ 1, ordering: .releasing)
    }
}

// MARK: - The watcher

extension TurnTally {
    /// Sets the length above which a turn is kept. Any thread. A turn that ends at the same moment may still use the
    /// former limit.
    func keep(longerThan limit: UInt64) {
        longLimit.store(limit, ordering: .sequentiallyConsistent)
        remarkable.store(0, ordering: .sequentiallyConsistent)
    }

    /// Allocates the buckets. Any thread.
    func prepare() {
        guard unsafe buckets.load(ordering: .relaxed) == nil else { return }
        let made = unsafe Self.zeros(TurnHistogram.Buckets.count)
        // Releasing, for the zeros. A thread that loses the race frees its own buckets.
        let (isMine, _) = unsafe buckets.compareExchange(expected: nil, desired: made, ordering: .acquiringAndReleasing)
        if !isMine { unsafe made.deallocate() }
    }

    var histogram: TurnHistogram {
        guard let counts = unsafe buckets.load(ordering: .acquiring) else { return TurnHistogram() }
        let longest = longest.load(ordering: .relaxed)
        guard longest > 0 else { return TurnHistogram() }
        let all = (0..<TurnHistogram.Buckets.count).map { unsafe counts[$0].load(ordering: .relaxed) }
        return TurnHistogram(counts: all, longest: longest)
    }

    var longTurnCount: UInt64 { longCount.load(ordering: .acquiring) }

    /// The latest long turns from number `first` on, oldest first.
    func longTurns(from first: UInt64) -> (turns: [BusyTurn], next: UInt64) {
        let count = longTurnCount
        guard count > first else { return ([], count) }
        // The entries that are not read are older by several turns than what the loop's thread may be overwriting now.
        let turns = (max(first, count > Self.readable ? count - Self.readable : 0)..<count).compactMap { number in
            let place = Int(2 * (number % Self.ringCapacity))
            let start = unsafe ring[place].load(ordering: .relaxed)
            let end = unsafe ring[place + 1].load(ordering: .relaxed)
            // If this entry was overwritten, at least three turns were added since.
            guard longTurnCount < number + Self.readable + 1, end >= start else { return BusyTurn?.none }
            return BusyTurn(start: .init(nanoseconds: start), end: .init(nanoseconds: end))
        }
        return (turns, count)
    }
}
