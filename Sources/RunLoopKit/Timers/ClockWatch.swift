internal import CRunLoopShims
internal import Glibc
internal import Synchronization

/// Ends a loop's sleep when somebody sets the wall clock, so that the dates that go by it are looked at anew (R49).
///
/// One descriptor a loop, in the epoll set of each mode that has slept with such a date. It is armed once, not for each date: the dates
/// are translated to monotonic time before each sleep, and slewing moves both clocks alike, so only a step makes the sleep wrong. If
/// there are no descriptors left, the loop looks at the clock at intervals.
final class ClockWatch: Sendable {
    /// Nanoseconds between two looks at the clock while its steps cannot be heard of.
    static let substituteInterval: UInt64 = 1_000_000_000

    /// -1 until the first use. Made, used and closed by the loop's thread.
    private let timerfd = Atomic<Int32>(-1)
    /// The generation of forks that made it, and the loop's losses by then, below: after a loss its number may be another's, and after a
    /// fork it is the parent's. The loop's thread.
    private let origin = Atomic<UInt64>(0)

    private static func origin(losses: UInt32) -> UInt64 { UInt64(run_loop_generation()) << 32 | UInt64(losses) }

    /// With the loop's end. The loop's thread.
    func close(losses: UInt32) {
        let fd = timerfd.exchange(-1, ordering: .relaxed)
        if fd >= 0, origin.load(ordering: .relaxed) == ClockWatch.origin(losses: losses) { Glibc.close(fd) }
    }

    /// Puts the descriptor into an epoll set, unless it is there; if that fails, the next call tries again. The loop's thread.
    func watch(in poller: Poller, losses: UInt32) {
        guard !poller.watchesClock.load(ordering: .relaxed) else { return }
        let origin = ClockWatch.origin(losses: losses)
        if timerfd.load(ordering: .relaxed) < 0 || self.origin.load(ordering: .relaxed) != origin {
            timerfd.store(run_loop_make_clock_fd(), ordering: .relaxed)
            self.origin.store(origin, ordering: .relaxed)
        }
        let fd = timerfd.load(ordering: .relaxed)
        let failure = fd < 0 ? EMFILE : poller.add(fd, events: EPOLLIN.rawValue, token: Poller.clockToken)
        guard let failure else { return poller.watchesClock.store(true, ordering: .relaxed) }
        if failure == EBADF, poller.isOpen { timerfd.store(-1, ordering: .relaxed) }
        Complaint.cannotWatchClock.make()
    }

    /// The clock was set. Who slept sleeps anew, with the dates as they are now. The loop's thread.
    func noteEvent() { run_loop_rearm_clock_fd(timerfd.load(ordering: .relaxed)) }
}
