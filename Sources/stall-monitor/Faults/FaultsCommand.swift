import ArgumentParser
import StallReading
import StallReports

struct FaultsCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "faults",
        abstract: "Groups stalls by fault: which costs most, since when, and where.",
        discussion: """
            EXAMPLES
              stall-monitor faults
              stall-monitor faults /var/lib/stalls --since yesterday --sort worst
              stall-monitor faults http://stalls:4319 --service shop --since 7d
              stall-monitor faults --since yesterday --flame
              stall-monitor faults --service shop --format json | jq '.faults[0]'

            A fault is all stalls with one fingerprint: of one kind in the same code, on any host and in any build. Stalls that were \
            only counted are included: with --since and --until, as many as if they had come evenly; with --verdict and --function, if the \
            reports of their fault all match. SHARE is the share of the watched time of all loops. TREND compares the two halves of the \
            chosen time; it says rising or falling only if chance is an unlikely explanation, and too few below four stalls. \
            'stall-monitor show FAULT' shows a fault's page.

            Exit code 0: done. 1: a directory, a file in it, or a part of a collector's store cannot be read; the others are shown. \
            64: wrong usage.
            """
    )

    @OptionGroup var reports: ReportsArgument
    @OptionGroup(title: "Choosing") var selection: Selection

    @Option(
        help: ArgumentHelp(
            "Sort by total blocked time, number of stalls, longest stall, or last seen; the greatest first.",
            valueName: "order"
        )
    )
    var sort: FaultOrder = .total

    @Option(
        name: .customShort("n", allowingJoined: true),
        parsing: .unconditional,
        help: ArgumentHelp("Show at most this many.", valueName: "number")
    )
    var number: Int?

    @Flag(help: "Show one flame graph of all these stalls in place of the table.")
    var flame = false

    @OptionGroup var screen: ScreenOptions

    @Option(help: "Text for people, or JSON for programs.")
    var format: OutputFormat = .text

    func validate() throws {
        if let number, number < 0 { throw ValidationError("-n is a number from 0") }
        if flame, number != nil { throw ValidationError("--flame shows all chosen stalls: -n is for the table") }
        if flame, format == .json { throw ValidationError("--flame is text; 'export' writes flame graphs to files") }
    }

    func run() throws {
        if flame { return try showFlame() }
        let found = try find()
        var document = found.document
        document.faults = Array(document.faults.prefix(number ?? .max))
        switch format {
        case .json: try Output.writeJSON(document)
        case .text:
            if found.document.faults.isEmpty {
                Output.note(found.emptyNote)
            } else {
                try write(document.faults, found.document.faults)
            }
            if let note = found.lostNote { Output.note(note) }
        }
        if found.isCut {
            let limit = CollectorCopy.faultLimit
            Output.note("the collector sends at most \(limit) faults, and may have more: --since chooses fewer")
        }
        try ReportSources.report(found.failures)
        if found.isPartial {
            Output.note("a part of the collector's store does not answer: these are the faults of the rest")
            throw ExitCode.failure
        }
    }

    private struct Found {
        var document: FaultDocument
        var emptyNote: String
        /// Nil if no report is missing, or for a collector.
        var lostNote: String?
        var failures: [ReportError] = []
        /// Whether a part of a collector's store did not answer.
        var isPartial = false
        /// Whether a collector may have more faults.
        var isCut = false
    }

    private func find() throws -> Found {
        let chosen = selection.stalls
        if let address = reports.onlyAddress,
            let (document, isPartial) = try CollectorCopy.faults(at: address, chosen, by: sort)
        {
            var found = Found(document: document, emptyNote: chosen.nothingFound, isPartial: isPartial)
            found.isCut = document.faults.count >= CollectorCopy.faultLimit
            return found
        }
        let sources = try reports.sources(covering: chosen)
        let survey = try FaultSurvey(sources.catalogs(), chosen)
        return Found(
            document: survey.document(survey.faults(by: sort)),
            emptyNote: survey.emptyNote,
            lostNote: survey.lostNote,
            failures: survey.failures
        )
    }

    /// The largest number of reports to merge: the latest ones. Each is read completely.
    private static let flameLimit = 10_000

    private func showFlame() throws {
        // Not refused: it may be from the file of defaults.
        if sort != .total { Output.note("--sort \(sort.rawValue) is for the table: a flame graph is of all faults") }
        let chosen = selection.stalls
        let sources = try reports.sources(covering: chosen)
        let catalogs = try sources.catalogs()
        let names = catalogs.faultNames(for: chosen)
        var (tree, count, failures) = (StackTree(), 0, catalogs.failures)
        let ids = try catalogs.stalls(of: chosen, names: names, &failures)
        for id in ids.reversed() where count < Self.flameLimit {
            guard let report = catalogs.report(id, &failures), chosen.includes(report, names: names) else { continue }
            tree.add(report)
            count += 1
        }
        if count == 0 {
            let nothing = failures.isEmpty ? catalogs.nothingFound(by: chosen, names: names) : nil
            Output.note(nothing ?? "no stalls in what can be read")
        } else {
            let terminal = screen.terminal()
            let style = PageStyle(hasColours: terminal.hasColours, width: terminal.width)
            let chart = FlameChart(tree: tree, title: quantity(count, "stall"), style: style)
            try screen.write(chart.lines, on: terminal)
        }
        if count == Self.flameLimit {
            Output.note("these are the latest \(count) stalls; --since and others choose fewer")
        }
        try ReportSources.report(failures)
    }

    private func write(_ shown: [Fault], _ all: [Fault]) throws {
        let terminal = screen.terminal()
        let names = ShortFingerprints(all.lazy.map(\.fingerprint))
        try screen.write(
            FaultTable(faults: shown, names: names, now: .now(), width: terminal.width).lines,
            on: terminal
        )
        let left = all.count - shown.count
        if left > 0 { Output.note("\(quantity(left, "more fault")); raise -n to see all") }
    }
}

