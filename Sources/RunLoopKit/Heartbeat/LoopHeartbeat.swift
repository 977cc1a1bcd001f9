import Locking
public import Synchronization

/// The state that a loop publishes about itself, and the requests that a watcher leaves for it.
///
/// The loop's thread writes one atomic word at each transition; any thread can read it, wait-free. Any event loop can own a
/// heartbeat: create one, call ``publish(_:modeIndex:)`` at least around each wait, and ``end()`` when the thread ends.
///
/// Cost of a transition: one store and two relaxed loads. At a departure from rest the store is sequentially consistent, and one
/// more load follows. While a watcher is attached, the beginning of a turn, a departure from rest and an arrival at rest also read
/// the clock.
public final class LoopHeartbeat: Sendable {
    /// Written by the loop's thread alone.
    @usableFromInline let word = Atomic<UInt64>(0)
    /// `Request` bits: set by the watcher, cleared by the loop. Usually zero, and then the loop checks nothing else.
    @usableFromInline let requests = Atomic<UInt32>(0)
    /// Written by the loop's thread alone.
    @usableFromInline let callouts = Atomic<UInt64>(0)
    let tally = TurnTally()
    let stampOfTurn = Atomic<UInt64>(0)
    private let calloutsAtTurn = Atomic<UInt64>(0)
    let stampOfTransition = Atomic<UInt64>(0)
    let ended = Atomic<Bool>(false)
    /// Held while the watcher is called, so that ``detach()`` can promise that no call comes after it.
    let watcher = ForkSafeMutex<(any LoopWatcher)?>(nil)

    /// A heartbeat at rest: idle, turn 0, nobody watching.
    public init() {}

    /// The latest transition. Any thread; wait-free.
    ///
    /// Acquiring: a thread that reads a pulse also sees the ``turnStamp`` that was taken for it, or a later one.
    public var pulse: Pulse { Pulse(rawValue: word.load(ordering: .acquiring)) }

    /// When the current turn began, or when the loop last left its rest, whichever is later: CLOCK_MONOTONIC in nanoseconds.
    /// Zero if nothing was stamped since the watcher was attached. Any thread.
    public var turnStamp: UInt64 { stampOfTurn.load(ordering: .relaxed) }

    /// The number of callouts that had begun at ``turnStamp``. Any thread.
    public var calloutsAtTurnStamp: UInt64 { calloutsAtTurn.load(ordering: .relaxed) }

    /// Whether the loop's thread has ended, after which nothing more is published. Any thread.
    public var hasEnded: Bool { ended.load(ordering: .acquiring) }
}

// MARK: - The loop's side

extension LoopHeartbeat {
    /// Publishes a transition and counts the turns: a new turn begins with `beforeTimers`, and with each departure from
    /// rest.
    ///
    /// For loops that do not number their turns themselves. Call it on the loop's thread only.
    @inlinable
    public func publish(_ phase: LoopPhase, modeIndex: Int = 0) {
        let last = Pulse(rawValue: word.load(ordering: .relaxed))
        let begins = phase == .beforeTimers || (last.isAtRest && !phase.isAtRest)
        publish(phase, modeIndex: modeIndex, turn: last.turn &+ (begins ? 1 : 0))
    }

    /// Publishes a transition. Call it on the loop's thread only.
    ///
    /// - Parameters:
    ///   - modeIndex: 0 to 65535.
    ///   - turn: Counted modulo 2^40. Two successive transitions to the same phase need different turns; otherwise a watcher
    ///     sees no transition.
    @inlinable
    public func publish(_ phase: LoopPhase, modeIndex: Int, turn: UInt64) {
        // Relaxed: this thread is the only writer.
        let departs = Pulse(rawValue: word.load(ordering: .relaxed)).isAtRest && !phase.isAtRest
        let pulse = Pulse(phase: phase, modeIndex: modeIndex, turn: turn)
        // Relaxed: `watched` and `stamp` request times. If one is seen a transition late, a stamp is missing, but never
        // a wake-up.
        let wanted = requests.load(ordering: .relaxed)
        if wanted != 0 {
            stamp(wanted, begins: phase == .beforeTimers, rests: pulse.isAtRest, departs: departs)
        }
        guard departs else {
            // Releasing: the stamps above are visible to a thread that reads the word. Nothing else depends on this
            // store.
            return word.store(pulse.rawValue, ordering: .releasing)
        }
        // Dekker's pattern with `requestWakeSignal()`. Here: store word, load requests. There: set request, load word. All four are
        // sequentially consistent. In their single order either our load comes after the request was set, and we signal, or our
        // store comes before the watcher's load, and the watcher sees a busy loop. For both to miss, the order would need a
        // cycle.
        word.store(pulse.rawValue, ordering: .sequentiallyConsistent)
        if requests.load(ordering: .sequentiallyConsistent) & Request.wakeSignal != 0 { signalWatcher() }
    }

