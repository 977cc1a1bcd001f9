import Locking
import RunLoopKit
import StallDetection
import Synchronization

/// The thread that looks at all watched loops.
///
///     parked ──a loop leaves its rest──> ticking ──a look finds every loop at rest──> parked
///
/// Parked, it waits on its semaphore without a deadline and costs nothing. The first loop that leaves its rest posts the semaphore; later ones
/// see that the watchdog is not parked, and do not. Ticking, it looks once a tick at the loops that are awake. A loop that is found at rest is
/// not looked at again until it raises its wake flag. Findings go to the reporter, so that neither symbols nor disks delay the next look.
final class Watchdog: Sendable {
    /// What other threads ask of the watchdog.
    enum Order: Sendable {
        case watch(WatchIdentity, WatchedThing, StallRule, WakeFlag, [ExpectedSlowness])
        case cancel(Int)
        /// From a moment on one watch, or all, is not looked at.
        case pause(Int?, MonotonicInstant)
        case resume(Int?, MonotonicInstant)
        /// Call this on the reporter's thread, once everything that is known by then was reported.
        case settle(@Sendable () -> Void)
        case stop

        /// From when on a loop counts by this order. Nil for the orders that start no watch.
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

    /// Hands an order over. Any thread. Orders after `stop` are ignored.
    func give(_ order: Order) {
        // A fork's child has no watchdog thread, and the lock may be held there for ever.
        guard generation.isCurrent else { return }
        orders.withLock { $0?.append(order) }
        semaphore.signal()
    }

    /// A wake flag was raised. On the loop's thread, as it leaves its rest.
    func wake() {
        guard isParked.load(ordering: .sequentiallyConsistent) else { return }
        if isParked.exchange(false, ordering: .sequentiallyConsistent) { semaphore.signal() }
    }

    /// The thread's life. Returns after a `stop` order, with all stalls closed.
    func run(_ state: consuming WatchdogState) {
        state.begin(since: createdAt)
        while carryOutOrders(&state, { state, since in state.catchUp(since: since) }) {
            if park(state) {
                semaphore.wait()
                isParked.store(false, ordering: .sequentiallyConsistent)
                // The signal may have been for an order.
                guard carryOutOrders(&state, { $0.unparked(at: .now, since: $1) }) else { break }
                continue
            }
            // A signal is for an order, or from a loop that raised its flag just after the look at the flags. Neither is a tick.
            if !semaphore.wait(until: state.nextLook) { state.look() }
        }
        state.finish()
    }

    /// - Parameter catchUp: finds out how much time was missed until now, by the watched loops and by those that count since the given moment
    ///   because of an order. Returns what had been missed before.
    /// - Returns: false after `stop`.
    private func carryOutOrders(
        _ state: inout WatchdogState,
        _ catchUp: (inout WatchdogState, MonotonicInstant?) -> Duration
    ) -> Bool {
        let given = orders.withLock { orders in
            defer { orders = [] }
            return orders ?? []
        }
        state.serveExit()
        let missed = catchUp(&state, given.compactMap(\.countsSince).min())
        for order in given {
            switch order {
            case .watch(let identity, let loop, let rule, let wakeFlag, let scopes):
                let watched = WatchedLoop(
                    identity: identity,
                    loop: loop,
                    rule: rule,
                    wakeFlag: wakeFlag,
                    scopes: scopes
                )
                watched.excludedTime.ignoreMissed(before: missed)
                state.add(watched)
            case .pause(let number, let time): state.pause(number, at: time)
            case .resume(let number, let time): state.resume(number, at: time, missed: missed)
            case .cancel(let number): state.remove(number)
            case .settle(let done): state.settle(done)
            case .stop:
                orders.withLock { $0 = nil }
                return false
            }
        }
        return true
    }

    /// Parks if every loop is at rest. False when one is busy, or has raised its flag already.
    ///
    /// No departure is lost: the watchdog sets `isParked` before it reads the flags, and a loop raises its flag before it reads `isParked`. So a
    /// loop that leaves its rest in between is seen here, or its signal ends the wait at once.
    private func park(_ state: borrowing WatchdogState) -> Bool {
        state.isAtRest && park { wakeFlags.hasRaised }
    }

    func park(unless hasRaised: () -> Bool) -> Bool {
        isParked.store(true, ordering: .sequentiallyConsistent)
        if !hasRaised() { return true }
        isParked.store(false, ordering: .sequentiallyConsistent)
        return false
    }
}
