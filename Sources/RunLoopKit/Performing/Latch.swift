internal import CRunLoopShims

/// Opens once, and lets everybody through who waits for it. Any thread.
@safe
final class Latch: Sendable {
    /// Owned; written and read by the C functions alone, and by them atomically.
    private nonisolated(unsafe) let word: UnsafeMutablePointer<UInt32>

    init() {
        unsafe word = .allocate(capacity: 1)
        unsafe word.initialize(to: 0)
    }

    deinit { unsafe word.deallocate() }

    func open() { unsafe run_loop_latch_open(word) }

    /// Whether it was open by the deadline.
    func wait(until deadline: MonotonicInstant = .distantFuture) -> Bool {
        unsafe run_loop_latch_wait(word, deadline.nanoseconds)
    }

    /// The same, in the frame of a thread that waits for a perform request.
    func waitForRequest(until deadline: MonotonicInstant = .distantFuture) -> Bool {
        unsafe event_run_loop_wait_for_a_perform_request(word, deadline.nanoseconds)
    }

    var isOpen: Bool { wait(until: MonotonicInstant(nanoseconds: 0)) }
}
