package import RunLoopKit

/// When the watchdog looks next. Pure.
///
///     look at all ──tick to two ticks──> look at all            nothing stands for long
///     look at all ──> what is due alone ──> … ──> look at all   something reaches its threshold in between
///
/// A loop's *maturity* is the moment at which what it is at becomes a stall, if it lasts. A look falls on each, whenever it began: a
/// stall that is little longer than its threshold is over soon. Only loops that have stood still for most of their threshold
/// are looked at between two looks at all, so a machine full of busy loops costs no more looks than one.
package struct LookSchedule: Sendable {
    /// When all that are awake are looked at.
    package private(set) var nextRound: MonotonicInstant
    /// Those that mature before that, by the places of their wake flags.
    private var due: [(maturity: MonotonicInstant, place: Int)] = []
    /// Maturities so close to each other are met by one look.
    private var slack = Duration.zero

    package init(first: MonotonicInstant) {
        nextRound = first
    }

    /// The next look, at all loops or at those that are due.
    package var next: MonotonicInstant {
        guard let meeting = Self.meeting(due.map(\.maturity), within: slack), nextRound - meeting > slack else {
            return nextRound
        }
        return meeting
    }

    /// Whether a look at `time` is one at all loops: in any case when none is due.
    package func isRound(at time: MonotonicInstant) -> Bool {
        time >= nextRound || !due.contains { $0.maturity <= time }
    }

    /// The places of those to look at before the next round, at `time`. They are no longer due.
    package mutating func takeDue(at time: MonotonicInstant) -> [Int] {
        defer { due.removeAll { $0.maturity <= time } }
        return due.filter { $0.maturity <= time }.map(\.place)
    }

    /// All were looked at by `now`. The next time they are is a tick to two later, never later than `reach`, so that it meets the earliest
    /// maturity if that is a tick away at least.
    ///
    /// - Parameters:
    ///   - reach: the lowest threshold: what begins right after this look has not passed it by the next.
    ///   - maturities: each later than the look at its loop; that look may have been some time before `now`.
    package mutating func planRound(
        after now: MonotonicInstant,
        tick: Duration,
        reach: Duration,
        maturities: [(maturity: MonotonicInstant, place: Int)]
    ) {
        slack = Self.slack(tick)
        let ahead = maturities.filter { $0.maturity > now }
        nextRound = now + tick
        if let first = Self.meeting(ahead.map(\.maturity), within: slack) {
            let remaining = (first - now).nanoseconds
            let distance = Duration.nanoseconds(remaining / max(1, remaining / tick.nanoseconds))
            nextRound = now + min(max(tick, distance), max(tick, reach))
        }
        due = []
        add(maturities, after: now)
    }

    /// Those that were due have been looked at, and mature again then. What matured between its loop's look and `now` is due at once.
    /// That comes to an end: a loop has no maturity that is not later than its latest look.
    package mutating func add(_ maturities: [(maturity: MonotonicInstant, place: Int)], after now: MonotonicInstant) {
        let here = maturities.map { (maturity: max($0.maturity, now), place: $0.place) }
        due += here.filter { $0.maturity < nextRound }
    }

    /// All are looked at by `time` at the latest.
    package mutating func advance(to time: MonotonicInstant) { nextRound = min(nextRound, time) }

    /// How long a maturity may wait for others.
    package static func slack(_ tick: Duration) -> Duration { tick / 32 }

    /// When a look meets the earliest of them, and those right behind it.
    package static func meeting(_ maturities: [MonotonicInstant], within slack: Duration) -> MonotonicInstant? {
        guard let first = maturities.min() else { return nil }
        return maturities.filter { $0 - first <= slack }.max()
    }
}
