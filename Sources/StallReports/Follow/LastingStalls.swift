/// The stalls a follower has told as ongoing: the only things of which there can be news without a file.
struct LastingStalls {
    private var reports: [ULID: StallReport] = [:]
    private var lastLook = ContinuousClock.now
    /// Those that the present look has still to come to.
    private var due: [ULID] = []

    /// When they should be looked at next; nil while there are none.
    var nextLook: ContinuousClock.Instant? {
        if !due.isEmpty { return .now }
        return reports.isEmpty ? nil : lastLook + .seconds(1)
    }

    /// Takes in a report as it now is.
    mutating func note(_ report: StallReport) {
        if reports.isEmpty { lastLook = .now }
        reports[report.id] = report.state == .ongoing ? report : nil
    }

    /// One that has grown, or whose process died; nil when it is not yet time to look, or there is no news.
    ///
    /// - Parameter look: the report as it is known now; nil if its process closed it.
    mutating func next(_ look: (StallReport) -> StallReport?) -> ReportFollower.Event? {
        if due.isEmpty, let nextLook, nextLook <= .now {
            due = reports.keys.sorted(by: >)
            lastLook = .now
        }
        while let id = due.popLast() {
            guard let known = reports[id] else { continue }
            guard let report = look(known) else {
                // What its process closed comes with its file, if that is there still.
                reports[id] = nil
                continue
            }
            note(report)
            if report.state != .ongoing { return .report(report) }
            if report.durationNs > known.durationNs { return .grown(report) }
        }
        return nil
    }
}
