import RunLoopKit
import StackCapture
import StallReports

/// The stack of another thread than the stalled one, or why there is none.
struct CompanionStack {
    var role: StackRole
    var thread: StallReport.Thread
    var time: MonotonicInstant
    var stack: Result<CapturedStack, CaptureError>

    var captured: CapturedStack? { try? stack.get() }

    /// The stack as a report tells it.
    ///
    /// - Parameter name: finds names for a captured stack's frames.
    func told(
        _ clock: WallClockAnchor,
        _ name: (CapturedStack, StallReport.Thread, MonotonicInstant) -> StallReport.Stack
    ) -> StallReport.Stack {
        switch stack {
        case .success(let captured):
            var stack = name(captured, thread, time)
            stack.role = role
            return stack
        case .failure(let error):
            return .init(
                role: role,
                thread: thread,
                capturedAt: clock.time(of: time),
                complete: false,
                error: error.description
            )
        }
    }
}
