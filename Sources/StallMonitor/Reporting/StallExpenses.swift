import StallDiagnosis
import StallReports

/// What each stall under way has cost, as far as its report tells it. Confined to the reporter's thread.
struct StallExpenses {
    private struct Expense {
        /// Of the watchdog's thread, when the loop was first seen to stand still.
        var watchingBefore: UInt64
        var reporting: UInt64 = 0
    }

    private var open: [Int: Expense] = [:]
    private let meter: CostMeter
    private let ledger: WatchdogLedger
    private var start: UInt64 = 0

    init(meter: CostMeter, ledger: WatchdogLedger) {
        (self.meter, self.ledger) = (meter, ledger)
    }

    /// The reporter turns to a notice.
    mutating func take(_ notice: StallNotice) {
        start = ThreadClock.nanoseconds
        if case .began(let observation) = notice {
            open[observation.number] = Expense(watchingBefore: observation.watchdogCPU ?? meter.totals.watching)
        }
    }

    /// What a stall has cost so far, for a report that is about to be written.
    mutating func cost(of stall: StallCase) -> StallReport.MonitorCost {
        let number = stall.observation.number
        var cost = stall.stacks.cost
        guard var expense = open[number] else { return cost }
        let now = ThreadClock.nanoseconds
        expense.reporting &+= now &- start
        start = now
        open[number] = stall.state == .ongoing ? expense : nil
        let watching = meter.totals.watching
        cost.watchdogCPUNs = Int64(clamping: watching &- min(watching, expense.watchingBefore))
        cost.reporterCPUNs = Int64(clamping: expense.reporting)
        let state = ledger.snapshot.budget?.state
        cost.budget = state == .full ? nil : state?.rawValue
        return cost
    }

    /// Forgets a stall that no report tells of any more.
    mutating func drop(_ number: Int) { open[number] = nil }

    /// Names were found for a report.
    func named(_ stacks: CaseStacks) {
        meter.named(in: stacks.cost.symbolicationNs)
    }

    /// A batch of notices is done.
    func settle() {
        meter.spent(.reporting)
    }
}
