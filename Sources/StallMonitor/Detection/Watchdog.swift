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
    /// What other threads request from the watchdog.
    enum Order: Sendable {
        case watch(WatchIdentity, WatchedThing, StallRule, WakeFlag, [ExpectedSlowness])
        case cancel(Int)
        /// The configuration has changed.
        case adopt(WatchSettings)
        /// Pauses one watch, or all, from a moment on.
        case pause(Int?, MonotonicInstant)
        case resume(Int?, MonotonicInstant)
        /// Calls this on the reporter's thread, once everything known at that time was reported.
        case settle(@Sendable () -> Void)
        case stop

        /// The moment from which on a loop counts because of this order. Nil for orders that start no watch.
        fileprivate var countsSince: MonotonicInstant? {
            switch self {
            case .watch(let identity, _, _, _, _): identity.since
            case .resume(_, let time): time
            case .cancel, .adopt, .pause, .settle, .stop: nil
            }
        }
    }

    let wakeFlags = WakeFlags()
    let semaphore = TickSemaphore()
    private let isParked = Atomic(false)
    private let orders = ForkSafeMutex<[Order]?>([])
    private let generation = ForkGeneration.current
    private let createdAt = MonotonicInstant.now

    /// Passes an order to the watchdog. Any thread. Orders after `stop` are ignored.
    func give(_ order: Order) {
        // A fork's child has no watchdog thread, and the lock may be held there forever.
        guard generation.isCurrent else { return }
        orders.withLock { $0?.append(order) }
        semaphore.signal()
    }

    /// Wakes the watchdog: a wake flag was raised. Called on the loop's thread, as it leaves its rest.
    func wake() {
        guard isParked.load(ordering: .sequentiallyConsistent) else { return }
        if isParked.exchange(false, ordering: .sequentiallyConsistent) { semaphore.signal() }
    }

    /// The body of the thread. Returns after a `stop` order, with all stalls closed.
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
            // A signal is either for an order, or from a loop that raised its flag just after the flags were read. Neither is a
            // tick.
            if !semaphore.wait(until: state.nextLook) { state.look() }
        }
        state.finish()
    }

    /// - Parameter catchUp: Determines how much time was missed until now, by the watched loops and by those that count since the
    ///   given moment because of an order. Returns what had been missed before.
    /// - Returns: False after `stop`.
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
            case .adopt(let settings): state.adopt(settings)
            case .settle(let done): state.settle(done)
            case .stop:
                orders.withLock { $0 = nil }
                return false
            }
        }
        return true
    }

    /// Parks if every loop is at rest. False if one is busy, or has already raised its flag.
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

/// The flag that a loop at rest raises when it leaves its rest. Until then the watchdog does not look at it.
final class WakeFlag: LoopWatcher {
    private let watchdog: Watchdog
    private let row: WakeFlagRow
    private let bit: UInt64
    /// The flag's place among all flags. The place of a removed flag is used again.
    let place: Int

    fileprivate init(watchdog: Watchdog, row: WakeFlagRow, place: Int) {
        (self.watchdog, self.row, self.place) = (watchdog, row, place)
        bit = 1 << UInt64(place % WakeFlagRow.width)
    }

    /// Called on the loop's thread, as it leaves its rest. Wait-free, except for the signal to a parked watchdog.
    func loopDidLeaveRest() {
        // Sequentially consistent, before the look at the watchdog's flag: see `Watchdog.park`.
        row.raised.bitwiseOr(bit, ordering: .sequentiallyConsistent)
        watchdog.wake()
    }
}

/// 64 flags, and which of them were raised since the watchdog last looked.
final class WakeFlagRow: Sendable {
    static let width = UInt64.bitWidth
    let raised = Atomic<UInt64>(0)
}

/// All wake flags. Reading which are raised takes one load for every 64 of them, however many loops are asleep.
final class WakeFlags: Sendable {
    private struct Places: Sendable {
        var rows: [WakeFlagRow] = []
        var free: [Int] = []
        var used = 0
    }

    /// The loops' threads do not take this lock: each flag has its own row.
    private let places = ForkSafeMutex(Places())

    /// Creates a flag at a free place. Any thread.
    func makeFlag(for watchdog: Watchdog) -> WakeFlag {
        places.withLock { places in
            let place = places.free.popLast() ?? places.used
            if place == places.used {
                places.used += 1
                if place % WakeFlagRow.width == 0 { places.rows.append(WakeFlagRow()) }
            }
            return WakeFlag(watchdog: watchdog, row: places.rows[place / WakeFlagRow.width], place: place)
        }
    }

    /// Frees the place of a flag. Its loop must not raise it any more.
    func remove(_ wakeFlag: WakeFlag) {
        places.withLock { places in
            places.rows[wakeFlag.place / WakeFlagRow.width].raised.bitwiseAnd(
                ~(1 << UInt64(wakeFlag.place % WakeFlagRow.width)),
                ordering: .relaxed
            )
            places.free.append(wakeFlag.place)
        }
    }

    /// The places of the flags that were raised since the last call. The watchdog's thread.
    func takeRaised() -> [Int] {
        var raised: [Int] = []
        for (index, row) in places.withLock({ $0.rows }).enumerated() {
            guard row.raised.load(ordering: .relaxed) != 0 else { continue }
            var bits = row.raised.exchange(0, ordering: .acquiringAndReleasing)
            while bits != 0 {
                raised.append(index * WakeFlagRow.width + bits.trailingZeroBitCount)
                bits &= bits - 1
            }
        }
        return raised
    }

    /// Whether a flag was raised since `takeRaised`. The watchdog's thread.
    var hasRaised: Bool {
        places.withLock { $0.rows }.contains { $0.raised.load(ordering: .sequentiallyConsistent) != 0 }
    }
}
