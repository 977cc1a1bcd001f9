internal import Glibc

/// When a timer is to fire.
struct TimerDate: Sendable {
    enum Clock: Sendable {
        case monotonic
        case wall

        var now: UInt64 { readClock(self == .wall ? CLOCK_REALTIME : CLOCK_MONOTONIC) }
    }

    let clock: Clock
    var nanoseconds: UInt64
    /// How much later is still good, in nanoseconds.
    var tolerance: UInt64 = 0

    /// Whether it is not later than now.
    var hasPassed: Bool { nanoseconds <= clock.now }
}

/// What is ahead in a mode: its earliest dates on each clock; the greatest number if there are none. Fire: from when on a timer may fire.
/// Deadline: from when on one must not wait any longer (R46).
struct TimerOutlook: Sendable {
    var fire: UInt64
    var deadline: UInt64
    var wallFire: UInt64
    var wallDeadline: UInt64

    var isEmpty: Bool { fire == .max && wallFire == .max }

    var hasWallClockTimers: Bool { wallFire != .max }

    /// In monotonic time.
    func earliestFire(at now: ClockReading) -> UInt64 { min(fire, now.monotonic(ofWall: wallFire)) }

    /// In monotonic time.
    func earliestDeadline(at now: ClockReading) -> UInt64 { min(deadline, now.monotonic(ofWall: wallDeadline)) }
}
