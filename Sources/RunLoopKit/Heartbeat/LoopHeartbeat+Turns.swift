public import Synchronization

// What the loop tells of its turns besides the present one: lengths, callouts.

extension LoopHeartbeat {
    /// Says that the loop calls foreign code: a block, a handler, a job. A watcher sees by it that a long turn makes headway, and
    /// tells one that is full of short callouts from one that stands still. Optional. The loop's thread only.
    ///
    /// Cost: two loads and a store.
    @inlinable
    public func noteCallout() {
        // Relaxed: this thread is the only writer, and nothing hangs on it.
        callouts.store(callouts.load(ordering: .relaxed) &+ 1, ordering: .relaxed)
        if wishes.load(ordering: .relaxed) & Wish.transitionStamp != 0 { stampCallout() }
    }

    @inline(never)
    @usableFromInline
    func stampCallout() { stampTransition(at: MonotonicInstant.now.nanoseconds) }

    /// Callouts begun so far. Any thread.
    public var calloutCount: UInt64 { callouts.load(ordering: .relaxed) }

    /// When the turn under way began, for a watcher: the departure from rest, or the beginning of a turn that no rest preceded.
    /// CLOCK_MONOTONIC in nanoseconds; zero at rest, and if it was not seen. Any thread.
    public var busySince: UInt64 { hasFreshTally ? 0 : tally.start.load(ordering: .relaxed) }

    /// How long the turns took that ended since the watcher came. Any thread; wait-free.
    public var turnHistogram: TurnHistogram { hasFreshTally ? TurnHistogram() : tally.histogram }

    /// From which length on a turn is kept for ``longTurns(from:)``. Any thread.
    public func keepTurns(longerThan length: Duration) {
        tally.keep(longerThan: UInt64(clamping: length.nanoseconds))
    }

    /// How many long turns there were. Any thread.
    public var longTurnCount: UInt64 { tally.longTurnCount }

    /// The long turns that have ended from the `first` on, the oldest first, at most the five latest. Any thread.
    ///
    /// - Returns: them, and the number of the next one.
    public func longTurns(from first: UInt64) -> (turns: [BusyTurn], next: UInt64) { tally.longTurns(from: first) }

    /// The loop has not come by since the watcher came: what the tally holds is of the one before.
    private var hasFreshTally: Bool { wishes.load(ordering: .acquiring) & Wish.freshTally != 0 }
}
