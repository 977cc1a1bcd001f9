public import StallReports

/// Judges what a report directory holds by a budget. A pure function.
public enum Gate {
    /// Within budget only if everything that must be known is known: readable reports, all of them, and a monitor that watched.
    public static func judge(
        _ contents: Result<ReportReader.Contents, ReportError>,
        by budget: Budget
    ) -> GateResult {
        switch contents {
        case .failure(let error):
            return GateResult(
                budget: budget,
                doubts: [.directory(error)],
                counted: [],
                allowed: [],
                runs: [],
                names: .init([])
            )
        case .success(let contents):
            let names = FaultNames(contents.reports)
            let isAllowed = { (report: StallReport) in budget.allows(report.fingerprint, names) }
            let counted = contents.reports.filter { !isAllowed($0) }
            return GateResult(
                budget: budget,
                doubts: doubts(about: contents, budget)
                    + counted.filter { isOpen($0, budget) }.map { .underWay($0.id) },
                counted: counted,
                allowed: contents.reports.filter(isAllowed),
                runs: contents.runs,
                names: names
            )
        }
    }

    private static func doubts(about contents: ReportReader.Contents, _ budget: Budget) -> [Doubt] {
        let fingerprints = Set(contents.reports.map(\.fingerprint))
        let ambiguous = budget.allowed.filter { prefix in fingerprints.count(where: prefix.matches) > 1 }
        return contents.failures.map { .file($0) }
            + (contents.runs.isEmpty ? [.noRun] : [])
            + contents.runs.flatMap { doubts(about: $0, contents.reports) }
            + ambiguous.map { .ambiguous($0) }
    }

    /// Whether it has still to become too long, or not.
    private static func isOpen(_ report: StallReport, _ budget: Budget) -> Bool {
        guard let limit = budget.maxDurationNs else { return false }
        return report.state == .ongoing && report.longestNs <= limit
    }

    /// Under a second (in nanoseconds) nobody has watched: it is what the record of a monitor says that started, and could then
    /// write no more.
    private static let leastWatched: Int64 = 1_000_000_000

    private static func doubts(about run: RunRecord, _ reports: [StallReport]) -> [Doubt] {
        var doubts: [Doubt] = []
        if run.watchedTotalNs < leastWatched {
            doubts.append(run.state == .running ? .justStarted(run: run.id) : .watchedNothing(run: run.id))
        }
        if run.disarmed != nil { doubts.append(.disarmed(run: run.id)) }
        let missing = missingReports(of: run, among: reports)
        if missing > 0 { doubts.append(.missingReports(run: run.id, count: missing)) }
        let unaccounted = unaccountedStalls(of: run, among: reports)
        if unaccounted > 0 { doubts.append(.unaccounted(run: run.id, count: unaccounted)) }
        return doubts
    }

    /// Stalls the run counted, less the suppressed ones and those whose report is here. While it runs, counts and files may be
    /// a moment apart, and only writes known to be lost, or refused so far, are missing.
    private static func missingReports(of run: RunRecord, among reports: [StallReport]) -> Int64 {
        let waiting = max(0, run.writing?.waiting ?? 0)
        guard run.state != .running else { return [max(0, run.lostWrites), waiting].saturatingSum() }
        // Those that were dropped before anybody could count them by kind.
        let dropped = max(0, run.writing?.dropped["stalls"] ?? 0)
        let stalls = run.stalls.values.map { max(0, $0) }.saturatingSum()
        let reported = max(0, stalls - max(0, run.suppressed))
        let missing = max(waiting, reported - Int64(reports.count { $0.run == run.id }))
        return [max(0, missing), dropped].saturatingSum()
    }

    /// Stalls that were only counted, less those that a report or the run record tells of by their fault: nobody knows how long these
    /// lasted, or whether they are allowed. A run keeps the counts of a limited number of faults.
    private static func unaccountedStalls(of run: RunRecord, among reports: [StallReport]) -> Int64 {
        guard run.suppressed > 0 else { return 0 }
        let recorded = (run.repeated ?? []).map { Int64(clamping: max(0, $0.repeats.count)) }
        let reported = reports.lazy.filter { $0.run == run.id }.map { Int64(clamping: max(0, $0.suppressed)) }
        return max(0, run.suppressed - reported.saturatingSum(from: recorded.saturatingSum()))
    }
}
