import CRunLoopShims
import Glibc
import Synchronization

/// A point in time on CLOCK_REALTIME, the clock that people and NTP set: nanoseconds since 1970 (UTC, without leap seconds).
/// For timers that fire at a time of day. It jumps when the clock is set, so measure durations with ``MonotonicInstant`` (R49).
public struct WallClockInstant: Hashable, Sendable {
    /// Nanoseconds since 1970, as the kernel counts them. Earlier times cannot be represented.
    public let nanoseconds: UInt64

    /// Accepts any number; the greatest is ``distantFuture``.
    @inlinable
    public init(nanoseconds: UInt64) { self.nanoseconds = nanoseconds }

    /// The clock's current time. Any thread, and in a signal handler.
    public static var now: WallClockInstant { WallClockInstant(nanoseconds: readClock(CLOCK_REALTIME)) }

    /// Later than any deadline: the year 2554.
    public static let distantFuture = WallClockInstant(nanoseconds: .max)
}

extension WallClockInstant: InstantProtocol {
    /// The earlier instant is less.
    @inlinable
    public static func < (left: Self, right: Self) -> Bool { left.nanoseconds < right.nanoseconds }

    /// The instant later by `duration` (earlier if negative), clamped to 1970 and to ``distantFuture``.
    public func advanced(by duration: Duration) -> WallClockInstant {
        WallClockInstant(nanoseconds: nanoseconds.advancedSaturated(by: duration))
    }

    /// Negative if `other` is earlier. Clamped to ±292 years.
    public func duration(to other: WallClockInstant) -> Duration {
        nanoseconds.duration(to: other.nanoseconds)
    }
}

// MARK: - Between the clocks

/// The time on both clocks at one moment.
struct ClockReading: Sendable {
    var monotonic: UInt64
    /// Zero if it was not requested: then no wall-clock date is due.
    var wall: UInt64 = 0

    /// - Parameter withWall: Whether any item uses the wall clock.
    static func now(withWall: Bool) -> ClockReading {
        ClockReading(
            monotonic: readClock(CLOCK_MONOTONIC),
            wall: withWall ? readClock(CLOCK_REALTIME) : 0
        )
    }

    /// The time on a timer's clock.
    func time(on clock: TimerDate.Clock) -> UInt64 { clock == .wall ? wall : monotonic }

    /// When the wall clock will reach `date`, if it is not set before.
    func monotonic(ofWall date: UInt64) -> UInt64 { ClockReading.translate(date, from: wall, to: monotonic) }

    /// The wall clock's time at `date`, if it is not set before.
    func wall(ofMonotonic date: UInt64) -> UInt64 { ClockReading.translate(date, from: monotonic, to: wall) }

    func monotonic(ofWall key: TimerKey) -> TimerKey {
        var key = key
        key.date = monotonic(ofWall: key.date)
        return key
    }

    /// The extreme dates stay unchanged.
    private static func translate(_ date: UInt64, from now: UInt64, to other: UInt64) -> UInt64 {
        if date == .max { return .max }
        return date < now ? other.subtractingSaturated(now - date) : other.addingSaturated(date - now)
    }
}

/// When a timer is to fire.
struct TimerDate: Sendable {
    enum Clock: Sendable {
        case monotonic
        case wall

        var now: UInt64 { readClock(self == .wall ? CLOCK_REALTIME : CLOCK_MONOTONIC) }
    }

    let clock: Clock
    var nanoseconds: UInt64
    /// How much later it may fire, in nanoseconds.
    var tolerance: UInt64 = 0

    /// Whether it is not later than now.
    var hasPassed: Bool { nanoseconds <= clock.now }
}

/// A mode's earliest dates on each clock; the greatest number if there are none. Fire: the date from which a timer may fire.
/// Deadline: the date from which one must not wait any longer (R46).
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

/// Ends a loop's sleep when the wall clock is set, so that wall-clock dates are evaluated again (R49).
///
/// One descriptor per loop, in the epoll set of each mode that has slept with such a date. It is armed once, not for each date:
/// the dates are translated to monotonic time before each sleep, and slewing moves both clocks alike, so only a step makes the
/// sleep wrong. If there are no descriptors left, the loop checks the clock at intervals.
final class ClockWatch: Sendable {
    /// Nanoseconds between two checks of the clock while its steps cannot be observed.
    static let substituteInterval: UInt64 = 1_000_000_000

    /// -1 until the first use. Created, used and closed by the loop's thread.
    private let timerfd = Atomic<Int32>(-1)
    /// The fork generation that created it in the upper 32 bits, and the loop's losses then in the lower. After a loss its
    /// number may belong to another file, and after a fork the descriptor is the parent's. The loop's thread.
    private let origin = Atomic<UInt64>(0)

    private static func origin(losses: UInt32) -> UInt64 { UInt64(run_loop_generation()) << 32 | UInt64(losses) }

    /// Closes the descriptor at the loop's end. The loop's thread.
    func close(losses: UInt32) {
        let fd = timerfd.exchange(-1, ordering: .relaxed)
        if fd >= 0, origin.load(ordering: .relaxed) == ClockWatch.origin(losses: losses) { Glibc.close(fd) }
    }

    /// Adds the descriptor to a mode's epoll set unless it is in it; if that fails, the next call tries again. The loop's thread.
    func watch(in mode: LoopMode, losses: UInt32) {
        guard !mode.poller.watchesClock.load(ordering: .relaxed) else { return }
        let origin = ClockWatch.origin(losses: losses)
        if timerfd.load(ordering: .relaxed) < 0 || self.origin.load(ordering: .relaxed) != origin {
            timerfd.store(run_loop_make_clock_fd(), ordering: .relaxed)
            self.origin.store(origin, ordering: .relaxed)
        }
        let fd = timerfd.load(ordering: .relaxed)
        // Edge-triggered, because nobody reads it: the kernel reports each step once to each set that has it, also to a set with
        // a descriptor that was since replaced.
        let events = EPOLLIN.rawValue | EPOLLET.rawValue
        let failure = fd < 0 ? EMFILE : mode.addOwn(fd, events: events, token: Poller.clockToken)
        guard let failure else { return mode.poller.watchesClock.store(true, ordering: .relaxed) }
        // If the set was found closed, there is no shortage: that has its own warning, and the next set takes the descriptor.
        guard mode.poller.isOpen else { return }
        if failure == EBADF { timerfd.store(-1, ordering: .relaxed) }
        LoopWarning.cannotWatchClock.printOnce()
    }
}
