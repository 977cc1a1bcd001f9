import ArgumentParser
import StallGate
import StallMonitor
import StallReading
import StallReports
import Symbolication

struct ShowCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "show",
        abstract: "Shows one stall on a page, or one fault: where, why, what to do, the stack.",
        discussion: """
            EXAMPLES
              stall-monitor show latest
              stall-monitor show latest --service shop --verdict deadlock
              stall-monitor show 01M7YF7P /var/lib/shop/stalls --full
              stall-monitor show 8a0d3d4a --since yesterday --flame
              stall-monitor show ./stall-reports/stall-01M7YF7P000000000000000000.json
              stall-monitor show ./from-a-colleague.json
              stall-monitor show latest --format json | jq .stacks
              stall-monitor show - < from-a-colleague.json

            An id shows a stall; a fingerprint shows a fault: all its stalls, with their stacks merged. Any unique prefix works, \
            for fingerprints from four digits on. A report's file may have any name; one whose name could be part of an id is \
            given with its directory, as in ./abcd. '-' reads one report from standard input. The choosing options apply to all \
            of them.

            Own frames are marked with ▶. Missing functions and lines are looked up as by 'stall-monitor symbolicate', for ten \
            seconds at most; the report file is not changed. The advice is what the report's own evidence makes likely.

            Exit code 0: done. 1: there is no such stall, or it cannot be read. 64: wrong usage.
            """
    )

    @Argument(
        help: ArgumentHelp(
            "'latest', 'latest~1' for the one before it, any unique prefix of a stall's id or a fault's fingerprint (four digits or more), a report's file, or '-' for standard input.",
            valueName: "id"
        ),
        completion: Completions.stallsAndFaults
    )
    var id: String

    @OptionGroup var reports: ReportsArgument
    @OptionGroup(title: "Choosing") var selection: Selection

    @Option(
        name: .customLong("reports"),
        help: ArgumentHelp("The same as <dir>.", valueName: "dir"),
        completion: .directory
    )
    var named: String?

    @OptionGroup var symbolFiles: SymbolFilesOption
    @OptionGroup var screen: ScreenOptions

    @Flag(help: "Show everything in the report, and every frame.")
    var full = false

    @Flag(help: "Show the stacks as a flame graph.")
    var flame = false

    @Option(help: "Text for people, or JSON for programs.")
    var format: OutputFormat = .text

    func validate() throws {
        if named != nil, !reports.given.isEmpty {
            throw ValidationError("give the directory once: as an argument, with --from, or with --reports")
        }
        try named.map(ReportsArgument.check)
        if flame, format == .json { throw ValidationError("--flame is text; 'export' writes flame graphs to files") }
        if file != nil || single != nil {
            if named != nil || !reports.given.isEmpty {
                throw ValidationError("a report's file, or '-', is read without a directory: do not give one")
            }
        } else if Folder.exists(id) {
            throw ValidationError(
                "\(CommandFailure(id)) is a directory: say which stall, as in 'show latest \(CommandFailure(id))'"
            )
        } else if CollectorCopy.isAddress(id) {
            throw ValidationError(
                "\(CommandFailure(id)) is a collector's address: say which stall, as in 'show latest \(CommandFailure(id))'"
            )
        } else if StallChoice(id) == nil {
            throw ValidationError(
                "'\(CommandFailure(id))' is neither 'latest' (or 'latest~1'), nor part of an id or a fingerprint, nor a report's file"
            )
        }
    }

    func run() throws {
        if let single { return try show(included(single.read(), names: nil), repeats: nil) }
        guard let choice = StallChoice(file?.only?.description ?? id) else { throw CommandFailure("no such stall") }
        let place = (file?.directory ?? named).map { [$0] } ?? reports.paths
        let sources = try ReportSources(place, covering: [selection.stalls])
        let catalog = try sources.catalogs()
        switch try choice.pick(from: catalog) {
        case .latest(let before): try show(latest(in: catalog, before: before), in: catalog)
        case .stall(let id): try show(chosen(id, in: catalog), in: catalog)
        case .fault(let fingerprint): try show(fingerprint, catalog)
        }
    }

    /// Given in place of an id: a report that is read by itself.
    private var single: SingleReport? { SingleReport(id) }

    /// Given in place of an id: the file of a report in its directory.
    private var file: ReportPlace? {
        let place = ReportPlace(id)
        return place.only == nil ? nil : place
    }

    private func chosen(_ id: ULID, in catalog: Catalogs) throws -> StallReport {
        try included(catalog.report(id), names: catalog.faultNames(for: selection.stalls))
    }

    /// The report. An error if the choosing options exclude it: they would otherwise be ignored silently.
    private func included(_ report: StallReport, names: FaultNames?) throws(CommandFailure) -> StallReport {
        guard selection.stalls.includes(report, names: names) else {
            throw CommandFailure(
                """
                the stall \(report.id) does not match the choosing options, such as --since or --host, given here or in the file of defaults; \
                without them it is shown
                """
            )
        }
        return report
    }

    private func show(_ found: StallReport, in catalog: Catalogs) throws {
        // JSON is the report alone.
        try show(found, repeats: format == .text ? catalog.repeats(of: found) : nil)
    }

    private func show(_ found: StallReport, repeats: StallReport.Repeats?) throws {
        let (report, problems) = try withNames(found)
        // After the page: its reader is not to begin with files that do not fit.
        defer { for problem in problems { Output.note(problem.description) } }
        guard format == .text else { return try Output.writeJSON(report) }
        let terminal = screen.terminal()
        var brief = StallBrief(report: report, repeats: repeats, style: style(on: terminal))
        brief.source = SourceLines.around(report.culprit, writtenAfter: report.startedAt)
        var lines = brief.lines
        if full {
            var page = StallPage(report: report, repeats: repeats, showsAllFrames: true)
            page.width = terminal.width
            lines += [""] + page.lines.wrapped(to: terminal.width, hanging: 14)
        }
        try screen.write(lines, on: terminal)
    }

    private func style(on terminal: Terminal) -> PageStyle {
        PageStyle(showsAllFrames: full, showsFlame: flame, hasColours: terminal.hasColours, width: terminal.width)
    }

    private func show(_ fingerprint: FingerprintPrefix, _ catalog: Catalogs) throws {
        var chosen = selection.stalls
        chosen.fingerprints = [fingerprint]
        var evidence = FaultEvidence()
        let names = catalog.faultNames(for: chosen)
        let survey = try FaultSurvey(catalog, chosen, names: names) { evidence.add($0) }
        // A fingerprint that is given as an option, too, must be of the same fault.
        guard let fault = survey.faults(by: .total).first,
            selection.stalls.includes(fault.fingerprint, aliases: fault.aliases, names)
        else {
            throw CommandFailure("the fault has no matching stalls")
        }
        var failures = survey.failures
        switch format {
        case .json: try Output.writeJSON(survey.document([fault]))
        case .text:
            // What a list needs of a report may be readable, and the rest not.
            evidence.read { catalog.report($0, &failures) }
            let terminal = screen.terminal()
            let ids = ShortIDs(catalog.stalls, elides: terminal.width != nil)
            var page = FaultPage(fault: fault, evidence: evidence, ids: ids, style: style(on: terminal))
            page.source = SourceLines.around(evidence.latest?.culprit, writtenAfter: evidence.latest?.startedAt)
            try screen.write(page.lines, on: terminal)
        }
        try ReportSources.report(failures)
    }

    /// How many of the newest stalls are looked at one by one. Mostly one of them is it.
    private static let newest = 1000

    /// The latest readable stall among the chosen ones. If it is none of the newest, all are read as by other readers: by several threads, and
    /// through an index. A file that is not a report does not count.
    private func latest(in catalog: Catalogs, before: Int) throws -> StallReport {
        let chosen = selection.stalls
        guard !catalog.stalls.isEmpty else { throw CommandFailure(catalog.nothingFound(by: chosen, names: nil)) }
        let names = catalog.faultNames(for: chosen)
        if let report = newest(in: catalog, names, before: before) { return report }
        var failures: [ReportError] = []
        let all = try catalog.stalls(of: chosen, names: names, &failures)
        for id in all.dropLast(before).reversed() {
            guard let report = catalog.report(id, &failures) else { continue }
            Output.note(failures)
            return report
        }
        if !all.isEmpty, all.count <= before {
            let verb = all.count == 1 ? "is" : "are"
            Output.note(failures)
            throw CommandFailure("there \(verb) only \(quantity(all.count, "matching stall"))")
        }
        guard let last = failures.last else { throw CommandFailure(catalog.nothingFound(by: chosen, names: names)) }
        Output.note(Array(failures.dropLast()))
        throw CommandFailure(last)
    }

    /// Nil if it is none of the newest stalls, which are looked at one by one.
    private func newest(in catalog: Catalogs, _ names: FaultNames?, before: Int) -> StallReport? {
        let chosen = selection.stalls
        var (failures, found): ([ReportError], [ULID]) = ([], [])
        for id in catalog.stalls.suffix(Self.newest).reversed() where found.count <= before {
            do throws(ReportError) {
                let fits = chosen.isEverything ? true : chosen.includes(try catalog.outline(id), names: names)
                if fits { found.append(id) }
            } catch { failures.append(error) }
        }
        guard found.count > before, let report = try? catalog.report(found[before]) else { return nil }
        Output.note(failures)
        return report
    }

    /// Adds the names that can be found now, and says what did not help. Libraries without symbols are common, so they are no problem.
    private func withNames(_ report: StallReport) throws(CommandFailure) -> (StallReport, [SymbolProblem]) {
        let search = try symbolFiles.search(server: DebugInfoServer(patience: .seconds(5)))
        let budget = SymbolicationBudget(time: .seconds(10), memory: 1 << 30, inflates: true)
        let naming = ReportNaming(symbolicator: Symbolicator(search: search))
        let findings = naming.findings(for: report, budget: budget)
        let problems = (findings.problems + naming.unusedFiles).filter {
            ![.missingFile, .noLines, .noBuildID].contains($0.code)
        }
        return (findings.amendment.applied(to: report), problems)
    }
}
