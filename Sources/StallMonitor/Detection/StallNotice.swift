import RunLoopKit
import StackCapture
import StallDetection
import StallDiagnosis
import StallReports

/// What the watchdog tells the reporter. Raw: names and sentences come later, on the reporter's thread.
enum StallNotice: Sendable {
    case began(StallObservation)
    case grew(Int, StallSpan)
    /// What a stall of several turns or callouts is made of by now.
    case counted(Int, StallReport.BusyTime)
    /// What the stalled thread was at later.
    case sampled(Int, StackSample)
    case ended(Int, StallSpan, EvidenceWindow?)
    /// Nobody looks any more, and the stall goes on, as far as is known.
    case abandoned(Int, StallSpan, EvidenceWindow?)
    /// The process it stalled in has ended, as was seen from outside.
    case died(Int, StallSpan)
    /// The process has crashed meanwhile, and its crash handler is at work. The stall has the length told last.
    case crashing(Int)
    /// All that was noticed before has been told, once this is read.
    case settled(@Sendable () -> Void)
    /// Time to bring the run record up to date.
    case checkpoint
    /// The monitor cannot do part of its work.
    case fault(StallMonitorError)
    /// The monitor has switched itself off.
    case disarmed(StallMonitorError)
    /// It can again.
    case mended(StallMonitorError)
}

/// A stall at the moment it was proven.
struct StallObservation: Sendable {
    /// The stall's number in this run: what later notices name it by.
    let number: Int
    /// The id of its report, known before there is one: the process may not live to write it.
    let reportID: ULID
    let watch: WatchIdentity
    /// For what the reporter asks of it, away from the watchdog.
    let loop: WatchedThing
    let category: StallCategory
    let rule: StallRule
    let pulse: LoopHeartbeat.Pulse
    let span: StallSpan
    let detectedAt: MonotonicInstant
    let threadID: Int32?
    let evidence: EvidenceWindow?
    var stack: StackOutcome
    /// What the thread was at before, from its second tick of standing still on.
    var samples: [StackSample]
    /// The workers, if it is a pool that stands.
    var pool: PoolObservation?
    /// Nil for a stall that is one standstill.
    let busy: StallReport.BusyTime?
    /// One for all times of the report, so that a clock that is set while the stall lasts does not tear it.
    let clock = WallClockAnchor()
    /// Where the thread was found waiting.
    let site: WaitSite?
    /// What the other threads were at, if that was asked for.
    var others: ThreadStacks?
    /// Whom the thread waits for, if it was found in futex(2).
    var lock: LockFinding?
    /// Processor time of the watchdog's thread when the loop was first seen to stand still, nanoseconds.
    var watchdogCPU: UInt64?
    /// The process that it stalled in, if that is another one.
    var subject: OutsideProcess?
    /// The epoll set that the loop rests on, if it is known: whose clients wait there is counted.
    var waitSet: Int32?
    /// Of the stack: see `StackSample`.
    var loopFrame: Int?
}

/// What people call a watched thing.
struct WatchName: Hashable, Sendable {
    var type: WatchedType
    var label: String
}

/// One watch among others, of things that may be called the same.
struct WatchIdentity: Hashable, Sendable {
    var number: Int
    var name: WatchName
    /// When it was asked for.
    var since: MonotonicInstant
}

/// The stalled thread's stack, or why there is none.
enum StackOutcome: Sendable {
    case captured(CapturedStack)
    case failed(CaptureError)
    /// The loop moved on before or while its stack was taken: what was taken shows something else and is discarded.
    case raced
    /// There is nothing to capture with, or no thread known.
    case unavailable(String)
}
