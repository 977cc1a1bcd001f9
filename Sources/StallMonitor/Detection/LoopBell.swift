import RunLoopKit
import Synchronization

/// One watched loop's way to the watchdog: a loop at rest is not looked at, and rings when it leaves its rest.
final class LoopBell: LoopWatcher {
    private let watchdog: Watchdog
    private let row: BellRow
    private let bit: UInt64
    /// The bell's place on the board; a bell that is put away gives it to the next one.
    let place: Int

    fileprivate init(watchdog: Watchdog, row: BellRow, place: Int) {
        (self.watchdog, self.row, self.place) = (watchdog, row, place)
        bit = 1 << UInt64(place % BellRow.width)
    }

    /// On the loop's thread, as it leaves its rest. Wait-free, but for the signal to a watchdog that is parked.
    func loopDidLeaveRest() {
        // Sequentially consistent, before the look at the watchdog's flag: see `Watchdog.park`.
        row.rung.bitwiseOr(bit, ordering: .sequentiallyConsistent)
        watchdog.wake()
    }
}

/// Which of 64 bells have rung since the watchdog last looked.
final class BellRow: Sendable {
    static let width = UInt64.bitWidth
    let rung = Atomic<UInt64>(0)
}

/// All bells. Asking which have rung takes a load for each 64 of them, however many loops are asleep.
final class BellBoard: Sendable {
    private struct Places: Sendable {
        var rows: [BellRow] = []
        var free: [Int] = []
        var used = 0
    }

    /// The loops' threads do not come here: they have their rows.
    private let places = ForkSafeMutex(Places())

    /// A bell at a free place. Any thread.
    func makeBell(for watchdog: Watchdog) -> LoopBell {
        places.withLock { places in
            let place = places.free.popLast() ?? places.used
            if place == places.used {
                places.used += 1
                if place % BellRow.width == 0 { places.rows.append(BellRow()) }
            }
            return LoopBell(watchdog: watchdog, row: places.rows[place / BellRow.width], place: place)
        }
    }

    /// Frees the place of a bell that nobody rings any more.
    func putAway(_ bell: LoopBell) {
        places.withLock { places in
            places.rows[bell.place / BellRow.width].rung.bitwiseAnd(
                ~(1 << UInt64(bell.place % BellRow.width)),
                ordering: .relaxed
            )
            places.free.append(bell.place)
        }
    }

    /// The places whose bells have rung since the last call. The watchdog's thread.
    func takeRung() -> [Int] {
        var rung: [Int] = []
        for (index, row) in places.withLock({ $0.rows }).enumerated() {
            guard row.rung.load(ordering: .relaxed) != 0 else { continue }
            var bits = row.rung.exchange(0, ordering: .acquiringAndReleasing)
            while bits != 0 {
                rung.append(index * BellRow.width + bits.trailingZeroBitCount)
                bits &= bits - 1
            }
        }
        return rung
    }

    /// Whether a bell has rung since. The watchdog's thread.
    var hasRung: Bool {
        places.withLock { $0.rows }.contains { $0.rung.load(ordering: .sequentiallyConsistent) != 0 }
    }
}
