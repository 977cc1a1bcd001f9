import CStalls
import StackCapture

/// A fixture thread that is stalled, or computes. It has to be finished.
@safe final class Stall: Sendable {
    /// Valid until `finish`, which the test that made it calls once.
    nonisolated(unsafe) private let handle: OpaquePointer

    init(_ kind: stall_kind, depth: Int = 5, for time: Duration = .zero, path: String? = nil) {
        let nanoseconds = UInt64(time / .nanoseconds(1))
        unsafe handle = stall_start(kind, Int32(depth), nanoseconds, path)
    }

    /// A thread that ends immediately.
    init() {
        unsafe handle = stall_start_brief()
    }

    var threadID: Int32 { unsafe stall_thread(handle) }
    var stack: Range<UInt> { unsafe UInt(stall_stack_low(handle))..<UInt(stall_stack_high(handle)) }
    var rounds: UInt64 { unsafe stall_rounds(handle) }
    var dozerState: UInt64 { unsafe stall_dozer_state(handle) }

    @discardableResult
    func finish() -> stall_end { unsafe stall_finish(handle) }
}

extension StackCapturer {
    func capture(_ stall: Stall) -> Result<CapturedStack, CaptureError> {
        capture(threadID: stall.threadID, stack: stall.stack)
    }

    /// Captures until the thread has entered a system call: the fixture reports "about to", not "in".
    /// After three minutes that is an error: its test fails instead of waiting without end.
    func captureBlocked(_ stall: Stall) throws(CaptureError) -> CapturedStack {
        let end = ContinuousClock.now + .seconds(180)
        repeat {
            let stack = try capture(stall).get()
            if stack.method == .quiet { return stack }
        } while ContinuousClock.now < end
        throw CaptureError(.threadKeptMoving)
    }
}
