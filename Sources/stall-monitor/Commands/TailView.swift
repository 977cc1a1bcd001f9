import StallReading
import StallReports

/// The output of `tail`: past stalls, new ones, and changes of ongoing ones.
struct TailView {
    let selection: StallSelection
    /// The most past stalls to show.
    let limit: Int
    let format: OutputFormat
    let terminal: Terminal
    /// Aliases of faults, read when `tail` began.
    private var names: FaultNames?
    private var shown: [ULID: Shown] = [:]
    private var culprits: [ULID: String] = [:]
    /// Ongoing stalls, as last reported.
    private var growing: [ULID: StallReport] = [:]
    private var growth = TransientLine()
    private var repeatLines = RepeatLines()

    private struct Shown: Equatable {
        var state: StallState
        var severity: Severity

        init(_ report: StallReport) { (state, severity) = (report.state, report.severity) }
    }

    init(selection: StallSelection, limit: Int, format: OutputFormat, terminal: Terminal) {
        (self.selection, self.limit, self.format) = (selection, limit, format)
        self.terminal = terminal
    }

    /// Shows the latest stalls up to the limit. Reads no more reports than needed.
    mutating func showPast(_ catalog: Catalogs, _ failures: inout [ReportError]) throws {
        names = catalog.faultNames(for: selection)
        let wanted = latest(catalog, reach: .max, &failures)
        if wanted.isEmpty, limit > 0, failures.isEmpty { Output.note(catalog.nothingFound(by: selection)) }
        try wanted.forEach { try show($0) }
    }

    /// Returns them oldest first.
    ///
    /// - Parameter reach: The largest number of stalls to examine, beginning with the newest.
    private func latest(_ catalog: Catalogs, reach: Int, _ failures: inout [ReportError]) -> [StallReport] {
        var wanted: [StallReport] = []
        for id in catalog.stalls.suffix(reach).reversed() where wanted.count < limit {
            do throws(ReportError) {
                let isWanted =
                    selection.isEverything ? true : selection.includes(try catalog.outline(id), names: names)
                if isWanted { wanted.append(try catalog.report(id)) }
            } catch {
                if error.code != .missingFile { failures.append(error) }
            }
        }
        return wanted.reversed()
    }

    /// Never returns normally: it ends with an error or with the process.
    mutating func follow(_ sources: ReportSources) throws {
        for error in sources.hidden { Output.note(error) }
        // Followers start before anything is read, so that stalls written meanwhile count as new.
        var followers = try sources.paths.map { try Follower($0, includesPast: false) }
        try showLatest(sources, followers)
        for next in followers { try takeOngoing(next) }
        var tried = Set(sources.paths + sources.hidden.compactMap(\.path))
        var nextLook = ContinuousClock.now + Self.lookInterval
        while true {
            let now = ContinuousClock.now
            if now >= nextLook {
                followers += Self.added(below: sources.given, &tried)
                // Searching a directory with very many files takes time.
                nextLook = .now + max(Self.lookInterval, (ContinuousClock.now - now) * Self.looks)
            }
            // Shows the longest ongoing stall while nothing new arrives.
            let hasMore = try drain(followers)
            showGrowth()
            guard let first = followers.first else { return }
            // A single directory wakes us by inotify; several are polled in turn.
            let pause = followers.count == 1 ? Self.lookInterval : Self.round
            let event = try first.follower.next(timeout: hasMore ? .zero : pause)
            growth.clear()
            if let event { try show(event, first.path) }
        }
    }

    /// The largest number of past stalls to examine, so that following soon begins in a directory with very many.
    private static let reach = 10_000

    /// Shows the latest past stalls up to the limit.
    private mutating func showLatest(_ sources: ReportSources, _ followers: [Follower]) throws {
        guard let catalog = try? sources.catalogs() else { return }
        names = catalog.faultNames(for: selection)
        var failures = catalog.failures
        let reach = selection.since == nil ? Self.reach : .max
        let past = latest(catalog, reach: reach, &failures)
        for report in past {
            try show(report)
            guard report.state == .ongoing else { continue }
            let file = "\(ReportFileName(.stall, report.id))"
            followers.first { OutputFile.exists("\($0.path)/\(file)") }?.follower.note(report)
        }
        failures.forEach { Output.note($0) }
        if past.count < limit, limit != .max, catalog.stalls.count > reach {
            Output.note("searched the latest \(reach) stalls only; 'stall-monitor list' searches all")
        }
    }

