import Glibc
import RunLoopKit
import StallReports

/// How the system's clocks lie to one another. Boot time gains on monotonic time while the machine is suspended
/// (clock_gettime(2)); the wall clock gains or loses on boot time when it is set.
struct ClockOffsets: Hashable, Sendable {
    /// When it was read, CLOCK_MONOTONIC nanoseconds.
    var monotonic: Int64
    /// Boot time less monotonic time, nanoseconds.
    var suspended: Int64
    /// Wall time less boot time, nanoseconds.
    var wall: Int64

    /// Nil if the thread was interrupted between the readings each time: then the next one will do. No system call.
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

    /// How long the machine was suspended since `earlier`. Under 10 ms it is an inexact reading.
    func suspension(since earlier: ClockOffsets) -> Duration? {
        let length = suspended.subtractingSaturated(earlier.suspended)
        return length >= 10_000_000 ? .nanoseconds(length) : nil
    }

    /// By how much the wall clock was set since `earlier`. A clock that is slewed gains or loses 0.5 ms a second at most
    /// (adjtimex(2)), which is no step.
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

/// Ties the monotonic clock to the wall clock at one moment.
struct WallClockAnchor {
    private let monotonic = MonotonicInstant.now
    private let wall = Timestamp.now()
    private let clocks = ClockOffsets.read()

    /// - Parameter sleptUntilNow: whether the machine's suspensions since the anchor came before `instant`; monotonic time does not
    ///   know of them.
    func time(of instant: MonotonicInstant, sleptUntilNow: Bool = false) -> Timestamp {
        let time = wall.advanced(byNanoseconds: (instant - monotonic).nanoseconds)
        guard sleptUntilNow, let clocks, let now = ClockOffsets.read() else { return time }
        return time.advanced(byNanoseconds: now.suspension(since: clocks)?.nanoseconds ?? 0)
    }
}
