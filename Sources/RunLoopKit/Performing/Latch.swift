internal import CRunLoopShims
internal import Synchronization

/// Opens once, and lets everybody through who waits for it. Any thread.
final class Latch: Sendable {
    private static let closed: UInt32 = 0
    private static let open: UInt32 = 1

    /// In a cell, because the kernel waits at its address. Read and written atomically alone, by whichever thread.
    private nonisolated(unsafe) let state = _Cell(Atomic<UInt32>(Latch.closed))

    /// Acquiring: what was done before ``open()`` is visible after a true.
    var isOpen: Bool { unsafe state._address.pointee.load(ordering: .acquiring) == Latch.open }

    func open() {
        unsafe state._address.pointee.store(Latch.open, ordering: .releasing)
        unsafe run_loop_futex_wake(state._address, .max)
    }

    /// Whether it was open by the deadline.
    func wait(until deadline: MonotonicInstant = .distantFuture) -> Bool {
        unsafe wait(until: deadline, by: run_loop_futex_wait)
    }

    /// The same, in the frame of a thread that waits for a perform request.
    func waitForRequest(until deadline: MonotonicInstant) -> Bool {
        unsafe wait(until: deadline, by: event_run_loop_wait_for_a_perform_request)
    }

    private typealias Wait = @convention(c) (UnsafeMutableRawPointer, UInt32, UInt64) -> Bool

    private func wait(until deadline: MonotonicInstant, by wait: Wait) -> Bool {
        while !isOpen {
            guard unsafe wait(state._address, Latch.closed, deadline.nanoseconds) else { return isOpen }
        }
        return true
    }
}
