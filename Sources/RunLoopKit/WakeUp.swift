internal import CRunLoopShims
internal import Glibc
internal import Synchronization

/// Ends a loop's sleep, from anywhere, at the price of at most one `write(2)` per sleep (R25, R26).
///
///                 wakeUp()                       wakeUp(): write to the eventfd
///      running ─────────────▶ pending ◀────────────────── sleeping
///         ▲  │                   │                            ▲ │
///         │  └───────────────────┼── prepareToSleep() ────────┘ │
///         └────── consume() ─────┴───────── consume() ──────────┘
///
/// No wake-up is lost: `prepareToSleep` leaves `running` by compare-and-exchange only, so a wake-up made before it is seen there
/// (pending: do not sleep), and one made after it finds `sleeping` and writes. The eventfd is watched edge-triggered and never
/// read: an edge of an earlier sleep can end a later one, which looks at the state, finds no wake-up and sleeps again.
final class WakeUp: Sendable {
    private static let running: UInt8 = 0
    private static let sleeping: UInt8 = 1
    private static let pending: UInt8 = 2

    private let state = Atomic<UInt8>(WakeUp.running)
    /// Whether `consume` has found a wake-up since this was last set to false. The loop's thread; relaxed.
    let wasConsumed = Atomic<Bool>(false)
    /// -1 until the first use. Made once, closed with the loop: whoever can call `post` holds a reference to it.
    private let eventfd = Atomic<Int32>(-1)

    deinit {
        let fd = eventfd.load(ordering: .relaxed)
        if fd >= 0 { close(fd) }
    }

    /// The eventfd to watch, made now if need be. Any thread.
    func descriptor() throws(RunLoopError) -> Int32 {
        let present = eventfd.load(ordering: .acquiring)
        if present >= 0 { return present }
        let made = run_loop_make_eventfd()
        guard made >= 0 else { throw RunLoopError(.outOfResources, errno: errno) }
        let (won, winner) = eventfd.compareExchange(expected: -1, desired: made, ordering: .acquiringAndReleasing)
        if !won { close(made) }
        return won ? made : winner
    }

    /// Any thread, and signal handlers: one atomic exchange, and a `write(2)` if the loop sleeps.
    ///
    /// Acquiring and releasing: the exchange always writes, so what the caller did before is visible to the `consume` that reads
    /// this write or a later one of the same kind.
    func post() {
        guard state.exchange(WakeUp.pending, ordering: .acquiringAndReleasing) == WakeUp.sleeping else { return }
        run_loop_post_eventfd(eventfd.load(ordering: .acquiring))
    }

    /// False if a wake-up is pending: then do not sleep. The loop's thread; the eventfd exists by now.
    func prepareToSleep() -> Bool {
        state.compareExchange(
            expected: WakeUp.running,
            desired: WakeUp.sleeping,
            ordering: .acquiringAndReleasing
        ).exchanged
    }

    /// Back to running; says whether there was a wake-up. The loop's thread.
    func consume() -> Bool {
        // Relaxed: nobody but this thread goes to `running`, and what a wake-up carries is acquired by the exchange.
        guard state.load(ordering: .relaxed) != WakeUp.running else { return false }
        guard state.exchange(WakeUp.running, ordering: .acquiringAndReleasing) == WakeUp.pending else { return false }
        wasConsumed.store(true, ordering: .relaxed)
        return true
    }

    /// Whether the sleep that `prepareToSleep` announced is over because of a wake-up. The loop's thread.
    var isPending: Bool { state.load(ordering: .relaxed) == WakeUp.pending }
}
