import Glibc

/// A moment on CLOCK_MONOTONIC. Nanoseconds since an arbitrary start; comparable within one boot only.
struct MonotonicInstant: Hashable, Comparable, Sendable {
    /// Nanoseconds.
    var nanoseconds: UInt64

    init(nanoseconds: UInt64) {
        self.nanoseconds = nanoseconds
    }

    /// The clock's reading. Any thread; no system call where the kernel offers the vDSO.
    static var now: MonotonicInstant { MonotonicInstant(nanoseconds: clock_gettime_nsec(CLOCK_MONOTONIC)) }

    static func < (a: MonotonicInstant, b: MonotonicInstant) -> Bool { a.nanoseconds < b.nanoseconds }

    static func + (instant: MonotonicInstant, duration: Duration) -> MonotonicInstant {
        MonotonicInstant(nanoseconds: instant.nanoseconds &+ UInt64(bitPattern: duration.nanoseconds))
    }

    static func - (later: MonotonicInstant, earlier: MonotonicInstant) -> Duration {
        .nanoseconds(Int64(bitPattern: later.nanoseconds &- earlier.nanoseconds))
    }
}

extension Duration {
    /// The whole duration in nanoseconds, clamped to what 64 bits hold (± 292 years).
    var nanoseconds: Int64 {
        let (seconds, attoseconds) = components
        let (scaled, overflow) = seconds.multipliedReportingOverflow(by: 1_000_000_000)
        guard !overflow else { return seconds < 0 ? .min : .max }
        let (sum, carried) = scaled.addingReportingOverflow(attoseconds / 1_000_000_000)
        return carried ? (seconds < 0 ? .min : .max) : sum
    }
}

private func clock_gettime_nsec(_ clock: clockid_t) -> UInt64 {
    var time = timespec()
    // Cannot fail for CLOCK_MONOTONIC with a valid pointer (clock_gettime(2)).
    unsafe clock_gettime(clock, &time)
    return UInt64(time.tv_sec) &* 1_000_000_000 &+ UInt64(time.tv_nsec)
}
