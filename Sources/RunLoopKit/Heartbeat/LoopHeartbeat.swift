import Locking
public import Synchronization

/// What a loop publishes about itself, and where a watcher leaves its wishes.
///
/// The loop's thread writes one atomic word at each transition; anybody reads it, wait-free. An event loop of any make can
/// own a heartbeat: create one, ``publish(_:modeIndex:)`` at least around each wait, ``end()`` when the thread ends.
///
/// Cost of a transition: one store and one relaxed load. A departure from rest is one sequentially consistent store and load
/// more; while a watcher is attached, the beginning of a turn, a departure and an arrival at rest read the clock.
public final class LoopHeartbeat: Sendable {
    /// Written by the loop's thread alone.
    @usableFromInline let word = Atomic<UInt64>(0)
    /// `Wish` bits: set by the watcher, taken by the loop. In the common case zero, and then the loop looks at nothing else.
    @usableFromInline let wishes = Atomic<UInt32>(0)
    /// Written by the loop's thread alone.
    @usableFromInline let callouts = Atomic<UInt64>(0)
    let tally = TurnTally()
    private let stampOfTurn = Atomic<UInt64>(0)
    private let calloutsAtTurn = Atomic<UInt64>(0)
    private let stampOfTransition = Atomic<UInt64>(0)
    private let ended = Atomic<Bool>(false)
    /// Held while the watcher is called, so that ``detach()`` can promise that no call comes after it.
    private let watcher = ForkSafeMutex<(any LoopWatcher)?>(nil)

    /// A heartbeat at rest: idle, turn 0, nobody watching.
    public init() {}

    /// The latest transition. Any thread; wait-free.
    ///
    /// Acquiring: whoever sees a pulse also sees the ``turnStamp`` that was taken for it, or a later one.
    public var pulse: Pulse { Pulse(rawValue: word.load(ordering: .acquiring)) }

    /// When the present turn began, or the loop last left its rest, whichever is later: CLOCK_MONOTONIC in nanoseconds.
    /// Zero if none was stamped since the watcher came. Any thread.
    public var turnStamp: UInt64 { stampOfTurn.load(ordering: .relaxed) }

    /// How many callouts had begun at ``turnStamp``. Any thread.
    public var calloutsAtTurnStamp: UInt64 { calloutsAtTurn.load(ordering: .relaxed) }

    /// Whether the loop's thread has ended. Nothing will be published any more. Any thread.
    public var hasEnded: Bool { ended.load(ordering: .acquiring) }
}

// MARK: - The loop's side

extension LoopHeartbeat {
    /// Publishes a transition and counts the turns: a new one begins with `beforeTimers`, and with each departure from rest.
    ///
    /// For loops that do not number their turns themselves. The loop's thread only.
    @inlinable
    public func publish(_ phase: LoopPhase, modeIndex: Int = 0) {
        let last = Pulse(rawValue: word.load(ordering: .relaxed))
        let begins = phase == .beforeTimers || (last.isAtRest && !phase.isAtRest)
        publish(phase, modeIndex: modeIndex, turn: last.turn &+ (begins ? 1 : 0))
    }

    /// Publishes a transition. The loop's thread only.
    ///
    /// - Parameters:
    ///   - modeIndex: 0 to 65535.
    ///   - turn: Counted modulo 2^40. Two transitions to one phase need different turns, or a watcher takes them for none.
    @inlinable
    public func publish(_ phase: LoopPhase, modeIndex: Int, turn: UInt64) {
        // Relaxed: this thread is the only writer.
        let departs = Pulse(rawValue: word.load(ordering: .relaxed)).isAtRest && !phase.isAtRest
        let pulse = Pulse(phase: phase, modeIndex: modeIndex, turn: turn)
        // Relaxed: `watched` and `stamp` ask for times. One that is seen a transition late costs a stamp, never a wake-up.
        let wanted = wishes.load(ordering: .relaxed)
        if wanted != 0 {
            stamp(wanted, begins: phase == .beforeTimers, rests: pulse.isAtRest, departs: departs)
        }
        guard departs else {
            // Releasing: the stamps above are visible to whoever sees the word. Nothing else hangs on this store.
            return word.store(pulse.rawValue, ordering: .releasing)
        }
        // Dekker's pattern with `requestWakeSignal()`: here store word, load wishes; there set wish, load word; all four
        // sequentially consistent. In their single order either our load comes after the wish was set, and we signal, or our
        // store comes before the watcher's load, and it sees a busy loop. That both miss would need a cycle in the order.
        word.store(pulse.rawValue, ordering: .sequentiallyConsistent)
        if wishes.load(ordering: .sequentiallyConsistent) & Wish.wakeSignal != 0 { signalWatcher() }
    }

    /// Says that the loop's thread ends. A wish for a wake signal is granted now, so that a parked watcher learns of it.
    public func end() {
        // Sequentially consistent, the same pattern as in `publish`, with `ended` in the word's place.
        ended.store(true, ordering: .sequentiallyConsistent)
        if wishes.load(ordering: .sequentiallyConsistent) & Wish.wakeSignal != 0 { signalWatcher() }
    }

