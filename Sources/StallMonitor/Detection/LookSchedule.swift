import RunLoopKit

/// When the watchdog looks next. Pure.
enum LookSchedule {
    /// The next look after the one at `now`: about a tick on, never sooner than a tick and always sooner than two, and spaced
    /// so that a look falls on the earliest maturity. A lone stall is thus captured at its threshold, not up to a tick later,
    /// and the looks stay at one a tick however many loops are watched.
    static func next(
        after now: MonotonicInstant,
        tick: Duration,
        maturity: MonotonicInstant?
    ) -> MonotonicInstant {
        guard let maturity, maturity > now else { return now + tick }
        let remaining = (maturity - now).nanoseconds
        let ticks = max(1, remaining / tick.nanoseconds)
        return now + max(tick, .nanoseconds(remaining / ticks))
    }
}
