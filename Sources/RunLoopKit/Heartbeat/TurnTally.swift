internal import Synchronization

/// What a loop's own thread notes of its turns: how long each took, and when the long ones were.
///
/// A *turn* is counted here from the loop's departure from rest to its next rest; one that no rest precedes, from its own
/// beginning. (The engine's turn that begins right after a departure is a part of that turn.) A loop that polls between its
/// work thus has many turns, one that does not come to look for anything new has one.
///
/// Written by the loop's thread alone, so nothing here needs more than a load and a store; read by anybody.
@safe final class TurnTally: Sendable {
    /// When the turn under way began; 0 at rest, and when that was not seen.
    let start = Atomic<UInt64>(0)
    /// Whether no turn of the engine's has begun since the departure from rest.
    private let hasJustLeft = Atomic<Bool>(false)
    /// From which length on a turn is also noted by its times, nanoseconds.
    private let longLimit = Atomic<UInt64>(.max)
    private let longest = Atomic<UInt64>(0)
    /// The lesser of both, or less: a turn that does not exceed it is only counted.
    private let remarkable = Atomic<UInt64>(0)
    /// The long turns' number, and their times in a ring.
    private let longCount = Atomic<UInt64>(0)
    // The pointer is immutable after init, and what it points at are atomics.
    nonisolated(unsafe) private let ring: UnsafeMutablePointer<Atomic<UInt64>>
    // An atomic pointer to atomics. Made when the first watcher comes, kept until the end: the loop's thread may be about to write
    // there at any time.
    nonisolated(unsafe) private let buckets = unsafe Atomic<UnsafeMutablePointer<Atomic<UInt64>>?>(nil)

    private static let ringCapacity: UInt64 = 8
    /// How many of them a reader takes: the others may be being overwritten.
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
    /// - Parameter asTurn: The first turn begins with it, and not at a beginning of its own that is still to come.
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

    /// Forgets all, for a new watcher.
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
        if length > remarkable.load(ordering: .relaxed) { remark(start, now) }
    }

    @inline(never)
    private func remark(_ start: UInt64, _ end: UInt64) {
        let (length, limit) = (end - start, longLimit.load(ordering: .sequentiallyConsistent))
        let greatest = max(length, longest.load(ordering: .relaxed))
        longest.store(greatest, ordering: .relaxed)
        // Sequentially consistent, as in `keep`: either a new limit is seen here, or its zero comes after this.
        remarkable.store(min(greatest, limit), ordering: .sequentiallyConsistent)
        if longLimit.load(ordering: .sequentiallyConsistent) != limit { remarkable.store(0, ordering: .relaxed) }
        if length > limit { noteLong(start, end) }
    }

    private func noteLong(_ start: UInt64, _ end: UInt64) {
        let number = longCount.load(ordering: .relaxed)
        let place = Int(2 * (number % Self.ringCapacity))
        unsafe ring[place].store(start, ordering: .relaxed)
        unsafe ring[place + 1].store(end, ordering: .relaxed)
        // Releasing: whoever sees the number sees the times.
        longCount.store(number &+ 1, ordering: .releasing)
    }
}

// MARK: - The watcher

extension TurnTally {
    /// Sets from which length on a turn is kept. Any thread. A turn that ends in the same moment may still go by the former limit.
    func keep(longerThan limit: UInt64) {
        longLimit.store(limit, ordering: .sequentiallyConsistent)
        remarkable.store(0, ordering: .sequentiallyConsistent)
    }

    /// Makes room to count in. Any thread.
    func prepare() {
        guard unsafe buckets.load(ordering: .relaxed) == nil else { return }
        let made = unsafe Self.zeros(TurnHistogram.Buckets.count)
        // Releasing, for the zeros. Whoever comes second gives his own back.
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

    /// The latest long turns from the `first` on, the oldest first.
    func longTurns(from first: UInt64) -> (turns: [BusyTurn], next: UInt64) {
        let count = longTurnCount
        guard count > first else { return ([], count) }
        // Those that are not read are older by several turns than what the loop's thread may be overwriting now.
        let turns = (max(first, count > Self.readable ? count - Self.readable : 0)..<count).compactMap { number in
            let place = Int(2 * (number % Self.ringCapacity))
            let start = unsafe ring[place].load(ordering: .relaxed)
            let end = unsafe ring[place + 1].load(ordering: .relaxed)
            // Three at least came since, if this one was overwritten.
            guard longTurnCount < number + Self.readable + 1, end >= start else { return BusyTurn?.none }
            return BusyTurn(start: .init(nanoseconds: start), end: .init(nanoseconds: end))
        }
        return (turns, count)
    }
}

/// One turn of a loop, from its departure from rest to its next rest; of a turn that no rest precedes, from its own beginning.
public struct BusyTurn: Hashable, Sendable {
    /// As the loop's own thread stamped it.
    public var start: MonotonicInstant
    /// Likewise. Not before `start`.
    public var end: MonotonicInstant

    /// Nothing is checked.
    public init(start: MonotonicInstant, end: MonotonicInstant) { (self.start, self.end) = (start, end) }
}
