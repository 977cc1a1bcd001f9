import CRunLoopShims
import Locking
import Synchronization

/// How a reader of this process's memory finds what a thread waits for at a latch: by the address of the word on which the
/// kernel waits, without a lock. This is interface for readers of captured stacks, like the frames of `CalloutFrames`.
package enum WaitPoint {
    /// After the word follow, as 32-bit words: the reason of the wait, this mark (lower half first), and the kernel's id of the
    /// thread that will end the wait, or 0 where it is not known.
    package static let mark: UInt64 = 0x744e_506f_6f4c_6e75
    /// The number of these 32-bit words, including the word itself.
    package static let words = 5
    /// The value of the word while a thread waits.
    package static let closed: UInt32 = 0

    /// What has to happen for the wait to end.
    package enum Reason: UInt32, Sendable {
        /// The start of a worker's thread.
        case workerStart = 1
        /// A request made to another thread's loop.
        case loopRequest = 2
        /// The end of a worker.
        case workerEnd = 3
    }
}

/// Opens once, and releases all threads that wait for it. Any thread.
final class Latch: Sendable {
    private static let open: UInt32 = 1

    /// The layout that `WaitPoint` describes: stored properties are laid out in the order of their declaration.
    private struct Point: ~Copyable {
        let state = Atomic<UInt32>(WaitPoint.closed)
        let reason: UInt32
        let markLow = UInt32(truncatingIfNeeded: WaitPoint.mark)
        let markHigh = UInt32(truncatingIfNeeded: WaitPoint.mark >> 32)
        let thread: Int32
    }

    private let reason: WaitPoint.Reason
    /// In a cell, because the kernel waits on its address. Only its state changes, which is accessed atomically, by any thread.
    private nonisolated(unsafe) let point: Cell<Point>

    /// - Parameter thread: The kernel's id of the thread that will open it. Nil if it is not known.
    init(_ reason: WaitPoint.Reason, openedBy thread: Int32? = nil) {
        self.reason = reason
        unsafe point = Cell(Point(reason: reason.rawValue, thread: thread ?? 0))
    }

    /// Acquiring: if it is true, what was done before ``open()`` is visible.
    var isOpen: Bool { unsafe point.address.pointee.state.load(ordering: .acquiring) == Latch.open }

    func open() {
        unsafe point.address.pointee.state.store(Latch.open, ordering: .releasing)
        unsafe run_loop_futex_wake(point.address, .max)
    }

    /// Whether it was open by the deadline. Runs in its own frame if the wait can be long.
    func wait(until deadline: MonotonicInstant = .distantFuture) -> Bool {
        while !isOpen {
            guard sleep(until: deadline.nanoseconds) else { return isOpen }
        }
        return true
    }

    private func sleep(until deadline: UInt64) -> Bool {
        let word = unsafe UnsafeMutableRawPointer(point.address)
        return switch reason {
        case .workerStart: unsafe run_loop_futex_wait(word, WaitPoint.closed, deadline)
        case .loopRequest: unsafe event_run_loop_wait_for_a_perform_request(word, WaitPoint.closed, deadline)
        case .workerEnd: unsafe event_run_loop_wait_for_a_worker_to_end(word, WaitPoint.closed, deadline)
        }
    }
}
