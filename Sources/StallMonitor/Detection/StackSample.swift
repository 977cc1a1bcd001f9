import RunLoopKit
import StackCapture

/// What a thread was at, and when.
struct StackSample: Sendable {
    var time: MonotonicInstant
    var stack: CapturedStack
    /// Where it waited. Nil for a thread that ran, or slept in a page fault.
    var site: WaitSite?
    /// Captures that gave this stack, and the time they stand for. Nil: the time since the sample before.
    var count = 1
    var span: Duration?
    /// Whom the thread waited for then, where that was not known before.
    var lock: LockFinding?
}
