import StallReports

/// What `tail` shows of the stalls it comes to know.
struct TailView {
    let selection: StallSelection
    /// Most stalls of the past.
    let limit: Int
    let format: OutputFormat
    let terminal: Terminal
    /// What else faults were known by when it began.
    private var names: FaultNames?
    private var shown: [ULID: Shown] = [:]
    private var culprits: [ULID: String] = [:]
    /// Under way, each as long as it is known to be.
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

    /// The latest stalls, as many as are wanted. Reads no more reports than it takes to find them.
    mutating func showPast(_ catalog: Catalogs, _ failures: inout [ReportError]) throws {
        names = catalog.faultNames(for: selection)
        var wanted: [ULID] = []
        for id in catalog.stalls.reversed() where wanted.count < limit {
            do throws(ReportError) {
                let stall = try catalog.outline(id)
                if selection.includes(stall, names: names) { wanted.append(id) }
            } catch {
                if error.code != .missingFile { failures.append(error) }
            }
        }
        if wanted.isEmpty, limit > 0, failures.isEmpty { Output.note(selection.nothingFound) }
        for id in wanted.reversed() {
            let report: StallReport
            do throws(ReportError) {
                report = try catalog.report(id)
            } catch {
                if error.code != .missingFile { failures.append(error) }
                continue
            }
            try show(report)
        }
    }

    /// Never returns: ends by an error, or with the process.
    mutating func follow(_ sources: ReportSources) throws {
        names = (try? sources.catalogs())?.faultNames(for: selection)
        for error in sources.hidden { Output.note(error) }
        var followers = try sources.paths.map { try Follower($0) }
        var past: [StallReport] = []
        for next in followers { try readPast(&next.follower, next.path, &past) }
        if followers.count > 1 { past.sort { $0.id < $1.id } }
        keepLatest(&past)
        for report in past { try show(report) }
        var tried = Set(sources.paths + sources.hidden.compactMap(\.path))
        var lastLook = ContinuousClock.now
        while true {
            if ContinuousClock.now - lastLook >= Self.lookInterval {
                followers += Self.added(below: sources.given, &tried)
                lastLook = .now
            }
            // The growth of what lasts is on the screen while nobody has news.
            let hasMore = try drain(followers)
            showGrowth()
            guard let first = followers.first else { return }
            // One directory wakes us itself; several are looked at in turn.
            let pause = followers.count == 1 ? Self.lookInterval : Self.round
            let event = try CommandFailure.wrapping { () throws(ReportError) in
                try first.follower.next(timeout: hasMore ? .zero : pause)
            }
            growth.clear()
            if let event { try show(event, first.path) }
        }
    }

    /// Between two looks at several directories.
    private static let round = Duration.milliseconds(200)
    /// Between two looks for directories that have come below the given ones.
    private static let lookInterval = Duration.seconds(3)
    /// Events of one directory before the next has its turn.
    private static let turn = 1000

    /// Shows what is new in each directory, without a wait.
    ///
    /// - Returns: whether one may have more.
    private mutating func drain(_ followers: [Follower]) throws -> Bool {
        var hasMore = false
        for next in followers {
            var count = 0
            while count < Self.turn,
                let event = try CommandFailure.wrapping({ () throws(ReportError) in
                    try next.follower.next(timeout: .zero)
                })
            {
                try show(event, next.path)
                count += 1
            }
            hasMore = hasMore || count == Self.turn
        }
        return hasMore
    }

    /// Followers of directories that were not there before. One that cannot be followed, or looked into, is told of once.
    private static func added(below given: [String], _ tried: inout Set<String>) -> [Follower] {
        var found: [Follower] = []
        let sources = ReportSources(given)
        for path in sources.paths where tried.insert(path).inserted {
            do { found.append(try Follower(path)) } catch { Output.note("\(error)") }
        }
        for error in sources.hidden where error.path.map({ tried.insert($0).inserted }) ?? true { Output.note(error) }
        return found
    }

    /// Stalls that are there at the start: with them the limit holds.
    private mutating func readPast(
        _ follower: inout ReportFollower,
        _ path: String,
        _ past: inout [StallReport]
    ) throws {
        var isThere = false
        while let event = try CommandFailure.wrapping({ () throws(ReportError) in try follower.next(timeout: .zero)
        }) {
            switch event {
            case .directoryAppeared: isThere = true
            case .report(let report):
                guard selection.includes(report, names: names) else { continue }
                // There may be many: none is kept that need not be.
                if limit == .max { try show(report) } else { past.append(report) }
                if past.count / 2 > limit { keepLatest(&past) }
            default: try show(event, path)
            }
        }
        if !isThere { Output.note("waiting for the report directory \(path) to appear") }
    }

    /// Of those before them it is known how they were.
    private mutating func keepLatest(_ past: inout [StallReport]) {
        for report in past.dropLast(limit) { shown[report.id] = Shown(report) }
        past = Array(past.suffix(limit))
    }

    private mutating func show(_ event: ReportFollower.Event, _ path: String) throws {
        switch event {
        case .report(let report), .grown(let report): if selection.includes(report, names: names) { try show(report) }
        case .failure(let error): Output.note(error)
        case .directoryAppeared: Output.note("the report directory \(path) has appeared")
        case .directoryGone:
            growing = [:]
            Output.note("the report directory \(path) is gone; waiting for it to come again")
        case .run(let run):
            guard format == .text, let run = run.chosen(by: selection, names: names) else { break }
            try Output.write(repeatLines.lines(run, culprits: culprits), on: terminal)
        }
    }

    /// A report that only grew since it was shown is shown again when it has become more severe.
    private mutating func show(_ report: StallReport) throws {
        culprits[report.id] = report.culpritText
        growing[report.id] = report.state == .ongoing ? report : nil
        let known = shown.updateValue(Shown(report), forKey: report.id)
        guard known != Shown(report) else { return }
        switch format {
        case .json: try Output.write(JSONText.of(report) + "\n")
        case .text:
            let lines = StallLine.lines(report, isFirst: known == nil)
            try Output.write(lines.flatMap { $0.wrapped(to: terminal.width, hanging: 4) }, on: terminal)
        }
    }

    /// What is under way, on a terminal: the longest, and how many others.
    private mutating func showGrowth() {
        guard let longest = growing.values.max(by: { $0.durationNs < $1.durationNs }) else { return }
        let others: StyledText = growing.count == 1 ? "" : "  and \(growing.count - 1) more"
        growth.show(StallLine.growth(of: longest) + others)
    }
}

/// One directory that is followed. A follower cannot be copied, and so stands in no array by itself.
private final class Follower {
    let path: String
    var follower: ReportFollower

    init(_ path: String) throws(CommandFailure) {
        self.path = path
        follower = try CommandFailure.wrapping { () throws(ReportError) in try ReportFollower(path: path) }
    }
}
