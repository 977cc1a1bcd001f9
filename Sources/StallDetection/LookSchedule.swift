package import RunLoopKit

/// When the watchdog looks next. Pure.
///
///     look at all ──tick to two ticks──> look at all              no loop is near its threshold
///     look at all ──> look at due loops ──> … ──> look at all     a loop reaches its threshold in between
///
/// A loop's *maturity* is the moment at which its present state becomes a stall, if it continues. There is a look at each
/// maturity, because a stall only a little longer than its threshold is soon over. Between two looks at all loops, only loops
/// that have not moved for most of their threshold are looked at, so a machine full of busy loops costs no more looks than one.
package struct LookSchedule: Sendable {
    /// A loop that becomes stalled at its maturity, unless it moves before.
    package struct Candidate: Sendable {
        package var maturity: MonotonicInstant
        /// The place of its wake flag.
        package let place: Int

        package init(maturity: MonotonicInstant, place: Int) { (self.maturity, self.place) = (maturity, place) }
    }

    /// When all awake loops are looked at.
    package private(set) var nextRound: MonotonicInstant
    /// The loops that mature before the next round.
    private var due: [Candidate] = []
    /// Maturities that are at most this far apart share one look.
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

    /// Whether a look at `time` covers all loops. It does if no loop is due.
    package func isRound(at time: MonotonicInstant) -> Bool {
        time >= nextRound || !due.contains { $0.maturity <= time }
    }

    /// The places of the loops that are due at `time`. Afterwards they are no longer due.
    package mutating func takeDue(at time: MonotonicInstant) -> [Int] {
        defer { due.removeAll { $0.maturity <= time } }
        return due.filter { $0.maturity <= time }.map(\.place)
    }

    /// Notes that all loops were looked at by `now`. The next look at all follows one to two ticks later, but not later than
    /// `reach`, and at the earliest maturity if that is at least a tick away.
    ///
    /// - Parameters:
    ///   - reach: The lowest threshold. A standstill that begins right after this look is not longer than that at the next one.
    ///   - candidates: Each matures after the look at its loop; that look may have been some time before `now`.
    package mutating func planRound(
        after now: MonotonicInstant,
        tick: Duration,
        reach: Duration,
        candidates: [Candidate]
    ) {
        slack = Self.slack(tick)
        let ahead = candidates.filter { $0.maturity > now }
        nextRound = now + tick
        if let first = Self.meeting(ahead.map(\.maturity), within: slack) {
            let remaining = (first - now).nanoseconds
            let distance = Duration.nanoseconds(remaining / max(1, remaining / tick.nanoseconds))
            nextRound = now + min(max(tick, distance), max(tick, reach))
        }
        due = []
        add(candidates, after: now)
    }

    /// Notes that the due loops were looked at, with their next maturities. A loop that matured between its look and `now` is
    /// due at once. This terminates: a loop's maturity is always later than its latest look.
    package mutating func add(_ candidates: [Candidate], after now: MonotonicInstant) {
        let here = candidates.map { Candidate(maturity: max($0.maturity, now), place: $0.place) }
        due += here.filter { $0.maturity < nextRound }
    }

    /// Makes all loops be looked at by `time` at the latest.
    package mutating func advance(to time: MonotonicInstant) { nextRound = min(nextRound, time) }

    /// How long a maturity may wait for others.
    package static func slack(_ tick: Duration) -> Duration { tick / 32 }

    /// The moment of one look for the earliest maturity and those shortly after it.
    package static func meeting(_ maturities: [MonotonicInstant], within slack: Duration) -> MonotonicInstant? {
        guard let first = maturities.min() else { return nil }
        return maturities.filter { $0 - first <= slack }.max()
    }
}

/// When to take another stack sample: at short intervals first, then at growing ones, so that a minute costs few more samples than
/// a second. Pure.
package struct SamplePace: Sendable {
    /// When the sampled time began.
    private var start: MonotonicInstant?
    /// When the last sample was taken.
    package private(set) var last: MonotonicInstant?

    /// - Parameter start: When the sampled time began. Nil: it begins with the first sample.
    package init(start: MonotonicInstant? = nil) { self.start = start }

    /// - Parameter least: The shortest interval.
    package func isDue(at time: MonotonicInstant, least: Duration) -> Bool {
        guard let start, let last else { return true }
        return time - last >= max(least, (time - start) / 4)
    }

    /// Notes that a sample is taken.
    package mutating func note(_ time: MonotonicInstant) { (start, last) = (start ?? time, time) }
}

/// An interval that doubles each time, up to a limit. Pure.
package struct DoublingInterval: Hashable, Sendable {
    private let first: Duration
    private let longest: Duration
    private var current: Duration

    package init(from first: Duration, upTo longest: Duration) {
        (self.first, self.longest, current) = (first, longest, first)
    }

    /// The present interval. The next one is twice as long.
    package mutating func next() -> Duration {
        defer { current = min(current * 2, longest) }
        return current
    }

    package mutating func reset() { current = first }
}
