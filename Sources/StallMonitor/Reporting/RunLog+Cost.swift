import RunLoopKit
import StallReports

extension RunLog {
    /// What the monitor cost, how writing went, and what became of the budget.
    func addOwnCost(to record: inout RunRecord, _ publisher: ReportPublisher, _ counts: WatchdogLedger.Counts) {
        let totals = meter.totals
        record.cost.watchdogCPUNs = Int64(clamping: totals.watching)
        record.cost.heldNs = Int64(clamping: totals.held)
        record.cost.reporterCPUNs = Int64(clamping: totals.reporting)
        record.cost.writerCPUNs = Int64(clamping: totals.writing)
        record.cost.captureCPUNs = Int64(clamping: totals.capturing)
        record.cost.unwindNs = Int64(clamping: totals.unwinding)
        record.cost.symbolicationNs = Int64(clamping: totals.naming)
        record.cost.copiedBytes = Int64(clamping: totals.copiedBytes)
        record.writing = publisher.record
        let dropped = notices.dropped
        record.writing?.dropped = dropped.mapValues(Int64.init)
        record.writing?.noticePeakBytes = Int64(notices.peakBytes)
        record.lostWrites += Int64(dropped["stalls"] ?? 0)
        record.budget = counts.budget.map { RunRecord.Budget($0.upToDate(at: .now)) }
    }
}

extension RunRecord.Budget {
    fileprivate init(_ account: CostBudget.Account) {
        self.init(
            state: account.state.rawValue,
            since: WallClockAnchor().time(of: account.since),
            stops: Int64(account.stops),
            thinnedNs: account.thinned.nanoseconds,
            stoppedNs: account.stopped.nanoseconds,
            skippedSamples: Int64(account.skippedSamples),
            skippedStacks: Int64(account.skippedStacks)
        )
    }
}