    /// Notes that a directory is missing. Adds its ongoing stalls that were not shown, so that their end is shown.
    private mutating func takeOngoing(_ next: Follower) throws {
        var isThere = false
        while let event = try next.follower.next(timeout: .zero) {
            switch event {
            case .directoryAppeared: isThere = true
            case .report(let report) where report.state == .ongoing && shown[report.id] == nil:
                guard selection.includes(report, names: names) else { continue }
                (shown[report.id], growing[report.id]) = (Shown(report), report)
                culprits[report.id] = report.culpritText
            default: try show(event, next.path)
            }
        }
        if !isThere { Output.note("waiting for the report directory \(next.path) to appear") }
    }

    /// The time between two polls of several directories.
    private static let round = Duration.milliseconds(200)
    /// The time between two searches for new directories below the given ones.
    private static let lookInterval = Duration.seconds(3)
    /// The pause between two searches is at least this many times as long as a search.
    private static let looks = 1000
    /// The largest number of events of one directory before the next one is polled.
    private static let turn = 1000

    /// Shows what is new in each directory without waiting.
    ///
    /// - Returns: Whether a directory may have more events.
    private mutating func drain(_ followers: [Follower]) throws -> Bool {
        var hasMore = false
        for next in followers {
            var count = 0
            while count < Self.turn, let event = try next.follower.next(timeout: .zero) {
                try show(event, next.path)
                count += 1
            }
            hasMore = hasMore || count == Self.turn
        }
        return hasMore
    }

    /// Followers for new directories. A directory that cannot be followed or read is reported once.
    private static func added(below given: [String], _ tried: inout Set<String>) -> [Follower] {
        var found: [Follower] = []
        let sources = ReportSources(given)
        for path in sources.paths where tried.insert(path).inserted {
            do throws(ReportError) { found.append(try Follower(path, includesPast: true)) } catch { Output.note(error) }
        }
        for error in sources.hidden where error.path.map({ tried.insert($0).inserted }) ?? true { Output.note(error) }
        return found
    }

    private mutating func show(_ event: ReportFollower.Event, _ path: String) throws {
        forgetOldest()
        switch event {
        case .report(let report), .grown(let report): if selection.includes(report, names: names) { try show(report) }
        case .failure(let error): Output.note(error)
        case .directoryAppeared: Output.note("the report directory \(path) has appeared")
        case .directoryGone:
            growing = [:]
            Output.note("the report directory \(path) is gone; waiting for it to return")
        case .run(let run):
            guard format == .text, let run = run.chosen(by: selection, names: names) else { break }
            learnCulprits(of: run, path)
            try Output.write(repeatLines.lines(run, culprits: culprits), on: terminal)
        }
    }

    /// Learns the culprits of faults whose report was not shown.
    private mutating func learnCulprits(of run: RunRecord, _ path: String) {
        for fault in run.repeated ?? [] {
            guard let report = fault.repeats.report, culprits[report] == nil else { continue }
            let known = try? ReportReader(path: path).report(report)
            culprits[report] = known?.culpritText ?? "\(fault.fingerprint)"
        }
    }

    /// The largest number of reports remembered: `tail -f` may run for months.
    private static let remembered = 100_000

    /// Forgets the older half if there are too many. Ids are sorted by time, and a report is hardly changed long after its stall.
    private mutating func forgetOldest() {
        guard max(shown.count, culprits.count) > Self.remembered else { return }
        let ids = Set(shown.keys).union(culprits.keys).sorted()
        let oldest = ids[ids.count / 2]
        shown = shown.filter { $0.key >= oldest }
        culprits = culprits.filter { $0.key >= oldest }
    }

    /// Shows a report unless only its length has changed; a higher severity counts as a change.
    private mutating func show(_ report: StallReport) throws {
        culprits[report.id] = report.culpritText
        growing[report.id] = report.state == .ongoing ? report : nil
        let known = shown.updateValue(Shown(report), forKey: report.id)
        guard known != Shown(report) else { return }
        switch format {
        case .json: try Output.writeJSON(report)
        case .text:
            let lines = StallLine.lines(report, isFirst: known == nil)
            try Output.write(lines.flatMap { $0.wrapped(to: terminal.width, hanging: 4) }, on: terminal)
        }
    }

    /// Shows the longest ongoing stall on a terminal, and how many others there are.
    private mutating func showGrowth() {
        guard let longest = growing.values.max(by: { $0.durationNs < $1.durationNs }) else { return }
        let others: StyledText = growing.count == 1 ? "" : "  and \(growing.count - 1) more"
        growth.show(StallLine.growth(of: longest) + others)
    }
}

/// A followed directory. A class, because a follower cannot be copied into an array.
private final class Follower {
    let path: String
    var follower: ReportFollower

    /// - Parameter includesPast: whether existing reports count as new.
    init(_ path: String, includesPast: Bool) throws(ReportError) {
        self.path = path
        follower = try ReportFollower(path: path, includesPast: includesPast)
    }
}
