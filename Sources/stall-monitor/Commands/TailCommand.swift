import ArgumentParser
import StallReading
import StallReports

struct TailCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "tail",
        abstract: "Shows the latest stalls, and follows new ones as they happen.",
        discussion: """
            EXAMPLES
              stall-monitor tail -f
              stall-monitor tail /var/lib/shop/stalls --since 10m
              stall-monitor tail -f --format json | jq -r .culprit.function

            A stall is shown when it is detected, when it becomes more severe, and when it ends; on a terminal the last line \
            shows the longest ongoing stall. With -f the directory may be missing at first, or be removed and created again; \
            Ctrl-C ends it. JSON is one whole report per line.

            Exit code 0: done. 1: the directory, or a file in it, cannot be read. 64: wrong usage. 130: ended by Ctrl-C.
            """
    )

    @OptionGroup var reports: ReportsArgument
    @OptionGroup(title: "Choosing") var selection: Selection

    @Flag(name: .shortAndLong, help: "Keep following new stalls (Ctrl-C ends).")
    var follow = false

    @Option(
        name: .customShort("n", allowingJoined: true),
        parsing: .unconditional,
        help: ArgumentHelp(
            "Show at most this many existing stalls. (default: 10; with --since: all)",
            valueName: "number"
        )
    )
    var number: Int?

    @OptionGroup var colour: ColourOption

    @Option(help: "Text for people, or JSON for programs.")
    var format: OutputFormat = .text

    func validate() throws {
        try reports.refuseAddresses()
        if let number, number < 0 { throw ValidationError("-n is a number from 0") }
    }

    func run() throws {
        var view = TailView(
            selection: selection.stalls,
            limit: number ?? (selection.since == nil ? 10 : .max),
            format: format,
            terminal: colour.terminal()
        )
        if follow {
            try view.follow(reports.paths)
        } else {
            let catalog = try reports.sources.catalogs()
            var failures = catalog.failures
            try view.showPast(catalog, &failures)
            try ReportSources.report(failures)
        }
    }
}

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

    /// Shows the latest stalls up to the limit. Reads no more whole reports than needed.
    mutating func showPast(_ catalog: Catalogs, _ failures: inout [ReportError]) throws {
        names = catalog.faultNames(for: selection)
        let wanted = latest(catalog, searchesAll: true, &failures)
        if wanted.isEmpty, limit > 0, failures.isEmpty {
            Output.note(catalog.nothingFound(by: selection, names: names))
        }
        try wanted.forEach { try show($0) }
    }

    /// The largest number of past stalls to examine one by one, so that following soon begins in a directory with very many.
    private static let reach = 10_000

    /// Returns them oldest first.
    ///
    /// - Parameter searchesAll: Whether older stalls than the newest ones are examined, too: all in one pass, which uses the index.
    private func latest(_ catalog: Catalogs, searchesAll: Bool, _ failures: inout [ReportError]) -> [StallReport] {
        let isWide = searchesAll && !selection.isEverything
        if !isWide || limit < .max {
            var unread: [ReportError] = []
            let wanted = newest(searchesAll && !isWide ? .max : Self.reach, of: catalog, &unread)
            if !isWide || wanted.count >= limit || catalog.stalls.count <= Self.reach {
                failures += unread
                return wanted
            }
        }
        do throws(ReportError) {
            let ids = try catalog.stalls(of: selection, names: names, &failures)
            var wanted: [StallReport] = []
            for id in ids.reversed() where wanted.count < limit {
                if let report = catalog.report(id, &failures), selection.includes(report, names: names) {
                    wanted.append(report)
                }
            }
            return wanted.reversed()
        } catch {
            failures.append(error)
            return []
        }
    }

    /// The latest that match among the newest stalls, which are read one by one until there are enough.
    private func newest(_ count: Int, of catalog: Catalogs, _ failures: inout [ReportError]) -> [StallReport] {
        var wanted: [StallReport] = []
        for id in catalog.stalls.suffix(count).reversed() where wanted.count < limit {
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
    mutating func follow(_ paths: [String]) throws {
        // It starts before anything is read, so that stalls written meanwhile count as new.
        var follower = try TreeFollower(paths, includesPast: false, cancellation: Cancellation())
        try showLatest(ReportSources(paths), &follower)
        try takeOngoing(&follower)
        while true {
            var event = try follower.next(timeout: .zero)
            if event == nil {
                // Shows the longest ongoing stall while nothing new arrives.
                showGrowth()
                event = try follower.next(timeout: .seconds(60))
                growth.clear()
            }
            if let event { try show(event) }
        }
    }

    /// Shows the latest past stalls up to the limit.
    private mutating func showLatest(_ sources: ReportSources, _ follower: inout TreeFollower) throws {
        guard let catalog = try? sources.catalogs() else { return }
        names = catalog.faultNames(for: selection)
        // The follower names the directories that it cannot follow or search.
        let (directories, hidden) = (follower.directories, sources.hidden)
        var failures = catalog.failures.filter { failure in
            !hidden.contains(failure) && directories.contains { failure.path?.hasPrefix($0 + "/") ?? true }
        }
        let searchesAll = selection.since != nil
        let past = latest(catalog, searchesAll: searchesAll, &failures)
        for report in past {
            try show(report)
            if report.state == .ongoing { follower.note(report) }
        }
        Output.note(failures)
        if past.count < limit, !searchesAll, catalog.stalls.count > Self.reach {
            Output.note("searched the latest \(Self.reach) stalls only; 'stall-monitor list' searches all")
        }
    }

    /// Notes which directories are missing. Adds their ongoing stalls that were not shown, so that their end is shown.
    private mutating func takeOngoing(_ follower: inout TreeFollower) throws {
        var present: Set<String> = []
        while let event = try follower.next(timeout: .zero) {
            switch event {
            // The first time it was there already.
            case .event(.directoryAppeared, let directory) where present.insert(directory).inserted: break
            case .event(.report(let report), _) where report.state == .ongoing && shown[report.id] == nil:
                guard selection.includes(report, names: names) else { continue }
                (shown[report.id], growing[report.id]) = (Shown(report), report)
                culprits[report.id] = report.culpritText
            default: try show(event)
            }
        }
        for path in follower.directories where !present.contains(path) {
            Output.note("waiting for the report directory \(path) to appear")
        }
    }

    private mutating func show(_ event: TreeFollower.Event) throws {
        switch event {
        case .event(let event, let directory): try show(event, directory)
        case .failure(let error): Output.note(error)
        }
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
            try Output.write(
                StallLine.lines(report, isFirst: known == nil, width: terminal.width),
                on: terminal
            )
        }
    }

    /// Shows the longest ongoing stall on a terminal, and how many others there are.
    private mutating func showGrowth() {
        guard let longest = growing.values.max(by: { $0.durationNs < $1.durationNs }) else { return }
        let others: StyledText = growing.count == 1 ? "" : "  and \(growing.count - 1) more"
        growth.show(StallLine.growth(of: longest) + others)
    }
}
