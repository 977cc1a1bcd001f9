internal import CRunLoopShims
internal import Synchronization

/// What a thread waits for at a latch, as a reader of this process's memory finds it: by the address of the word that the kernel waits
/// at, without a lock. Interface to readers of captured stacks, as the frames of `CalloutFrames` are.
package enum WaitPoint {
    /// Behind the word lie, in 32-bit words: what is waited for, this mark (its lower half first), and the number of the thread that will
    /// end the wait, 0 where it is not known.
    package static let mark: UInt64 = 0x744e_506f_6f4c_6e75
    /// How many 32-bit words that is with the word itself.
    package static let words = 5
    /// What the word is while somebody waits.
    package static let closed: UInt32 = 0

    package enum Reason: UInt32, Sendable {
        /// A worker's thread starts.
        case workerStart = 1
        /// A request that was made to another thread's loop.
        case loopRequest = 2
        /// The end of a worker.
        case workerEnd = 3
    }
}

/// Opens once, and lets everybody through who waits for it. Any thread.
final class Latch: Sendable {
    private static let open: UInt32 = 1

    /// As `WaitPoint` says: stored properties lie in the order of their declaration.
    private struct Point: ~Copyable {
        let state = Atomic<UInt32>(WaitPoint.closed)
        let reason: UInt32
        let markLow = UInt32(truncatingIfNeeded: WaitPoint.mark)
        let markHigh = UInt32(truncatingIfNeeded: WaitPoint.mark >> 32)
        let thread: Atomic<Int32>
    }

    private let reason: WaitPoint.Reason
    /// In a cell, because the kernel waits at its address. What changes in it is read and written atomically alone, by whichever thread.
    private nonisolated(unsafe) let point: _Cell<Point>

    /// - Parameter thread: the kernel's number of the thread that will open it. Nil where it is not known yet.
    init(_ reason: WaitPoint.Reason, openedBy thread: Int32? = nil) {
        self.reason = reason
        unsafe point = _Cell(Point(reason: reason.rawValue, thread: Atomic(thread ?? 0)))
    }

    /// Acquiring: what was done before ``open()`` is visible after a true.
    var isOpen: Bool { unsafe point._address.pointee.state.load(ordering: .acquiring) == Latch.open }

    /// The calling thread will open it.
    func adopt() {
        // Relaxed: nothing hangs on it.
        unsafe point._address.pointee.thread.store(run_loop_current_tid(), ordering: .relaxed)
    }

    func open() {
        unsafe point._address.pointee.state.store(Latch.open, ordering: .releasing)
        unsafe run_loop_futex_wake(point._address, .max)
    }

    /// Whether it was open by the deadline. In a frame of its own where what is waited for can take its time.
    func wait(until deadline: MonotonicInstant = .distantFuture) -> Bool {
        while !isOpen {
            guard sleep(until: deadline.nanoseconds) else { return isOpen }
        }
        return true
    }

    private func sleep(until deadline: UInt64) -> Bool {
        let word = unsafe UnsafeMutableRawPointer(point._address)
        return switch reason {
        case .workerStart: unsafe run_loop_futex_wait(word, WaitPoint.closed, deadline)
        case .loopRequest: unsafe event_run_loop_wait_for_a_perform_request(word, WaitPoint.closed, deadline)
        case .workerEnd: unsafe event_run_loop_wait_for_a_worker_to_end(word, WaitPoint.closed, deadline)
        }
    }
}
