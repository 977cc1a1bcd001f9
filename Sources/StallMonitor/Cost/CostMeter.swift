import Locking
import RunLoopKit
import StackCapture
import StallDiagnosis

/// What the monitor has cost so far, in all its threads. Any thread.
final class CostMeter: Sendable {
    /// Nanoseconds, and bytes.
    struct Totals: Hashable, Sendable {
        /// Processor time of the watchdog's thread, including captures.
        var watching: UInt64 = 0
        /// Processor time of captures.
        var capturing: UInt64 = 0
        /// Processor time of the reporter's thread, without the server's handler.
        var reporting: UInt64 = 0
        var writing: UInt64 = 0
        var held: UInt64 = 0
        var unwinding: UInt64 = 0
        /// The elapsed time spent on finding names.
        var naming: UInt64 = 0
        var copiedBytes: UInt64 = 0

        /// The part that counts towards the budget.
        fileprivate var spent: CostBudget.Spent { .init(processor: capturing &+ reporting &+ writing, held: held) }
    }

    /// A thread that only does the monitor's work.
    enum Part: Sendable {
        case watching, reporting, writing
    }

    private struct State: Sendable {
        var totals = Totals()
        /// Processor time of the server's handler on the reporter's thread.
        var handling: UInt64 = 0
        /// Processor time of the writer's threads that have ended.
        var writtenBefore: UInt64 = 0
        /// When something that counts towards the budget was last spent.
        var spentAt = MonotonicInstant.now
    }

    private let state = ForkSafeMutex(State())

    var totals: Totals { state.withLock { $0.totals } }

    /// What counts towards the budget, and when the last of it was spent.
    var bill: (spent: CostBudget.Spent, time: MonotonicInstant) { state.withLock { ($0.totals.spent, $0.spentAt) } }

    /// Sets the part's cost to the calling thread's processor time.
    func spent(_ part: Part) {
        let time = ThreadClock.nanoseconds
        state.withLock { state in
            switch part {
            case .watching: state.totals.watching = time
            case .reporting: state.totals.reporting = time &- state.handling
            case .writing: state.totals.writing = state.writtenBefore &+ time
            }
            if part != .watching { state.spentAt = .now }
        }
    }

    /// Takes over the writer's part for the calling thread, which is new, from a thread that has ended.
    func beginsWriting() { state.withLock { $0.writtenBefore = $0.totals.writing } }

    /// Takes stacks, and counts their cost.
    ///
    /// - Parameter costs: Returns the cost of each stack that was taken.
    func measure<Stacks>(_ capture: () -> Stacks, costs: (Stacks) -> [CapturedStack.Cost]) -> Stacks {
        let start = ThreadClock.nanoseconds
        let stacks = capture()
        let time = ThreadClock.nanoseconds &- start
        let costs = costs(stacks)
        state.withLock { state in
            state.totals.capturing &+= time
            state.spentAt = .now
            for cost in costs {
                state.totals.held &+= cost.heldNanoseconds
                state.totals.unwinding &+= cost.unwindNanoseconds
                state.totals.copiedBytes &+= cost.bytesCopied
            }
        }
        return stacks
    }

    func named(in nanoseconds: Int64) {
        state.withLock { $0.totals.naming &+= UInt64(clamping: nanoseconds) }
    }

    /// Wraps the handler so that its processor time does not count as the monitor's.
    func exempting(_ tell: @escaping @Sendable (StallEvent) -> Void) -> @Sendable (StallEvent) -> Void {
        { event in
            let start = ThreadClock.nanoseconds
            tell(event)
            let time = ThreadClock.nanoseconds &- start
            self.state.withLock { $0.handling &+= time }
        }
    }
}
