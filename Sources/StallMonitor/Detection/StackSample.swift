import RunLoopKit
import StackCapture

/// What a thread was at, and when.
struct StackSample: Sendable {
    var time: MonotonicInstant
    var stack: CapturedStack
    /// Whom the thread waited for then, where that was not known before.
    var lock: LockFinding?
}
