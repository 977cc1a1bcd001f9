import CRunLoopShims
import Glibc
import Synchronization

/// Ends a loop's sleep from any thread, at the cost of at most one system call per sleep (R25, R26).
///
///                 wakeUp()                       wakeUp(): signal the wake descriptor
///      running ─────────────▶ pending ◀────────────────── sleeping
///         ▲  │                   │                            ▲ │
///         │  └───────────────────┼── prepareToSleep() ────────┘ │
///         └────── consume() ─────┴───────── consume() ──────────┘
///
/// No wake-up is lost. `prepareToSleep` leaves `running` only by compare-and-exchange: it sees a wake-up made before it (state
/// `pending`: do not sleep), and a wake-up made after it finds `sleeping` and signals. The wake descriptor (see
/// `run_loop_make_wake_descriptor`) makes an edge in the set in which the loop sleeps. An edge from an earlier sleep can end a
/// later one; that one then checks the state, finds no wake-up and sleeps again.
///
/// If a program closes the loop's descriptors while the loop sleeps, the wake descriptor cannot be signalled. Such a loss is
/// counted and the thread is interrupted; the loop checks the count before it sleeps and makes new descriptors.
final class WakeUp: Sendable {
    private static let running: UInt8 = 0
    private static let sleeping: UInt8 = 1
    private static let pending: UInt8 = 2
    /// Start of a number range of this library, so that no other eventfd's count is mistaken for a mark.
    private static let lastMark = Atomic<UInt32>(0x4C6F_6F70)

    private let state = Atomic<UInt8>(WakeUp.running)
    /// Whether `consume` has found a wake-up since this was last set to false. The loop's thread; relaxed.
    let wasConsumed = Atomic<Bool>(false)
    /// -1 before the first use and after the loop's end.
    private let wakeDescriptor = Atomic<Int32>(-1)
    private let mark = WakeUp.lastMark.add(1, ordering: .relaxed).newValue
    /// Where the loop sleeps, and on which thread of which process. Written by that thread before the state becomes `sleeping`;
    /// relaxed, because a thread that finds `sleeping` has acquired them.
    private let place = Atomic<UInt64>(Place.none.word)
    private let sleeper = Atomic<Int32>(0)
    private let generation = Atomic<UInt32>(.max)
    /// The number of times that descriptors were found to be no longer the loop's.
    private let lossCount = Atomic<UInt32>(0)

    /// An epoll set and the wake descriptor in it, in one word.
    struct Place: Equatable {
        let word: UInt64
        static var none: Place { Place(word: .max) }

        init(word: UInt64) { self.word = word }

        init(set: Int32, wakeDescriptor: Int32) {
            word = UInt64(UInt32(bitPattern: set)) << 32 | UInt64(UInt32(bitPattern: wakeDescriptor))
        }

        var set: Int32 { Int32(truncatingIfNeeded: word >> 32) }
        var wakeDescriptor: Int32 { Int32(truncatingIfNeeded: word) }

        /// Signals the wake descriptor; false if the numbers are no longer a set and its wake descriptor.
        func signal() -> Bool { self != .none && run_loop_signal_wake_descriptor(set, wakeDescriptor) == 0 }
    }

    deinit { close() }

    /// Closes the wake descriptor at the loop's end, when no thread sleeps any more.
    func close() {
        let number = wakeDescriptor.exchange(-1, ordering: .acquiringAndReleasing)
        if number >= 0, run_loop_is_wake_descriptor(number, mark) { Glibc.close(number) }
    }

    /// The wake descriptor to add to a set. Creates it if there is none, or if a program has closed it. Any thread.
    func descriptor() throws(RunLoopError) -> Int32 {
        let present = wakeDescriptor.load(ordering: .acquiring)
        if present >= 0, run_loop_is_wake_descriptor(present, mark) { return present }
        let made = run_loop_make_wake_descriptor(mark)
        guard made >= 0 else { throw RunLoopError(.outOfResources, errno: errno) }
        let (won, winner) = wakeDescriptor.compareExchange(
            expected: present,
            desired: made,
            ordering: .acquiringAndReleasing
        )
        if !won { Glibc.close(made) }
        return won ? made : winner
    }

    /// Any thread, and signal handlers: one atomic exchange, and a system call if the loop sleeps.
    ///
    /// Acquiring and releasing: the exchange always writes, so what the caller did before is visible to the `consume` that
    /// reads this write or a later write of `post`. (A load that finds `pending` would not be enough: the loop may consume that
    /// wake-up without seeing what the caller has just stored.)
    func post() {
        guard state.exchange(WakeUp.pending, ordering: .acquiringAndReleasing) == WakeUp.sleeping else { return }
        // A forked child shares its parent's sets and must not signal in them.
        guard generation.load(ordering: .relaxed) == run_loop_generation() else { return }
        if !Place(word: place.load(ordering: .relaxed)).signal() { loseDescriptors() }
    }

    /// False if a wake-up is pending; the caller must not sleep then. The loop's thread; the set is open.
    func prepareToSleep(in place: Place) -> Bool {
        if self.place.load(ordering: .relaxed) != place.word { self.place.store(place.word, ordering: .relaxed) }
        if generation.load(ordering: .relaxed) != run_loop_generation() { moveIn() }
        return state.compareExchange(
            expected: WakeUp.running,
            desired: WakeUp.sleeping,
            ordering: .acquiringAndReleasing
        ).exchanged
    }

    private func moveIn() {
        sleeper.store(run_loop_current_tid(), ordering: .relaxed)
        generation.store(run_loop_generation(), ordering: .relaxed)
    }

    /// Returns to `running`; the result says whether there was a wake-up. The loop's thread.
    func consume() -> Bool {
        // Relaxed: only this thread changes the state to `running`, and the data of a wake-up is acquired by the
        // exchange.
        guard state.load(ordering: .relaxed) != WakeUp.running else { return false }
        guard state.exchange(WakeUp.running, ordering: .acquiringAndReleasing) == WakeUp.pending else { return false }
        wasConsumed.store(true, ordering: .relaxed)
        return true
    }

    /// Whether a wake-up has ended the sleep that `prepareToSleep` announced. The loop's thread.
    var isPending: Bool { state.load(ordering: .relaxed) == WakeUp.pending }
}

// MARK: - Losses

extension WakeUp {
    /// Changes when the loop must check whether its descriptors are still its own.
    var losses: UInt32 { lossCount.load(ordering: .relaxed) }

    /// Records that a set, or the wake descriptor in it, is no longer the loop's. If the loop sleeps in it, no descriptor can
    /// wake it any more, so its thread is interrupted. Any thread, and signal handlers.
    func loseDescriptors() {
        lossCount.add(1, ordering: .relaxed)
        place.store(Place.none.word, ordering: .relaxed)
        guard state.load(ordering: .acquiring) != WakeUp.running else { return }
        let thread = sleeper.load(ordering: .relaxed)
        if thread != run_loop_current_tid() { run_loop_interrupt(thread) }
    }
}
