import RunLoopKit
import Synchronization

/// The thread that looks at all watched loops.
///
///     parked ──a loop leaves its rest──> ticking ──every loop at rest at a look──> parked
///
/// Parked, it waits on its semaphore without a deadline and costs nothing. The first departure from rest posts the semaphore;
/// later ones find nobody parked and do not. Ticking, it looks once a tick. What it finds goes to the reporter, so that
/// neither names nor disks delay the next look.
final class Watchdog: LoopWatcher {
    /// What other threads ask of the watchdog.
    enum Order: Sendable {
        case watch(WatchIdentity, any WatchableLoop, StallRule, [ExpectedSlowness])
        case cancel(Int)
        /// From a moment on, one watch or all: nobody looks.
        case pause(Int?, MonotonicInstant)
        case resume(Int?, MonotonicInstant)
        case stop
    }

    private let semaphore = TickSemaphore()
    private let isParked = Atomic(false)
    private let orders = ForkSafeMutex<[Order]?>([])
    private let generation = ForkGeneration.current

    /// Hands an order over. Any thread. Nobody takes one after `stop` was carried out.
    func give(_ order: Order) {
        // In a fork's child nobody would take it, and the lock may be held for ever.
        guard generation.isCurrent else { return }
        orders.withLock { $0?.append(order) }
        semaphore.signal()
    }

    /// On the loop's thread, as it leaves its rest.
    func loopDidLeaveRest() {
        if isParked.exchange(false, ordering: .sequentiallyConsistent) { semaphore.signal() }
    }

    /// The thread's life. Returns after a `stop` order, all stalls closed.
    func run(_ round: consuming WatchRound) {
        while carryOutOrders(&round) {
            if park(round) {
                semaphore.wait()
                isParked.store(false, ordering: .sequentiallyConsistent)
                round.unparked(at: .now)
            }
            // A signal is an order, or a departure that came too late to be waited for: neither is a tick.
            if !semaphore.wait(until: round.nextLook) { round.look() }
        }
        round.finish()
    }

    private func carryOutOrders(_ round: inout WatchRound) -> Bool {
        let given = orders.withLock { orders in
            defer { orders = [] }
            return orders ?? []
        }
        for order in given {
            switch order {
            case .watch(let identity, let loop, let rule, let scopes):
                round.add(Subject(identity: identity, loop: loop, rule: rule, scopes: scopes))
            case .pause(let number, let time): round.pause(number, at: time)
            case .resume(let number, let time): round.resume(number, at: time)
            case .cancel(let number): round.remove(number)
            case .stop:
                orders.withLock { $0 = nil }
                return false
            }
        }
        return true
    }

    /// Asks every loop to tell of its next departure from rest. False when one is busy already. The flag is up before the
    /// first loop is asked: a loop that leaves in between takes it down, and the wait that follows ends at once.
    private func park(_ round: borrowing WatchRound) -> Bool {
        guard round.isAtRest else { return false }
        isParked.store(true, ordering: .sequentiallyConsistent)
        if round.requestWakeSignals() { return true }
        isParked.store(false, ordering: .sequentiallyConsistent)
        return false
    }
}
