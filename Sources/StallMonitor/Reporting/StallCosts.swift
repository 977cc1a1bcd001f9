import StallDiagnosis
import StallReports

/// The cost of each ongoing stall to the monitor, for its report. Confined to the reporter's thread.
struct StallCosts {
    private struct Cost {
        /// CPU time of the watchdog's thread when the loop was first found not to move.
        var watchingBefore: UInt64
        var reporting: UInt64 = 0
    }

    private var open: [Int: Cost] = [:]
    private let meter: CostMeter
    private let ledger: WatchdogLedger
    private var start: UInt64 = 0

    init(meter: CostMeter, ledger: WatchdogLedger) {
        (self.meter, self.ledger) = (meter, ledger)
    }

    /// Notes that the reporter begins to handle a notice.
    mutating func take(_ notice: StallNotice) {
        start = ThreadClock.nanoseconds
        if case .began(let observation) = notice {
            open[observation.number] = Cost(watchingBefore: observation.watchdogCPU ?? meter.totals.watching)
        }
    }

    /// What a stall has cost so far, for a report that is about to be written.
    mutating func cost(of stall: StallCase) -> StallReport.MonitorCost {
        let number = stall.observation.number
        var cost = stall.stacks.cost
        guard var present = open[number] else { return cost }
        let now = ThreadClock.nanoseconds
        present.reporting &+= now &- start
        start = now
        open[number] = stall.state == .ongoing ? present : nil
        let watching = meter.totals.watching
        cost.watchdogCPUNs = Int64(clamping: watching &- min(watching, present.watchingBefore))
        cost.reporterCPUNs = Int64(clamping: present.reporting)
        let state = ledger.snapshot.budget?.state
        cost.budget = state == .full ? nil : state?.rawValue
        return cost
    }

    /// Forgets a stall whose report is finished.
    mutating func drop(_ number: Int) { open[number] = nil }

    /// Adds the cost of finding names.
    func named(_ stacks: CaseStacks) {
        meter.named(in: stacks.cost.symbolicationNs)
    }

    /// Notes that a batch of notices was handled.
    func settle() {
        meter.spent(.reporting)
    }
}
