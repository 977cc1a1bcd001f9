import RunLoopKit
import StackCapture
import StallReports

/// Keeps the watchdog's captures within the budget, and reports when it cannot. Confined to the watchdog's thread.
struct CostGuard: Sendable {
    private var budget: CostBudget
    private let limits: StallMonitor.CostLimits
    private let meter: CostMeter
    private let notices: Mailbox<StallNotice>
    private let ledger: WatchdogLedger
    /// The fault that was reported and is not over yet.
    private var reported: StallMonitorError?

    init(
        limits: StallMonitor.CostLimits,
        meter: CostMeter,
        notices: Mailbox<StallNotice>,
        ledger: WatchdogLedger
    ) {
        (self.limits, self.meter, self.notices, self.ledger) = (limits, meter, notices, ledger)
        budget = CostBudget(limits, at: .now)
    }

    /// Updates the budget with what all threads have spent. Called once per look, and when a fault is over.
    mutating func update(at now: MonotonicInstant) {
        meter.spent(.watching)
        let before = budget.account
        let bill = meter.bill
        // At its own time, because the budget has filled since then: the last look may have been long ago.
        budget.charge(bill.spent, at: min(bill.time, now))
        budget.charge(bill.spent, at: now)
        let account = budget.account
        guard account != before else { return }
        ledger.update { $0.budget = account }
        report(account.state)
    }

    /// When to update the budget although there is no look, because the reported fault will be over. Nil without one.
    var recovery: MonotonicInstant? { reported == nil ? nil : budget.fullAt }

    /// Takes the stack of a stall if the budget permits. Otherwise the outcome says why there is none.
    mutating func detection(at now: MonotonicInstant, _ capture: () -> StackOutcome) -> StackOutcome {
        permits(.detection, at: now) ? measure(capture) : .unavailable(refusal)
    }

    /// Takes a sample if the budget permits.
    mutating func sample(at now: MonotonicInstant, _ capture: () -> StackOutcome) -> StackOutcome? {
        permits(.sample, at: now) ? measure(capture) : nil
    }

    /// Takes further stacks that follow from a permitted one, and counts their cost.
    func measure<Stacks>(_ capture: () -> Stacks, costs: (Stacks) -> [CapturedStack.Cost]) -> Stacks {
        meter.measure(capture, costs: costs)
    }

    private func measure(_ capture: () -> StackOutcome) -> StackOutcome {
        meter.measure(capture) { $0.captured.map { [$0.cost] } ?? [] }
    }

    /// Whether a stack may be taken now.
    mutating func permits(_ purpose: CostBudget.Purpose, at now: MonotonicInstant) -> Bool {
        defer { ledger.update { [account = budget.account] in $0.budget = account } }
        return budget.permits(purpose, at: now)
    }

    /// Why a stack may not be taken.
    var refusal: String {
        "No stack was taken: the monitor has used up its budget (\(Self.percent(limits.processorShare)) of a processor; "
            + "watched threads held for \(Self.percent(limits.heldShare)) of the time)."
    }

    private mutating func report(_ state: CostBudget.State) {
        switch state {
        case .stopped where reported == nil:
            let error = StallMonitorError(.capturesStopped, refusal)
            reported = error
            notices.add(.fault(error))
            notices.add(.checkpoint)
        case .full:
            guard let error = reported else { return }
            reported = nil
            notices.add(.mended(error))
            notices.add(.checkpoint)
        default: break
        }
    }

    private static func percent(_ share: Double) -> String {
        let text = String((share * 1_000_000).rounded() / 10_000)
        return (text.hasSuffix(".0") ? String(text.dropLast(2)) : text) + " %"
    }
}
