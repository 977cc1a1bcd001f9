import Glibc
import RunLoopKit
import StallReports

/// The offsets between the system's clocks. Boot time gains on monotonic time while the machine is suspended (clock_gettime(2));
/// the wall clock changes against boot time when it is set.
struct ClockOffsets: Hashable, Sendable {
    /// When it was read, in CLOCK_MONOTONIC nanoseconds.
    var monotonic: Int64
    /// Boot time minus monotonic time, in nanoseconds.
    var suspended: Int64
    /// Wall time minus boot time, in nanoseconds.
    var wall: Int64

    /// Nil if the thread was interrupted between the readings three times; a later reading will succeed. No system call.
    static func read() -> ClockOffsets? {
        for _ in 0..<3 {
            let before = clock(CLOCK_MONOTONIC)
            let (boot, wall) = (clock(CLOCK_BOOTTIME), clock(CLOCK_REALTIME))
            let after = clock(CLOCK_MONOTONIC)
            guard (0..<1_000_000).contains(after.subtractingSaturated(before)) else { continue }
            return ClockOffsets(
                monotonic: before,
                suspended: boot.subtractingSaturated(before),
                wall: wall.subtractingSaturated(boot)
            )
        }
        return nil
    }

    /// How long the machine was suspended since `earlier`. Nil for less than 10 ms, which is within the reading's error.
    func suspension(since earlier: ClockOffsets) -> Duration? {
        let length = suspended.subtractingSaturated(earlier.suspended)
        return length >= 10_000_000 ? .nanoseconds(length) : nil
    }

    /// By how much the wall clock was set since `earlier`. A slewed clock changes by at most 0.5 ms per second (adjtimex(2)),
    /// which does not count.
    func step(since earlier: ClockOffsets) -> Duration? {
        let length = wall.subtractingSaturated(earlier.wall)
        let drift = monotonic.subtractingSaturated(earlier.monotonic) / 1000
        return length.magnitude > 50_000_000 + drift.magnitude ? .nanoseconds(length) : nil
    }

    private static func clock(_ id: clockid_t) -> Int64 {
        var time = timespec()
        unsafe clock_gettime(id, &time)
        return Int64(time.tv_sec).multipliedSaturated(by: 1_000_000_000).addingSaturated(Int64(time.tv_nsec))
    }
}

/// Relates the monotonic clock to the wall clock at one moment.
struct WallClockAnchor {
    private let monotonic = MonotonicInstant.now
    private let wall = Timestamp.now()
    private let clocks = ClockOffsets.read()

    /// - Parameter sleptUntilNow: whether suspensions of the machine since the anchor came before `instant`. Monotonic time does
    ///   not include them.
    func time(of instant: MonotonicInstant, sleptUntilNow: Bool = false) -> Timestamp {
        let time = wall.advanced(byNanoseconds: (instant - monotonic).nanoseconds)
        guard sleptUntilNow, let clocks, let now = ClockOffsets.read() else { return time }
        return time.advanced(byNanoseconds: now.suspension(since: clocks)?.nanoseconds ?? 0)
    }
}
