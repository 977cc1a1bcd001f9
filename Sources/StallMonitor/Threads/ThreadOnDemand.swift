import Locking
import RunLoopKit
import Synchronization

/// A thread that exists only while there is work for it. It starts when there is work, and ends after a while without any.
///
/// The side with work calls ``demand(_:)`` after it has put the work where the thread finds it. The thread calls ``leave(if:)``
/// before it ends. One of the two sees the other, so no work is left without a thread.
///
/// Any thread may call. The caller must hold no lock that the body or the condition of `leave` takes.
final class ThreadOnDemand: Sendable {
    private enum State: Sendable {
        case absent
        case running(MonitorThread)
        /// Another thread does the work, because the system could not start a thread.
        case replaced
    }

    /// For how long a thread waits for more work before it ends.
    static let idleTime = Duration.seconds(5)

    private let name: String
    private let state = ForkSafeMutex(State.absent)
    private let generation = ForkGeneration.current

    /// - Parameter name: At most 15 bytes.
    init(name: String) { self.name = name }

    /// Starts the thread unless it runs.
    ///
    /// - Parameter body: Runs on the thread. It returns when ``leave(if:)`` returns true, or at the end of all work.
    /// - Returns: False if the system could not start a thread. The next call tries again.
    @discardableResult
    func demand(_ body: @escaping @Sendable () -> Void) -> Bool {
        // In a fork's child the lock may be held forever.
        guard generation.isCurrent else { return false }
        return state.withLock { state in
            guard case .absent = state else { return true }
            guard let thread = try? MonitorThread(name: name, body) else { return false }
            state = .running(thread)
            return true
        }
    }

    /// Called by the thread itself, as the last step of its body: ends its duty if nothing is left to do.
    ///
    /// - Parameter isIdle: Called while nobody can demand a thread.
    /// - Returns: Whether the body must return now. Otherwise there is more work.
    func leave(if isIdle: () -> Bool) -> Bool {
        state.withLock { state in
            guard case .running = state, isIdle() else { return false }
            state = .absent
            return true
        }
    }

    /// Does the work on the calling thread if the system cannot start a thread. Does nothing while the thread runs.
    func replace(_ work: () -> Void) {
        let isMine = state.withLock { state in
            guard case .absent = state else { return false }
            state = .replaced
            return true
        }
        guard isMine else { return }
        work()
        state.withLock { $0 = .absent }
    }

    /// Waits until the thread has returned from its body, as ``TickSemaphore/wait(within:)`` does. The body must have been requested
    /// to end. Returns whether no thread is left.
    func join(within patience: inout Duration) -> Bool {
        let thread: MonitorThread? = state.withLock { if case .running(let thread) = $0 { thread } else { nil } }
        return thread?.join(within: &patience) ?? true
    }
}

/// Calls a closure that may take long, because it asks the kernel or the server's code, on a separate thread, and waits for its
/// result only for a limited time. While one has not returned, no other is called, so at most one thread hangs. For the
/// reporter's thread.
final class TimedLookup: Sendable {
    private let patience: Duration
    private let isBusy = Atomic(false)

    /// - Parameter patience: For how long a result is waited for.
    init(patience: Duration) { self.patience = patience }

    /// The result. Nil if it did not arrive in time.
    ///
    /// - Parameter time: If not the usual patience.
    func ask<Answer: Sendable>(within time: Duration? = nil, _ question: @escaping @Sendable () -> Answer) -> Answer? {
        guard !isBusy.exchange(true, ordering: .acquiringAndReleasing) else { return nil }
        let slot = Slot<Answer>()
        do throws(StallMonitorError) {
            let thread = try MonitorThread(name: "stall-lookup") { [self] in
                let answer = question()
                slot.answer.withLock { $0 = answer }
                isBusy.store(false, ordering: .releasing)
            }
            // By its end the thread has released the question, which may hold the server's objects.
            var time = time ?? patience
            _ = thread.join(within: &time)
            return slot.answer.withLock { $0 }
        } catch {
            isBusy.store(false, ordering: .releasing)
            return nil
        }
    }

    private final class Slot<Answer: Sendable>: Sendable {
        let answer = Mutex<Answer?>(nil)
    }
}
