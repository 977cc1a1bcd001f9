import Glibc

/// A point in time on CLOCK_MONOTONIC, in nanoseconds since an arbitrary start (R49). It does not count suspended time and
/// does not follow clock steps. (Swift's `ContinuousClock` is CLOCK_BOOTTIME on Linux, so its instants do not compare.)
public struct MonotonicInstant: Hashable, Sendable {
    /// Nanoseconds since the clock's start, as the kernel counts them.
    public let nanoseconds: UInt64

    /// Accepts any number; the greatest is ``distantFuture``.
    @inlinable
    public init(nanoseconds: UInt64) { self.nanoseconds = nanoseconds }

    /// The current time. Any thread, and in a signal handler.
    public static var now: MonotonicInstant { MonotonicInstant(nanoseconds: readClock(CLOCK_MONOTONIC)) }

    /// Whether it is not later than now. Reads the clock only if necessary.
    var hasPassed: Bool { self != .distantFuture && self <= .now }

    /// Later than any deadline: 584 years.
    public static let distantFuture = MonotonicInstant(nanoseconds: .max)
}

extension MonotonicInstant: InstantProtocol {
    /// The earlier instant is less.
    @inlinable
    public static func < (left: Self, right: Self) -> Bool { left.nanoseconds < right.nanoseconds }

    /// The instant later by `duration` (earlier if negative), clamped to the clock's start and to ``distantFuture``.
    public func advanced(by duration: Duration) -> MonotonicInstant {
        MonotonicInstant(nanoseconds: nanoseconds.advancedSaturated(by: duration))
    }

    /// Negative if `other` is earlier. Clamped to ±292 years.
    public func duration(to other: MonotonicInstant) -> Duration { nanoseconds.duration(to: other.nanoseconds) }
}

// MARK: - Arithmetic that stops at the ends

/// Cannot fail: both clocks always exist and the pointer is valid.
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
    /// As ``advanced(by:)``.
    package static func + (instant: Self, duration: Duration) -> Self { instant.advanced(by: duration) }
    /// Negative if `later` is the earlier one; clamped to ±292 years.
    package static func - (later: Self, earlier: Self) -> Duration { earlier.duration(to: later) }

    /// The instant after `timeout` from now; nil means never.
    package static func after(_ timeout: Duration?) -> MonotonicInstant {
        timeout.map { .now.advanced(by: $0) } ?? .distantFuture
    }
}

extension Duration {
    /// Whole nanoseconds, rounded towards zero, within ±292 years.
    package var nanoseconds: Int64 {
        // Below nine seconds, which is the usual case, no 128-bit division is needed.
        if let short = Int64(exactly: attoseconds) { return short / 1_000_000_000 }
        return Int64(clamping: attoseconds / 1_000_000_000)
    }
}
