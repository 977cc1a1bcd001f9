import RunLoopKit
import StackCapture
import StallReports

/// What the watchdog tells the reporter. Raw: names and sentences come later, on the reporter's thread.
enum StallNotice: Sendable {
    case began(StallObservation)
    case grew(Int, StallSpan)
    /// What the stalled thread was at later.
    case sampled(Int, StackSample)
    case ended(Int, StallSpan, EvidenceWindow?)
    /// Time to bring the run record up to date.
    case checkpoint
    /// The monitor cannot do part of its work.
    case fault(StallMonitorError)
}

/// A stall at the moment it was proven.
struct StallObservation: Sendable {
    /// The stall's number in this run: what later notices name it by.
    let number: Int
    /// The id of its report, known before there is one: the process may not live to write it.
    let reportID: ULID
    let watch: WatchIdentity
    /// For what the reporter asks of it, away from the watchdog.
    let loop: any WatchableLoop
    let rule: StallRule
    let pulse: LoopHeartbeat.Pulse
    let span: StallSpan
    let detectedAt: MonotonicInstant
    let threadID: Int32?
    let evidence: EvidenceWindow?
    let stack: StackOutcome
    /// What the thread was at before, from its second tick of standing still on.
    let samples: [StackSample]
    /// What the descriptor stands for that the thread was found waiting on.
    let descriptorTarget: String?
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