/// The faults of report directories, read one stall at a time.
struct FaultSurvey {
    private let selection: StallSelection
    /// Aliases of faults, also from reports that do not match. Nil if the selection names no fault.
    private let names: FaultNames?
    private let tally: FaultTally
    /// What the directories contain, whether it matches or not.
    private let contents: (stalls: Int, runs: [RunRecord])
    /// What could not be read.
    let failures: [ReportError]
    private let watchedNs: Int64

    /// - Parameters:
    ///   - names: Aliases of faults. With them, stalls of other faults than the chosen ones are left out at once. Finding them
    ///     takes one more pass over all stalls.
    ///   - each: Called with each stall that may match; with names, it does match.
    init(
        _ catalogs: Catalogs,
        _ selection: StallSelection,
        names: FaultNames? = nil,
        each: (StallOutline) -> Void = { _ in }
    ) throws(ReportError) {
        let (runs, unreadable) = catalogs.runs()
        let chosen = runs.filter { selection.includes($0) }
        var counted = chosen.flatMap { run in
            (run.repeated ?? []).filter { selection.includes(serviceOf: $0, in: run) }.map { (fault: $0, run: run) }
        }
        let byID = Dictionary(chosen.map { ($0.id, $0) }) { first, _ in first }
        var failures = catalogs.failures + unreadable
        // A report's name contains the time at which its stall began. If there is none, stalls may have been counted.
        let start =
            selection.since ?? catalogs.stalls.first?.timestamp ?? counted.map(\.fault.repeats.firstAt).min() ?? .now()
        var tally = FaultTally(span: TimeSpan(start: start, end: selection.until ?? .now()))
        // Without names a stall's fault is known only after all aliases are known, so fingerprints are compared later.
        var loose = selection
        loose.fingerprints = []
        var filter = StallFilter(names == nil ? loose : selection, names: names)
        var seen: Set<ULID> = []
        // A report that does not match names the counted stalls of its fault, and may say that they do not match either. It may also have the
        // former fingerprint by which a matching one was asked for.
        var traits: [Shared<OutlineTraits>.Identity: StallOutline] = [:]
        let traitsMatter = !counted.isEmpty || selection.until != nil || !selection.fingerprints.isEmpty
        for catalog in catalogs.all {
            failures += try catalog.forEachOutline { stall in
                if traitsMatter { traits[Shared.Identity(stall.traits)] = stall }
                guard catalogs.all.count == 1 || seen.insert(stall.id).inserted else { return }
                if let fault = selection.countedEarlier(by: stall), let run = stall.run.flatMap({ byID[$0] }),
                    selection.includes(serviceOf: fault, in: run)
                {
                    counted.append((fault, run))
                }
                guard filter.includes(stall) else { return }
                tally.add(selection.part(of: stall))
                each(stall)
            }
        }
        tally.add(counted, matching: loose, by: Array(traits.values))
        (self.selection, self.tally, self.failures) = (selection, tally, failures)
        self.names = selection.fingerprints.isEmpty ? nil : names ?? FaultNames(Array(traits.values))
        contents = (catalogs.stalls.count, runs)
        watchedNs = chosen.flatMap { $0.watched(in: selection) }.map { max(0, $0.watchedNs) }.saturatingSum()
    }

    func faults(by order: FaultOrder) -> [Fault] {
        tally.all(watchedNs: watchedNs, by: order).filter {
            selection.includes($0.fingerprint, aliases: $0.aliases, names)
        }
    }

    func document(_ faults: [Fault]) -> FaultDocument {
        FaultDocument(at: .now(), since: tally.span.start, until: tally.span.end, watchedNs: watchedNs, faults: faults)
    }

    var lostNote: String? { selection.lostNote(contents.runs) }

    var emptyNote: String {
        failures.isEmpty
            ? selection.nothingFound(among: contents.stalls, contents.runs, names: names)
            : "no stalls in what can be read"
    }
}

extension FaultTally {
    /// Adds stalls that were only counted. They are left out if nobody can tell whether they match.
    ///
    /// - Parameter reports: One for each set of traits that reports have. They show which faults the counted stalls can be of.
    fileprivate mutating func add(
        _ counted: [(fault: RunRecord.Repeated, run: RunRecord)],
        matching selection: StallSelection,
        by reports: [StallOutline]
    ) {
        let known = FaultTraits(reports)
        let examples = Dictionary(reports.map { ($0.fingerprint, $0) }) { $0.id < $1.id ? $1 : $0 }
        for (fault, run) in counted where fault.membership(in: selection, traits: known) == .wanted {
            add(selection.part(of: fault), of: run, like: examples[fault.fingerprint])
        }
    }
}