    @inline(never)
    @usableFromInline
    func stamp(_ wanted: UInt32, begins: Bool, rests: Bool, departs: Bool) {
        let stampsTransition = wanted & Wish.transitionStamp != 0
        let bounds = wanted & Wish.watched != 0 && (departs || begins || rests)
        guard stampsTransition || bounds else { return }
        let now = MonotonicInstant.now.nanoseconds
        if bounds { noteTurn(wanted, begins: begins, rests: rests, departs: departs, at: now) }
        if stampsTransition { stampTransition(at: now) }
    }

    @inline(__always)
    private func noteTurn(_ wanted: UInt32, begins: Bool, rests: Bool, departs: Bool, at now: UInt64) {
        if wanted & Wish.freshTally != 0 {
            tally.clear()
            // Releasing: who sees the wish gone sees the zeros.
            wishes.bitwiseAnd(~Wish.freshTally, ordering: .releasing)
        }
        if rests { return tally.noteRest(at: now) }
        if departs { tally.noteDeparture(at: now, asTurn: begins) } else { tally.noteBeginning(at: now) }
        // Relaxed: the store of the word that follows releases it.
        calloutsAtTurn.store(callouts.load(ordering: .relaxed), ordering: .relaxed)
        stampOfTurn.store(now, ordering: .relaxed)
    }

    func stampTransition(at now: UInt64) {
        wishes.bitwiseAnd(~Wish.transitionStamp, ordering: .relaxed)
        // Releasing, with the exchange in `takeTransitionStamp`: who takes the stamp also sees what this thread did before.
        stampOfTransition.store(now, ordering: .releasing)
    }

    @inline(never)
    @usableFromInline
    func signalWatcher() {
        // Under the lock, so that a wish of a watcher that leaves is never granted to the one that comes after it.
        watcher.withLock { watcher in
            // The read-modify-write decides who has the wish: this departure, or a watcher that takes it back.
            let before = wishes.bitwiseAnd(~Wish.wakeSignal, ordering: .sequentiallyConsistent).oldValue
            if before & Wish.wakeSignal != 0 { watcher?.loopDidLeaveRest() }
        }
    }
}

// MARK: - The watcher's side

extension LoopHeartbeat {
    /// Makes `watcher` the one that watches, and clears old stamps and lengths of turns. False if there is one already. Any thread.
    public func attach(_ watcher: any LoopWatcher) -> Bool {
        self.watcher.withLock { present in
            guard present == nil else { return false }
            present = watcher
            stampOfTurn.store(0, ordering: .relaxed)
            stampOfTransition.store(0, ordering: .relaxed)
            tally.keep(longerThan: .max)
            tally.prepare()
            wishes.store(Wish.watched | Wish.freshTally, ordering: .sequentiallyConsistent)
            return true
        }
    }

    /// Forgets the watcher and its wishes. After the return it is never called again. Any thread, but not from inside
    /// ``LoopWatcher/loopDidLeaveRest()``.
    public func detach() {
        let former = watcher.withLock { present in
            wishes.store(0, ordering: .sequentiallyConsistent)
            return present.take()
        }
        // Released out here: its deinit is foreign code, and must not run under the lock.
        _ = consume former
    }

    /// Asks that the next departure from rest call the watcher, once.
    ///
    /// - Returns: True if the call is still to come or has just been made. False if the loop is busy or has ended: then no
    ///   wish is left behind. A departure is never lost (proof at `publish`). The watcher's thread only.
    public func requestWakeSignal() -> Bool {
        wishes.bitwiseOr(Wish.wakeSignal, ordering: .sequentiallyConsistent)
        let seen = Pulse(rawValue: word.load(ordering: .sequentiallyConsistent))
        if seen.isAtRest && !ended.load(ordering: .sequentiallyConsistent) { return true }
        // Busy. If the wish is gone, the departure that we raced with has taken it and calls.
        let before = wishes.bitwiseAnd(~Wish.wakeSignal, ordering: .sequentiallyConsistent).oldValue
        return before & Wish.wakeSignal == 0
    }

    /// Asks the next transition or callout to record its time, so that a stall's end is exact at no cost to other turns.
    ///
    /// A transition made within the same few nanoseconds can miss the wish; then the one after it records. Any thread.
    public func requestTransitionStamp() {
        stampOfTransition.store(0, ordering: .relaxed)
        // Releasing: the zero above comes before the stamp that answers this wish.
        wishes.bitwiseOr(Wish.transitionStamp, ordering: .releasing)
    }

    /// The recorded time (CLOCK_MONOTONIC, nanoseconds) if there is one, and clears it. Any thread.
    public func takeTransitionStamp() -> UInt64? {
        let stamp = stampOfTransition.exchange(0, ordering: .acquiringAndReleasing)
        return stamp == 0 ? nil : stamp
    }

    @usableFromInline
    enum Wish {
        @usableFromInline static var watched: UInt32 { 1 }
        @usableFromInline static var wakeSignal: UInt32 { 2 }
        @usableFromInline static var transitionStamp: UInt32 { 4 }
        /// What is counted of turns is to begin anew.
        @usableFromInline static var freshTally: UInt32 { 8 }
    }
}

/// Who wants to know when a loop leaves its rest.
public protocol LoopWatcher: AnyObject, Sendable {
    /// Called on the loop's thread, at most once per wish, with the loop held up until it returns: post a semaphore and go.
    /// Must not block, and must not attach or detach.
    func loopDidLeaveRest()
}
