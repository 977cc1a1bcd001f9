import Locking
import RunLoopKit
import Synchronization

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
