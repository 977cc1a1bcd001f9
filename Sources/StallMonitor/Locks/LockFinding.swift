import RunLoopKit
import StackCapture
import StallDiagnosis

/// Who waits for whom, from the stalled thread on, as the watchdog found it. Raw: kinds are checked against names later.
struct LockFinding: Sendable {
    /// A thread's wait for another one.
    struct Wait: Sendable {
        var threadID: Int32
        /// The thread's name and state.
        var evidence: ThreadEvidence?
        var futex: FutexWait
        var sight: LockReading
        /// Where the thread slept, so that it can be seen whether it still does.
        var sighting: ThreadSighting
        /// The owner was another one, or the thread another place, at each look.
        var changedHands = false
    }

    /// A thread that another one waits for.
    struct Owner: Sendable {
        var threadID: Int32
        var evidence: ThreadEvidence?
        var time: MonotonicInstant
        var stack: Result<CapturedStack, CaptureError>
        /// Where it was found waiting. Nil for one that ran.
        var site: WaitSite?

        /// What it was found in.
        var call: SystemCall? { if case .success(let stack) = stack { stack.systemCall } else { nil } }
    }

    /// The stalled thread's first; each one's owner is the next one's thread. Never empty.
    var waits: [Wait]
    /// All but the stalled thread, in the order that they were found in.
    var owners: [Owner] = []
    /// The wait whose thread is the last wait's owner.
    var closing: Int?

    /// What it cost to take the owners' stacks.
    var costs: [CapturedStack.Cost] { owners.compactMap { try? $0.stack.get().cost } }
}
