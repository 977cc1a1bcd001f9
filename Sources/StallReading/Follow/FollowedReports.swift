import StallReports

/// The events that a follower has still to return, and the version of each file that it returned.
struct CatchUp {
    enum Step {
        case deliver(ReportFollower.Event)
        /// - Parameters:
        ///   - mayBeOld: The file was found in a listing of the directory.
        ///   - isRepeated: It was postponed.
        case read(ReportFileName, mayBeOld: Bool = false, isRepeated: Bool = false)
    }

    private var steps: [Step] = []
    private var position = 0
    private var delivered: [ReportFileName: FileStatus] = [:]
    /// The files that could not be read for a reason that may pass, and whether they may be old.
    private var postponed: [ReportFileName: Bool] = [:]
    /// Whether the directory could not be listed for such a reason.
    private var postponesListing = false
    private var pause = CatchUp.firstPause
    /// When to try again what was postponed. Nil if there is nothing.
    private(set) var nextTry: ContinuousClock.Instant?

    /// The pause doubles with each attempt.
    private static let firstPause = Duration.seconds(1)
    private static let longestPause = Duration.seconds(60)

    mutating func deliver(_ event: ReportFollower.Event) { steps.append(.deliver(event)) }

    mutating func read(_ names: [ReportFileName]) { steps += names.map { .read($0) } }

    mutating func next() -> Step? {
        guard position < steps.count else {
            (steps, position) = ([], 0)
            if nextTry == nil { pause = Self.firstPause }
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

    mutating func forget(_ name: ReportFileName) { (delivered[name], postponed[name]) = (nil, nil) }

    /// The file counts as not returned, and is read again later.
    mutating func postpone(_ name: ReportFileName, mayBeOld: Bool) {
        delivered[name] = nil
        postponed[name] = mayBeOld
        nextTry = nextTry ?? .now + pause
    }

    mutating func postponeListing() {
        postponesListing = true
        nextTry = nextTry ?? .now + pause
    }

    /// Reads again what was postponed, if it is time for that.
    ///
    /// - Returns: Whether the directory is to be listed again, too.
    mutating func retryIfDue() -> Bool {
        guard let due = nextTry, due <= .now else { return false }
        steps += postponed.sorted { $0.key < $1.key }.map {
            .read($0.key, mayBeOld: $0.value, isRepeated: true)
        }
        pause = min(pause * 2, Self.longestPause)
        defer { (nextTry, postponed, postponesListing) = (nil, [:], false) }
        return postponesListing
    }

    /// Reads all of these files, and forgets the files that no longer exist.
    mutating func readAll(_ names: [ReportFileName]) {
        let present = Set(names)
        delivered = delivered.filter { present.contains($0.key) }
        steps += names.map { .read($0, mayBeOld: true) }
    }
}

/// The stalls that a follower returned as ongoing. Only these can change without a change of a file.
struct OngoingStalls {
    private var reports: [ULID: StallReport] = [:]
    private var lastCheck = ContinuousClock.now
    /// The stalls that the present check has not reached yet.
    private var due: [ULID] = []

    /// When they should be checked next. Nil if there are none.
    var nextCheck: ContinuousClock.Instant? {
        if !due.isEmpty { return .now }
        return reports.isEmpty ? nil : lastCheck + .seconds(1)
    }

    /// Adds or updates a report. Removes it if the stall has ended.
    mutating func note(_ report: StallReport) {
        if reports.isEmpty { lastCheck = .now }
        reports[report.id] = report.state == .ongoing ? report : nil
    }

    /// A stall that has become longer, or whose process died. Nil if it is too early for a check, or if nothing has changed.
    ///
    /// - Parameter presentState: Reads the present state of a report. Returns nil if its process has closed it.
    mutating func next(_ presentState: (StallReport) -> StallReport?) -> ReportFollower.Event? {
        if due.isEmpty, let nextCheck, nextCheck <= .now {
            due = reports.keys.sorted(by: >)
            lastCheck = .now
        }
        while let id = due.popLast() {
            guard let known = reports[id] else { continue }
            guard let report = presentState(known) else {
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
