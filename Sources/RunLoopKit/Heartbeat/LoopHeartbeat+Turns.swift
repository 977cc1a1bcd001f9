public import Synchronization

// What the loop publishes about its past turns: lengths and callouts.

extension LoopHeartbeat {
    /// Counts a callout: the loop is about to call foreign code, such as a block, a handler or a job. A watcher uses the count
    /// to see progress within a long turn, and to distinguish a turn full of short callouts from one that is stalled. Optional.
    /// Call it on the loop's thread only.
    ///
    /// Cost: two loads and a store.
    @inlinable
    public func noteCallout() {
        // Relaxed: this thread is the only writer, and no other memory depends on the count.
        callouts.store(callouts.load(ordering: .relaxed) &+ 1, ordering: .relaxed)
        if wishes.load(ordering: .relaxed) & Wish.transitionStamp != 0 { stampCallout() }
    }

    @inline(never)
    @usableFromInline
    func stampCallout() { stampTransition(at: MonotonicInstant.now.nanoseconds) }

    /// The number of callouts begun so far. Any thread.
    public var calloutCount: UInt64 { callouts.load(ordering: .relaxed) }

    /// When the current turn began: at the departure from rest, or at the beginning of a turn that no rest preceded.
    /// CLOCK_MONOTONIC in nanoseconds; zero at rest, and if the beginning was not recorded. Any thread.
    public var busySince: UInt64 { hasFreshTally ? 0 : tally.start.load(ordering: .relaxed) }

    /// The lengths of the turns that ended since the watcher was attached. Any thread; wait-free.
    public var turnHistogram: TurnHistogram { hasFreshTally ? TurnHistogram() : tally.histogram }

    /// Sets the length above which a turn is kept for ``longTurns(from:)``. Any thread.
    public func keepTurns(longerThan length: Duration) {
        tally.keep(longerThan: UInt64(clamping: length.nanoseconds))
    }

    /// The number of long turns so far. Any thread.
    public var longTurnCount: UInt64 { tally.longTurnCount }

    /// The long turns that have ended, from number `first` on, oldest first, at most the five latest. Any thread.
    ///
    /// - Returns: The turns, and the number of the next one.
    public func longTurns(from first: UInt64) -> (turns: [BusyTurn], next: UInt64) { tally.longTurns(from: first) }

    /// The loop has published nothing since the watcher was attached, so the tally still holds the former watcher's
    /// data.
    private var hasFreshTally: Bool { wishes.load(ordering: .acquiring) & Wish.freshTally != 0 }
}
