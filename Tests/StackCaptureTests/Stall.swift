import CStalls
import Glibc
import StackCapture

/// A fixture thread that is stalled, or computes. It has to be finished.
@safe final class Stall: Sendable {
    /// Valid until `finish`, which the test that made it calls once.
    nonisolated(unsafe) private let handle: OpaquePointer
    /// The system call in which it blocks, if it does.
    let systemCall: String

    init(_ kind: stall_kind, depth: Int = 5, for time: Duration = .zero, path: String? = nil) {
        systemCall = Self.calls[kind] ?? "read"
        let nanoseconds = UInt64(time / .nanoseconds(1))
        unsafe handle = stall_start(kind, Int32(depth), nanoseconds, path)
    }

    /// A thread that ends immediately.
    init() {
        systemCall = ""
        unsafe handle = stall_start_brief()
    }

    private static let calls: [stall_kind: String] = [
        STALL_NANOSLEEP: "clock_nanosleep", STALL_POLL: "poll", STALL_EPOLL: "epoll_wait", STALL_SEMAPHORE: "futex",
        STALL_RECEIVE: "recvfrom", STALL_LOCK: "futex",
    ]

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

    /// Captures when the thread is in its system call: the fixture reports "about to", not "in". On its way there it may wait for a
    /// processor longer than a capture does, or sleep elsewhere, for a page or for the lock of the process's mappings.
    /// After three minutes that is an error: its test fails instead of waiting without end.
    func captureBlocked(_ stall: Stall) throws(CaptureError) -> CapturedStack {
        let end = ContinuousClock.now + .seconds(180)
        repeat {
            guard let seen = StackCapturer.sighting(ofThread: stall.threadID) else { throw CaptureError(.threadGone) }
            guard seen.systemCall?.name == stall.systemCall else {
                usleep(200)
                continue
            }
            let stack = try capture(stall).get()
            if stack.method == .quiet, stack.systemCall?.name == stall.systemCall { return stack }
        } while ContinuousClock.now < end
        throw CaptureError(.threadKeptMoving)
    }
}
