import Locking
import RunLoopKit
import StallDetection
import Synchronization

/// All watched loops, and which of them are awake. The watchdog looks only at those, so sleeping loops cost nothing. Confined to
/// the watchdog's thread.
struct WatchList {
    /// The loops to look at.
    private(set) var awake: [WatchedLoop] = []
    /// Keyed by the places of their wake flags.
    private var byPlace: [Int: WatchedLoop] = [:]
    private var byNumber: [Int: WatchedLoop] = [:]
    /// For each tick, and for each threshold, how many loops have it.
    private var ticks = Tally()
    private var thresholds = Tally()

    var count: Int { byNumber.count }
    /// All loops, in the order in which they were added.
    var all: [WatchedLoop] { byNumber.values.sorted { $0.identity.number < $1.identity.number } }
    var isAtRest: Bool { awake.isEmpty }
    /// The shortest tick.
    var tick: Duration { ticks.least ?? StallRule().tick }
    /// The shortest threshold.
    var threshold: Duration { thresholds.least ?? StallRule().threshold }

    func loop(number: Int) -> WatchedLoop? { byNumber[number] }

    /// The loop whose wake flag has this place.
    func loop(place: Int) -> WatchedLoop? { byPlace[place] }

    /// Adds a loop, which is awake.
    mutating func add(_ watched: WatchedLoop) {
        byPlace[watched.wakeFlag.place] = watched
        byNumber[watched.identity.number] = watched
        ticks.add(watched.policy.rule.tick)
        thresholds.add(watched.policy.rule.threshold)
        wake(watched, restedUntil: nil)
    }

    mutating func remove(_ watched: WatchedLoop) {
        byPlace[watched.wakeFlag.place] = nil
        byNumber[watched.identity.number] = nil
        if watched.isAwake { awake.removeAll { $0 === watched } }
        ticks.remove(watched.policy.rule.tick)
        thresholds.remove(watched.policy.rule.threshold)
    }

    /// Changes the rule by which the loop is judged. It is awake then, as after it was added.
    mutating func change(_ watched: WatchedLoop, to rule: StallRule, missed: Duration) {
        ticks.remove(watched.policy.rule.tick)
        thresholds.remove(watched.policy.rule.threshold)
        watched.adopt(rule, at: .now)
        ticks.add(rule.tick)
        thresholds.add(rule.threshold)
        wake(watched, restedUntil: nil, missed: missed)
    }

    /// Wakes a loop that has left its rest.
    ///
    /// - Parameters:
    ///   - time: The loop rested at least until then.
    ///   - missed: How much time the watchdog had missed in total until then. None of it counts for the time that begins now.
    mutating func wake(_ watched: WatchedLoop, restedUntil time: MonotonicInstant?, missed: Duration? = nil) {
        guard !watched.isAwake else { return }
        watched.isAwake = true
        if let missed { watched.excludedTime.ignoreMissed(before: missed) }
        if let time {
            watched.policy.unparked(at: time)
            // A parked watchdog wakes a little after the departure, and a scope may have been opened in between.
            watched.excludedTime.ignoreCovered(before: watched.departure ?? time)
        }
        awake.append(watched)
    }

    /// Stops looking at loops that rest and will raise their flag, and at paused loops.
    mutating func letSleep(allArePaused: Bool) {
        awake.removeAll { watched in
            let isPaused = allArePaused || watched.isPaused
            guard isPaused || (watched.isAtRest && watched.loop.heartbeat.requestWakeSignal()) else { return false }
            watched.isAwake = false
            return true
        }
    }
}

/// Lengths, with the number of loops that have each. There are few different ones.
private struct Tally {
    private var counts: [Duration: Int] = [:]
    var least: Duration? { counts.keys.min() }

    mutating func add(_ length: Duration) { counts[length, default: 0] += 1 }

    mutating func remove(_ length: Duration) {
        counts[length] = counts[length].flatMap { $0 > 1 ? $0 - 1 : nil }
    }
}

/// The flag that a loop at rest raises when it leaves its rest. Until then the watchdog does not look at it.
final class WakeFlag: LoopWatcher {
    private let watchdog: Watchdog
    fileprivate let row: WakeFlagRow
    fileprivate let bit: UInt64
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
            wakeFlag.row.raised.bitwiseAnd(~wakeFlag.bit, ordering: .relaxed)
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
