internal import Glibc

/// A point in time on CLOCK_REALTIME, the clock that people and NTP set: nanoseconds since 1970 (UTC, without leap seconds). For timers
/// that are to fire at a time of day; it jumps when the clock is set, so durations are measured with ``MonotonicInstant`` (R49).
public struct WallClockInstant: Hashable, Sendable {
    /// Nanoseconds since 1970, as the kernel counts them. Nothing is earlier.
    public let nanoseconds: UInt64

    /// Takes any number; the greatest is ``distantFuture``.
    @inlinable
    public init(nanoseconds: UInt64) { self.nanoseconds = nanoseconds }

    /// What the clock says now. Any thread; also from a signal handler.
    public static var now: WallClockInstant { WallClockInstant(nanoseconds: readClock(CLOCK_REALTIME)) }

    /// Later than anything that is waited for: the year 2554.
    public static let distantFuture = WallClockInstant(nanoseconds: .max)
}

extension WallClockInstant: InstantProtocol {
    /// The earlier one is less.
    @inlinable
    public static func < (left: Self, right: Self) -> Bool { left.nanoseconds < right.nanoseconds }

    /// The instant so much later (earlier, if negative), stopping at 1970 and at ``distantFuture``.
    public func advanced(by duration: Duration) -> WallClockInstant {
        WallClockInstant(nanoseconds: nanoseconds.advancedSaturated(by: duration))
    }

    /// Negative if `other` is earlier. Held at ±292 years.
    public func duration(to other: WallClockInstant) -> Duration {
        nanoseconds.duration(to: other.nanoseconds)
    }
}

// MARK: - Between the clocks

/// What both clocks said at one moment.
struct ClockReading: Sendable {
    var monotonic: UInt64
    /// Zero if nobody asked: then no wall-clock date is due.
    var wall: UInt64 = 0

    /// - Parameter withWall: Whether there is anything that goes by the wall clock.
    static func now(withWall: Bool) -> ClockReading {
        ClockReading(
            monotonic: readClock(CLOCK_MONOTONIC),
            wall: withWall ? readClock(CLOCK_REALTIME) : 0
        )
    }

    /// What time it is on a timer's clock.
    func time(on clock: TimerDate.Clock) -> UInt64 { clock == .wall ? wall : monotonic }

    /// When the wall clock will say `date`, if nobody sets it before.
    func monotonic(ofWall date: UInt64) -> UInt64 { ClockReading.translate(date, from: wall, to: monotonic) }

    /// What the wall clock will say at `date`, if nobody sets it before.
    func wall(ofMonotonic date: UInt64) -> UInt64 { ClockReading.translate(date, from: monotonic, to: wall) }

    func monotonic(ofWall key: TimerKey) -> TimerKey {
        var key = key
        key.date = monotonic(ofWall: key.date)
        return key
    }

    /// The dates of the far ends stay there.
    private static func translate(_ date: UInt64, from now: UInt64, to other: UInt64) -> UInt64 {
        if date == .max { return .max }
        return date < now ? other.subtractingSaturated(now - date) : other.addingSaturated(date - now)
    }
}
