import Locking
import RunLoopKit
import StallDetection
import Synchronization

/// The thread that looks at all watched loops.
///
///     parked ──a loop leaves its rest──> ticking ──every loop at rest at a look──> parked
///
/// Parked, it waits on its semaphore without a deadline and costs nothing. The first departure from rest posts the semaphore;
/// later ones find nobody parked and do not. Ticking, it looks once a tick at the loops that are awake: one that it finds at rest
/// it leaves alone until its wake flag is raised. What it finds goes to the reporter, so that
/// neither names nor disks delay the next look.
final class Watchdog: Sendable {
    /// What other threads ask of the watchdog.
    enum Order: Sendable {
        case watch(WatchIdentity, WatchedThing, StallRule, WakeFlag, [ExpectedSlowness])
        case cancel(Int)
        /// From a moment on, one watch or all: nobody looks.
        case pause(Int?, MonotonicInstant)
        case resume(Int?, MonotonicInstant)
        /// To be told on the reporter's thread once all that is known by then has been told.
        case settle(@Sendable () -> Void)
        case stop

        /// When a loop begins to count by it.
        fileprivate var countsSince: MonotonicInstant? {
            switch self {
            case .watch(let identity, _, _, _, _): identity.since
            case .resume(_, let time): time
            case .cancel, .pause, .settle, .stop: nil
            }
        }
    }

    let wakeFlags = WakeFlags()
    let semaphore = TickSemaphore()
    private let isParked = Atomic(false)
    private let orders = ForkSafeMutex<[Order]?>([])
    private let generation = ForkGeneration.current
    private let createdAt = MonotonicInstant.now

    /// Hands an order over. Any thread. Nobody takes one after `stop` was carried out.
    func give(_ order: Order) {
        // In a fork's child nobody would take it, and the lock may be held for ever.
        guard generation.isCurrent else { return }
        orders.withLock { $0?.append(order) }
        semaphore.signal()
    }

    /// A wake flag was raised. On the loop's thread, as it leaves its rest.
    func wake() {
        guard isParked.load(ordering: .sequentiallyConsistent) else { return }
        if isParked.exchange(false, ordering: .sequentiallyConsistent) { semaphore.signal() }
    }

    /// The thread's life. Returns after a `stop` order, all stalls closed.
    func run(_ round: consuming WatchdogState) {
        round.begin(since: createdAt)
        while carryOutOrders(&round, { round, since in round.catchUp(since: since) }) {
            if park(round) {
                semaphore.wait()
                isParked.store(false, ordering: .sequentiallyConsistent)
                // It may have been an order.
                guard carryOutOrders(&round, { $0.unparked(at: .now, since: $1) }) else { break }
                continue
            }
            // A signal is an order, or a departure that came too late to be waited for: neither is a tick.
            if !semaphore.wait(until: round.nextLook) { round.look() }
        }
        round.finish()
    }

    /// - Parameter catchUp: finds out what was missed until now, by the round's loops and by those that count by an order given since the
    ///   time it is handed; tells what had been missed before.
    /// - Returns: false after `stop`.
    private func carryOutOrders(
        _ round: inout WatchdogState,
        _ catchUp: (inout WatchdogState, MonotonicInstant?) -> Duration
    ) -> Bool {
        let given = orders.withLock { orders in
            defer { orders = [] }
            return orders ?? []
        }
        let missed = catchUp(&round, given.compactMap(\.countsSince).min())
        for order in given {
            switch order {
            case .watch(let identity, let loop, let rule, let wakeFlag, let scopes):
                var watched = WatchedLoop(
                    identity: identity,
                    loop: loop,
                    rule: rule,
                    wakeFlag: wakeFlag,
                    scopes: scopes
                )
                watched.excludedTime.ignoreMissed(before: missed)
                round.add(watched)
            case .pause(let number, let time): round.pause(number, at: time)
            case .resume(let number, let time): round.resume(number, at: time, missed: missed)
            case .cancel(let number): round.remove(number)
            case .settle(let done): round.settle(done)
            case .stop:
                orders.withLock { $0 = nil }
                return false
            }
        }
        return true
    }

    /// Every loop at rest raises its wake flag when it leaves. False when one is busy, or has raised it already. The watchdog's own flag is up before the others are
    /// looked at, and a loop raises its own before it looks at the watchdog's: one that leaves in between is seen here or ends the wait at once.
    private func park(_ round: borrowing WatchdogState) -> Bool {
        round.isAtRest && park { wakeFlags.hasRaised }
    }

    func park(unless hasRaised: () -> Bool) -> Bool {
        isParked.store(true, ordering: .sequentiallyConsistent)
        if !hasRaised() { return true }
        isParked.store(false, ordering: .sequentiallyConsistent)
        return false
    }
}
