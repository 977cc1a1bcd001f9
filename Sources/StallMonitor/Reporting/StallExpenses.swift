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

    /// Notes on a report that is about to be written what it cost so far.
    mutating func note(on report: inout StallReport, _ number: Int) {
        guard var expense = open[number] else { return }
        let now = ThreadClock.nanoseconds
        expense.reporting &+= now &- start
        start = now
        open[number] = report.state == .ongoing ? expense : nil
        let watching = meter.totals.watching
        report.monitor.watchdogCPUNs = Int64(clamping: watching &- min(watching, expense.watchingBefore))
        report.monitor.reporterCPUNs = Int64(clamping: expense.reporting)
        let state = ledger.snapshot.budget?.state
        report.monitor.budget = state == .full ? nil : state?.rawValue
    }

    /// Forgets a stall that no report tells of any more.
    mutating func drop(_ number: Int) { open[number] = nil }

    /// Names were found for a report.
    func named(_ report: StallReport) {
        meter.named(in: report.monitor.symbolicationNs)
    }

    /// A batch of notices is done.
    func settle() {
        meter.spent(.reporting)
    }
}