    /// Publishes that the loop's thread ends. A pending request for a wake signal is answered now, so that a parked
    /// watcher is notified.
    public func end() {
        // Sequentially consistent, the same pattern as in `publish`, with `ended` in the word's place.
        ended.store(true, ordering: .sequentiallyConsistent)
        if requests.load(ordering: .sequentiallyConsistent) & Request.wakeSignal != 0 { signalWatcher() }
    }

    @inline(never)
    @usableFromInline
    func stamp(_ wanted: UInt32, begins: Bool, rests: Bool, departs: Bool) {
        let stampsTransition = wanted & Request.transitionStamp != 0
        let bounds = wanted & Request.watched != 0 && (departs || begins || rests)
        guard stampsTransition || bounds else { return }
        let now = MonotonicInstant.now.nanoseconds
        if bounds { noteTurn(wanted, begins: begins, rests: rests, departs: departs, at: now) }
        if stampsTransition { stampTransition(at: now) }
    }

    @inline(__always)
    private func noteTurn(_ wanted: UInt32, begins: Bool, rests: Bool, departs: Bool, at now: UInt64) {
        if wanted & Request.freshTally != 0 {
            tally.clear()
            // Releasing: a thread that sees the bit cleared also sees the zeros.
            requests.bitwiseAnd(~Request.freshTally, ordering: .releasing)
        }
        if rests { return tally.noteRest(at: now) }
        if departs { tally.noteDeparture(at: now, asTurn: begins) } else { tally.noteBeginning(at: now) }
        // Relaxed: the store of the word that follows releases it.
        calloutsAtTurn.store(callouts.load(ordering: .relaxed), ordering: .relaxed)
        stampOfTurn.store(now, ordering: .relaxed)
    }

    func stampTransition(at now: UInt64) {
        requests.bitwiseAnd(~Request.transitionStamp, ordering: .relaxed)
        // Releasing, paired with the exchange in `takeTransitionStamp`: the reader of the stamp also sees what this
        // thread did before.
        stampOfTransition.store(now, ordering: .releasing)
    }

    @inline(never)
    @usableFromInline
    func signalWatcher() {
        // Under the lock, so that a departing watcher's request is never answered to the watcher that follows it.
        watcher.withLock { watcher in
            // The read-modify-write decides who owns the request: this departure, or a watcher that withdraws it.
            let before = requests.bitwiseAnd(~Request.wakeSignal, ordering: .sequentiallyConsistent).oldValue
            if before & Request.wakeSignal != 0 { watcher?.loopDidLeaveRest() }
        }
    }
}

extension LoopHeartbeat {
    /// What a watcher requests of the loop.
    @usableFromInline
    enum Request {
        @usableFromInline static var watched: UInt32 { 1 }
        @usableFromInline static var wakeSignal: UInt32 { 2 }
        @usableFromInline static var transitionStamp: UInt32 { 4 }
        /// The turn counts are to be reset.
        @usableFromInline static var freshTally: UInt32 { 8 }
    }
}

// MARK: - Past turns: lengths and callouts

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
        if requests.load(ordering: .relaxed) & Request.transitionStamp != 0 { stampCallout() }
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
    private var hasFreshTally: Bool { requests.load(ordering: .acquiring) & Request.freshTally != 0 }
}
