import RunLoopKit
import StackCapture
import StallDetection
import StallDiagnosis
import StallReports
import Synchronization

/// What the watchdog hands over to the reporter. It holds addresses and counts; names and sentences are made on the reporter's thread. An
/// `Int` is the stall's number.
enum StallNotice: Sendable {
    case began(StallObservation)
    case grew(Int, StallSpan)
    /// The turns and callouts of a stall so far, if it is not one standstill.
    case counted(Int, StallReport.BusyTime)
    /// A stack sample of the stalled thread from later.
    case sampled(Int, StackSample)
    case ended(Int, StallSpan, EvidenceWindow?)
    /// The loop is no longer looked at. The stall goes on, as far as is known.
    case abandoned(Int, StallSpan, EvidenceWindow?)
    /// The process in which the loop stalled has ended. Only for processes that are watched from outside.
    case died(Int, StallSpan)
    /// The process has crashed, and its crash handler runs. The stall keeps the length that was reported last.
    case crashing(Int)
    /// The monitor ends the process as soon as the report is written.
    case aborting(Int, AbortNotice)
    /// Call this: everything from before it was reported.
    case settled(@Sendable () -> Void)
    /// Update the run record.
    case checkpoint
    /// The monitor cannot do part of its work.
    case fault(StallMonitorError)
    /// The monitor has switched itself off.
    case disarmed(StallMonitorError)
    /// A fault is over.
    case mended(StallMonitorError)
}

/// The request to write a stall's report before the monitor ends the process, and the answer that it is written.
final class AbortNotice: Sendable {
    /// How long a stall may last.
    let limit: Duration
    /// The stacks of all threads. Nil where none could be taken.
    let threads: ThreadStacks?
    let takenAt: MonotonicInstant
    private let written = Atomic(false)

    init(limit: Duration, threads: ThreadStacks?, takenAt: MonotonicInstant) {
        (self.limit, self.threads, self.takenAt) = (limit, threads, takenAt)
    }

    /// Whether the report is on disk, or will not be written.
    var isWritten: Bool { written.load(ordering: .acquiring) }

    func noteWritten() { written.store(true, ordering: .releasing) }

    /// For the report.
    var sentence: String {
        "No stall of this server may last longer than \(DurationText(nanoseconds: limit.nanoseconds)): the monitor ends the process."
    }
}
