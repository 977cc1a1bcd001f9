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
    public static var now: MonotonicInstant { MonotonicInstant(nanoseconds: readClock(CLOCK_MONOTONIC)) }

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
        MonotonicInstant(nanoseconds: nanoseconds.advancedSaturated(by: duration))
    }

    /// Negative if `other` is earlier. Held at ±292 years.
    public func duration(to other: MonotonicInstant) -> Duration { nanoseconds.duration(to: other.nanoseconds) }
}

// MARK: - Arithmetic that stops at the ends

/// Cannot fail: both clocks are always there and the pointer is good.
func readClock(_ clock: clockid_t) -> UInt64 {
    var time = timespec()
    unsafe clock_gettime(clock, &time)
    return UInt64(clamping: time.tv_sec) &* 1_000_000_000 &+ UInt64(clamping: time.tv_nsec)
}

/// Nanoseconds on some clock.
extension UInt64 {
    func addingSaturated(_ other: UInt64) -> UInt64 {
        let (sum, overflows) = addingReportingOverflow(other)
        return overflows ? .max : sum
    }

    func subtractingSaturated(_ other: UInt64) -> UInt64 { self > other ? self - other : 0 }

    func advancedSaturated(by duration: Duration) -> UInt64 {
        let distance = duration.nanoseconds
        return distance < 0 ? subtractingSaturated(distance.magnitude) : addingSaturated(distance.magnitude)
    }

    func duration(to other: UInt64) -> Duration {
        other < self
            ? .zero - .nanoseconds(Int64(clamping: self - other))
            : .nanoseconds(Int64(clamping: other - self))
    }
}

extension MonotonicInstant {
    package static func + (instant: Self, duration: Duration) -> Self { instant.advanced(by: duration) }
    package static func - (later: Self, earlier: Self) -> Duration { earlier.duration(to: later) }

    /// So long from now; nil is for ever.
    package static func after(_ timeout: Duration?) -> MonotonicInstant {
        timeout.map { .now.advanced(by: $0) } ?? .distantFuture
    }
}

extension Duration {
    /// Whole nanoseconds, rounded towards zero, within ±292 years.
    package var nanoseconds: Int64 {
        // Below nine seconds, which most are, there is no need to divide 128 bits.
        if let short = Int64(exactly: attoseconds) { return short / 1_000_000_000 }
        return Int64(clamping: attoseconds / 1_000_000_000)
    }
}
