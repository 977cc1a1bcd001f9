internal import Glibc

/// A point in time on CLOCK_MONOTONIC, in nanoseconds since an arbitrary start (R49). It does not count suspended time and
/// does not follow clock steps. (Swift's `ContinuousClock` is CLOCK_BOOTTIME on Linux, so its instants do not compare.)
public struct MonotonicInstant: Hashable, Sendable {
    /// Nanoseconds since the clock's start, as the kernel counts them.
    public let nanoseconds: UInt64

    /// Takes any number; the greatest is ``distantFuture``.
    @inlinable
    public init(nanoseconds: UInt64) { self.nanoseconds = nanoseconds }

    /// The present. Any thread; also from a signal handler.
    public static var now: MonotonicInstant {
        var time = timespec()
        // Cannot fail: the clock is always there and the pointer is good.
        unsafe clock_gettime(CLOCK_MONOTONIC, &time)
        return MonotonicInstant(nanoseconds: UInt64(time.tv_sec) &* 1_000_000_000 &+ UInt64(time.tv_nsec))
    }

    /// Whether it is not later than now. Looks at the clock only if there is a need to.
    var hasPassed: Bool { self != .distantFuture && self <= .now }

    /// Later than anything that is waited for: 584 years.
    public static let distantFuture = MonotonicInstant(nanoseconds: .max)
}

extension MonotonicInstant: InstantProtocol {
    /// The earlier one is less.
    @inlinable
    public static func < (left: Self, right: Self) -> Bool { left.nanoseconds < right.nanoseconds }

    /// The instant so much later (earlier, if negative), stopping at the clock's start and at ``distantFuture``.
    public func advanced(by duration: Duration) -> MonotonicInstant {
        let distance = duration.saturatedNanoseconds
        let (sum, overflows) =
            distance < 0
            ? nanoseconds.subtractingReportingOverflow(distance.magnitude)
            : nanoseconds.addingReportingOverflow(distance.magnitude)
        return MonotonicInstant(nanoseconds: overflows ? (distance < 0 ? 0 : .max) : sum)
    }

    /// Negative if `other` is earlier. Held at ±292 years.
    public func duration(to other: MonotonicInstant) -> Duration {
        other < self
            ? .zero - .nanoseconds(Int64(clamping: nanoseconds - other.nanoseconds))
            : .nanoseconds(Int64(clamping: other.nanoseconds - nanoseconds))
    }
}

extension Duration {
    /// Whole nanoseconds, rounded down, within ±292 years.
    var saturatedNanoseconds: Int64 {
        let (seconds, attoseconds) = components
        let (scaled, overflows) = seconds.multipliedReportingOverflow(by: 1_000_000_000)
        let (sum, sumOverflows) = scaled.addingReportingOverflow(attoseconds / 1_000_000_000)
        return overflows || sumOverflows ? (seconds < 0 ? .min : .max) : sum
    }
}
