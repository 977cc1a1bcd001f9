import RunLoopKit
import Synchronization

/// Asks the kernel, or the server's own code, what may take long to answer, on a thread of its own, and waits for a moment only. While an earlier question is
/// unanswered no other is asked: one stuck thread at most. The reporter's thread asks.
final class PatientLookup: Sendable {
    private let isBusy = Atomic(false)

    /// The answer, or nil when it did not come in time.
    func ask<Answer: Sendable>(
        within time: Duration = .seconds(1),
        _ question: @escaping @Sendable () -> Answer
    ) -> Answer? {
        guard !isBusy.exchange(true, ordering: .acquiringAndReleasing) else { return nil }
        let (slot, answered) = (Slot<Answer>(), TickSemaphore())
        do throws(StallMonitorError) {
            let thread = try MonitorThread(name: "stall-lookup") { [self] in
                let answer = question()
                slot.answer.withLock { $0 = answer }
                isBusy.store(false, ordering: .releasing)
                answered.signal()
            }
            let deadline = MonotonicInstant.now + time
            guard answered.wait(until: deadline), thread.join(by: deadline + .seconds(1)) else {
                thread.detach()
                return slot.answer.withLock { $0 }
            }
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
