import Glibc
import RunLoopKit
import StackCapture
import StallDetection
import StallDiagnosis
import StallReports

/// Ends the process when a stall has lasted longer than the server allows (`abortsAfter`). First the stall's report is written;
/// if the stall still lasts then, the process is aborted. Confined to the watchdog's thread.
struct LastResort {
    /// What to do about an ongoing stall.
    enum Step { case wait, announce, abort }

    let limit: Duration
    /// How long handlers of SIGABRT may run, and a core dump may be written.
    private let abortPatience: Duration
    /// The ongoing stalls that were announced, by their numbers. `limit`: the length at which the report is not waited for any more.
    private var announced: [Int: (limit: Duration, notice: AbortNotice)] = [:]

    /// How long to wait for the report. A process that is stopped meanwhile writes none, so that time does not count.
    private static let reportPatience = Duration.seconds(5)

    init(limit: Duration, abortPatience: Duration) { (self.limit, self.abortPatience) = (limit, abortPatience) }

    /// Decides about an ongoing stall. Called once per look.
    ///
    /// - Parameters:
    ///   - length: How long the stall has lasted, without excluded time.
    ///   - own: Returns the part of it for which the process is to blame. Called until the stall is announced.
    func step(for stall: Int, lasting length: Duration, own: () -> Duration) -> Step {
        if let (limit, notice) = announced[stall] { return notice.isWritten || length >= limit ? .abort : .wait }
        return own() >= limit ? .announce : .wait
    }

    /// Notes that the reporter has to write the report.
    mutating func announce(_ notice: AbortNotice, of stall: Int, lasting length: Duration) {
        announced[stall] = (length + Self.reportPatience, notice)
    }

    /// Called when a stall has ended, announced or not. A notice holds the stacks of all threads.
    mutating func forget(_ stall: Int) { announced[stall] = nil }

    /// Ends the process by SIGABRT, so that its crash handler runs or a core file is written.
    func abort(_ message: String) -> Never {
        killLater()
        StandardError.write("stall-monitor: \(message)\n")
        Glibc.abort()
    }

    /// Ends the process by SIGKILL later if SIGABRT does not: its handler may wait for a lock that the stalled thread holds, and
    /// standard error may be a pipe that nobody reads. If there can be no timer, a thread does that; if there can be no thread
    /// either, the process ends at once.
    private func killLater() {
        guard !startTimer() else { return }
        let thread = try? MonitorThread(name: "stall-abort") { [abortPatience] in
            _ = TickSemaphore().wait(until: .now + abortPatience)
            kill(getpid(), SIGKILL)
        }
        if thread == nil { kill(getpid(), SIGKILL) }
    }

    /// Fails if the user's processes have as many timers and queued signals as they may (RLIMIT_SIGPENDING).
    private func startTimer() -> Bool {
        var event = unsafe sigevent()
        unsafe event.sigev_notify = Int32(SIGEV_SIGNAL)
        unsafe event.sigev_signo = SIGKILL
        var timer: timer_t?
        // The first timer of a process is null, but valid.
        guard unsafe timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 else { return false }
        var time = itimerspec()
        let (seconds, rest) = abortPatience.nanoseconds.quotientAndRemainder(dividingBy: 1_000_000_000)
        time.it_value = timespec(tv_sec: Int(seconds), tv_nsec: Int(rest))
        return unsafe timer_settime(timer, 0, &time, nil) == 0
    }
}

extension WatchedLoop {
    /// Called once per look while a stall lasts, if the server limits the length of stalls.
    func considerLastResort(
        _ stall: Int,
        _ span: StallSpan,
        at time: MonotonicInstant,
        with services: inout WatchServices
    ) {
        // The threads' times are read only when they may decide: there may be many threads, and this is called at each look.
        guard let resort = services.lastResort, span.length >= resort.limit else { return }
        // A long job does not stall the pool: the other workers serve other jobs.
        if case .job = loop { return }
        switch resort.step(for: stall, lasting: span.length, own: { ownShare(of: span.length, at: time) }) {
        case .wait: return
        case .announce:
            let threads = services.otherThreads(than: loop.thread?.id, within: .seconds(1))
            let notice = AbortNotice(limit: resort.limit, threads: threads, takenAt: .now)
            services.lastResort?.announce(notice, of: stall, lasting: span.length)
            services.notices.add(.aborting(stall, notice))
        case .abort:
            resort.abort(
                "\(VisibleText.of(identity.name.label)) has been stalled for \(DurationText(nanoseconds: span.length.nanoseconds).short), longer than the "
                    + "\(DurationText(nanoseconds: resort.limit.nanoseconds).short) of abortsAfter: ending the process. The newest report says where."
            )
        }
    }

    /// The part of a standstill that a new process would not have. Leaves out time in which the threads waited for a processor.
    private func ownShare(of length: Duration, at time: MonotonicInstant) -> Duration {
        // A process that has run out of descriptors, for example, cannot read the threads' times.
        guard let standstill else { return length }
        let delays = loop.threadIDs.compactMap { standstill.evidence(threadID: $0, at: time)?.runDelay }
        return length - (delays.max() ?? .zero)
    }
}
