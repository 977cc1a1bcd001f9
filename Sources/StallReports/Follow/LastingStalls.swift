/// The stalls a follower has told as ongoing: the only things whose end can come without a file.
struct LastingStalls {
    private var reports: [ULID: StallReport] = [:]
    private var lastLook = ContinuousClock.now

    /// When their processes should be looked at next; nil while there are none.
    var nextLook: ContinuousClock.Instant? { reports.isEmpty ? nil : lastLook + .seconds(1) }

    /// Takes in a report as it now is.
    mutating func note(_ report: StallReport) {
        if reports.isEmpty { lastLook = .now }
        reports[report.id] = report.state == .ongoing ? report : nil
    }

    /// One whose process died, as terminated; nil when it is not yet time to look, or all live.
    ///
    /// - Parameter closed: the report, closed, if its process died; else nil.
    mutating func nextDead(_ closed: (StallReport) -> StallReport?) -> StallReport? {
        guard let nextLook, nextLook <= .now else { return nil }
        for report in reports.values {
            guard let closed = closed(report) else { continue }
            reports[report.id] = nil
            return closed
        }
        lastLook = .now
        return nil
    }
}
