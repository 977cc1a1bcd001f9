import StallReports

/// The events that a follower has still to return, and the version of each file that it returned.
struct CatchUp {
    enum Step {
        case deliver(ReportFollower.Event)
        case read(ReportFileName)
        /// A file found in a listing of the directory: it may be old.
        case find(ReportFileName)
    }

    private var steps: [Step] = []
    private var position = 0
    private var delivered: [ReportFileName: FileStatus] = [:]

    mutating func deliver(_ event: ReportFollower.Event) { steps.append(.deliver(event)) }

    mutating func read(_ names: [ReportFileName]) { steps += names.map { .read($0) } }

    mutating func next() -> Step? {
        guard position < steps.count else {
            (steps, position) = ([], 0)
            return nil
        }
        position += 1
        return steps[position - 1]
    }

    /// Whether this version of the file has not been returned yet. From now on it counts as returned.
    mutating func isNewVersion(_ name: ReportFileName, _ status: FileStatus) -> Bool {
        delivered.updateValue(status, forKey: name) != status
    }

    func hasDelivered(_ name: ReportFileName) -> Bool { delivered[name] != nil }

    mutating func forget(_ name: ReportFileName) { delivered[name] = nil }

    /// Reads all of these files, and forgets the files that no longer exist.
    mutating func readAll(_ names: [ReportFileName]) {
        let present = Set(names)
        delivered = delivered.filter { present.contains($0.key) }
        steps += names.map { .find($0) }
    }
}

/// The stalls that a follower returned as ongoing. Only these can change without a change of a file.
struct OngoingStalls {
    private var reports: [ULID: StallReport] = [:]
    private var lastLook = ContinuousClock.now
    /// The stalls that the present check has not reached yet.
    private var due: [ULID] = []

    /// When they should be checked next. Nil if there are none.
    var nextLook: ContinuousClock.Instant? {
        if !due.isEmpty { return .now }
        return reports.isEmpty ? nil : lastLook + .seconds(1)
    }

    /// Adds or updates a report. Removes it if the stall has ended.
    mutating func note(_ report: StallReport) {
        if reports.isEmpty { lastLook = .now }
        reports[report.id] = report.state == .ongoing ? report : nil
    }

    /// A stall that has become longer, or whose process died. Nil if it is too early for a check, or if nothing has changed.
    ///
    /// - Parameter look: Reads the present state of a report. Returns nil if its process has closed it.
    mutating func next(_ look: (StallReport) -> StallReport?) -> ReportFollower.Event? {
        if due.isEmpty, let nextLook, nextLook <= .now {
            due = reports.keys.sorted(by: >)
            lastLook = .now
        }
        while let id = due.popLast() {
            guard let known = reports[id] else { continue }
            guard let report = look(known) else {
                // Its process has written the final report, which is a separate event.
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
