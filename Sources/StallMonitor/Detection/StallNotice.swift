import RunLoopKit
import StackCapture

/// What the watchdog tells the reporter. Raw: names and sentences come later, on the reporter's thread.
enum StallNotice: Sendable {
    case began(StallObservation)
    case grew(Int, StallSpan)
    /// What the stalled thread was at later.
    case sampled(Int, CapturedStack)
    case ended(Int, StallSpan, EvidenceWindow?)
    /// Time to bring the run record up to date.
    case checkpoint
}

/// A stall at the moment it was proven.
struct StallObservation: Sendable {
    /// The stall's number in this run: what later notices name it by.
    let number: Int
    let watch: WatchIdentity
    let rule: StallRule
    let pulse: LoopHeartbeat.Pulse
    let modeName: String?
    let span: StallSpan
    let detectedAt: MonotonicInstant
    let threadID: Int32?
    let evidence: EvidenceWindow?
    let stack: StackOutcome
    /// What the thread was at before, from its second tick of standing still on.
    let samples: [CapturedStack]
    /// What the descriptor stands for that the thread was found waiting on.
    let descriptorTarget: String?
}

/// A watched thing's names.
struct WatchIdentity: Hashable, Sendable {
    var number: Int
    var type: String
    var label: String
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
