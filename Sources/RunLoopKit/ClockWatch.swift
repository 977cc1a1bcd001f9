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

    /// -1 until the first use. Made and used by the loop's thread, closed with the loop.
    private let timerfd = Atomic<Int32>(-1)

    deinit {
        let fd = timerfd.load(ordering: .relaxed)
        if fd >= 0 { close(fd) }
    }

    /// Puts the descriptor into an epoll set, unless it is there; if that fails, the next call tries again. The loop's thread.
    func watch(in poller: Poller) {
        guard !poller.watchesClock.load(ordering: .relaxed) else { return }
        if timerfd.load(ordering: .relaxed) < 0 { timerfd.store(run_loop_make_clock_fd(), ordering: .relaxed) }
        let fd = timerfd.load(ordering: .relaxed)
        guard fd >= 0, poller.add(fd, events: EPOLLIN.rawValue, token: Poller.clockToken) == nil else {
            return Complaint.cannotWatchClock.make()
        }
        poller.watchesClock.store(true, ordering: .relaxed)
    }

    /// The clock was set. Who slept sleeps anew, with the dates as they are now. The loop's thread.
    func noteEvent() { run_loop_rearm_clock_fd(timerfd.load(ordering: .relaxed)) }
}
