import Glibc
import RunLoopKit
import StackCapture
import StallDetection
import StallDiagnosis
import StallReports
import Synchronization

/// When the monitor ends the process (`abortsAfter`): a stall has lasted for as long as the server allows, what is known of it is written, and it
/// still lasts. Confined to the watchdog's thread.
struct LastResort {
    /// What to do about a stall that lasts.
    enum Step { case wait, announce, abort }

    let limit: Duration
    /// For how long handlers of SIGABRT may run, and a core dump be written.
    private let abortPatience: Duration
    /// By the stall's number, which no other stall ever has.
    private var announced: [Int: (deadline: MonotonicInstant, words: LastWords)] = [:]

    /// For how long the report is waited for.
    private static let reportPatience = Duration.seconds(5)

    init(limit: Duration, abortPatience: Duration) { (self.limit, self.abortPatience) = (limit, abortPatience) }

    /// Once a look, for as long as the stall lasts.
    ///
    /// - Parameter length: how long it has lasted, without what was not its own fault. Asked for until it is announced.
    func step(for stall: Int, at time: MonotonicInstant, lasting length: () -> Duration) -> Step {
        if let (deadline, words) = announced[stall] { return words.areWritten || time >= deadline ? .abort : .wait }
        return length() >= limit ? .announce : .wait
    }

    /// The reporter is asked to write these.
    mutating func announce(_ words: LastWords, of stall: Int) {
        announced[stall] = (words.takenAt + Self.reportPatience, words)
    }

    /// Ends the process by SIGABRT, so that its own crash handler tells of it, or a core file.
    func abort(_ message: String) -> Never {
        killLater()
        tell("stall-monitor: \(message)\n")
        Glibc.abort()
    }

    /// A handler of SIGABRT may want a lock that the stalled thread holds, and standard error may be a pipe that nobody reads.
    private func killLater() {
        var event = unsafe sigevent()
        unsafe event.sigev_notify = Int32(SIGEV_SIGNAL)
        unsafe event.sigev_signo = SIGKILL
        var timer: timer_t?
        // The first timer of a process is null, and a timer all the same.
        guard unsafe timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 else { return }
        var time = itimerspec()
        let (seconds, rest) = abortPatience.nanoseconds.quotientAndRemainder(dividingBy: 1_000_000_000)
        time.it_value = timespec(tv_sec: Int(seconds), tv_nsec: Int(rest))
        _ = unsafe timer_settime(timer, 0, &time, nil)
    }

    private func tell(_ line: String) { _ = unsafe write(STDERR_FILENO, line, line.utf8.count) }
}

/// What the reporter is to write before the process ends.
final class LastWords: Sendable {
    /// As long as this a stall may last.
    let limit: Duration
    /// Nil where none could be taken.
    let threads: ThreadStacks?
    let takenAt: MonotonicInstant
    private let written = Atomic(false)

    init(limit: Duration, threads: ThreadStacks?, takenAt: MonotonicInstant) {
        (self.limit, self.threads, self.takenAt) = (limit, threads, takenAt)
    }

    /// The disk has the report, or nobody waits for it.
    var areWritten: Bool { written.load(ordering: .acquiring) }

    func noteWritten() { written.store(true, ordering: .releasing) }

    /// For the report.
    var sentence: String {
        "No stall of this server may last longer than \(DurationText(nanoseconds: limit.nanoseconds)): the monitor ends the process."
    }
}

extension WatchdogState {
    /// Where a stall has lasted for as long as the server allows: has it told with the stacks of all threads, and then ends the process, unless the stall
    /// is over by then.
    mutating func considerLastResort(_ stall: Int, _ span: StallSpan, _ index: Int, at time: MonotonicInstant) {
        guard let resort = lastResort else { return }
        let watched = watchList[index]
        // A long job is no stall: who waits is served by the other workers.
        if case .job = watched.loop { return }
        switch resort.step(for: stall, at: time, lasting: { watched.ownShare(of: span.length, at: time) }) {
        case .wait: return
        case .announce:
            let threads = otherThreads(index, within: .seconds(1))
            let words = LastWords(limit: resort.limit, threads: threads, takenAt: .now)
            lastResort?.announce(words, of: stall)
            notices.add(.lastResort(stall, words))
        case .abort:
            resort.abort(
                "\(VisibleText.of(watched.identity.name.label)) has stood for \(DurationText(nanoseconds: span.length.nanoseconds).short), longer than the "
                    + "\(DurationText(nanoseconds: resort.limit.nanoseconds).short) of abortsAfter: ending the process. The newest report says where."
            )
        }
    }
}

extension WatchedLoop {
    /// So much of a standstill as a new process would not have had, too: without the time that its threads waited for a processor.
    fileprivate func ownShare(of length: Duration, at time: MonotonicInstant) -> Duration {
        guard let standstill else { return .zero }
        let delays = loop.threadIDs.compactMap { standstill.evidence(threadID: $0, at: time)?.runDelay }
        return length - (delays.max() ?? .zero)
    }
}
