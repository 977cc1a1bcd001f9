package import RunLoopKit

/// When the watchdog looks next. Pure.
///
///     look at all ──tick to two ticks──> look at all              no loop is near its threshold
///     look at all ──> look at due loops ──> … ──> look at all     a loop reaches its threshold in between
///
/// A loop's *maturity* is the moment at which its present state becomes a stall, if it lasts. There is a look at each maturity, because a stall
/// only a little longer than its threshold is over soon. Between two looks at all loops only those are looked at that have not moved for most
/// of their threshold, so a machine full of busy loops costs no more looks than one.
package struct LookSchedule: Sendable {
    /// When all awake loops are looked at.
    package private(set) var nextRound: MonotonicInstant
    /// The loops that mature before that, by the places of their wake flags.
    private var due: [(maturity: MonotonicInstant, place: Int)] = []
    /// Maturities no further apart than this share one look.
    private var slack = Duration.zero

    package init(first: MonotonicInstant) {
        nextRound = first
    }

    /// The next look, at all loops or at the due ones.
    package var next: MonotonicInstant {
        guard let meeting = Self.meeting(due.map(\.maturity), within: slack), nextRound - meeting > slack else {
            return nextRound
        }
        return meeting
    }

    /// Whether a look at `time` is one at all loops. It is when no loop is due.
    package func isRound(at time: MonotonicInstant) -> Bool {
        time >= nextRound || !due.contains { $0.maturity <= time }
    }

    /// The places of the loops that are due at `time`. After that they are no longer due.
    package mutating func takeDue(at time: MonotonicInstant) -> [Int] {
        defer { due.removeAll { $0.maturity <= time } }
        return due.filter { $0.maturity <= time }.map(\.place)
    }

    /// All were looked at by `now`. The next look at all follows one to two ticks later, but not later than `reach`, at a time that falls on the
    /// earliest maturity if that is at least a tick away.
    ///
    /// - Parameters:
    ///   - reach: the lowest threshold. A standstill that begins right after this look is not longer than that at the next one.
    ///   - maturities: each is later than the look at its loop; that look may have been some time before `now`.
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

    /// The due loops were looked at; these are their next maturities. A loop that matured between its look and `now` is due at once. This
    /// terminates: a loop's maturity is always later than its latest look.
    package mutating func add(_ maturities: [(maturity: MonotonicInstant, place: Int)], after now: MonotonicInstant) {
        let here = maturities.map { (maturity: max($0.maturity, now), place: $0.place) }
        due += here.filter { $0.maturity < nextRound }
    }

    /// All loops are looked at by `time` at the latest.
    package mutating func advance(to time: MonotonicInstant) { nextRound = min(nextRound, time) }

    /// How long a maturity can wait for others.
    package static func slack(_ tick: Duration) -> Duration { tick / 32 }

    /// The moment of one look for the earliest maturity and those right after it.
    package static func meeting(_ maturities: [MonotonicInstant], within slack: Duration) -> MonotonicInstant? {
        guard let first = maturities.min() else { return nil }
        return maturities.filter { $0 - first <= slack }.max()
    }
}
