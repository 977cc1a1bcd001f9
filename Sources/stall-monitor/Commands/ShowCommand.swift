import ArgumentParser
import StallMonitor
import StallReports
import Symbolication

struct ShowCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "show",
        abstract: "Shows one stall on a page: cause, stacks, what it cost to find out.",
        discussion: """
            EXAMPLES
              stall-monitor show latest
              stall-monitor show 01M7YF7P /var/lib/shop/stalls --full
              stall-monitor show latest --format json | jq .stacks

            Own frames are marked with ▶. Functions and lines that the report lacks are looked for as 'stall-monitor symbolicate' \
            does, in ten seconds at most; the report's file stays as it is.

            Exit code 0: done. 1: there is no such stall, or it cannot be read. 64: wrong usage.
            """
    )

    @Argument(
        help: ArgumentHelp("The stall: 'latest', or its id, or as much of it as no other has.", valueName: "id")
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

    @Flag(help: "Show every frame, also the libraries'.")
    var full = false

    @Option(help: "For people or for programs.")
    var format: OutputFormat = .text

    func validate() throws {
        if named != nil, !reports.directories.isEmpty {
            throw ValidationError("give the directory once: as an argument, or with --reports")
        }
        try ReportsArgument.refuseEmpty(named)
        if StallChoice(id) == nil {
            throw ValidationError("'\(CommandFailure(id))' is neither 'latest' nor part of an id")
        }
    }

    func run() throws {
        guard let choice = StallChoice(id) else { throw CommandFailure("no such stall") }
        let sources = named.map { ReportSources([$0]) } ?? reports.sources
        let catalog = try CommandFailure.wrapping { () throws(ReportError) in try sources.catalogs() }
        let report = try withNames(stall(choice, of: catalog))
        switch format {
        case .json: try Output.write(JSONText.of(report) + "\n")
        case .text:
            let terminal = Terminal.current()
            var page = StallPage(report: report, repeats: catalog.repeats(of: report), showsAllFrames: full)
            page.width = terminal.width
            try Output.write(page.lines, on: terminal)
        }
    }

    /// Those that the options choose. Without any no report is read for it.
    private func chosen(from catalog: Catalogs) throws(CommandFailure) -> [ULID] {
        let chosen = selection.stalls
        guard !chosen.isEverything else { return catalog.stalls }
        return catalog.stalls.filter { id in (try? catalog.outline(id)).map { chosen.includes($0) } ?? false }
    }

    /// The latest is the latest that can be read: a file with a later name that is no report does not stand before it.
    private func stall(_ choice: StallChoice, of catalog: Catalogs) throws(CommandFailure) -> StallReport {
        var ids = try chosen(from: catalog)
        while true {
            let id = try choice.pick(from: ids)
            do throws(ReportError) {
                return try catalog.report(id)
            } catch {
                guard choice == .latest, ids.count > 1 else { throw CommandFailure(error) }
                Output.note(error)
                ids.removeAll { $0 == id }
            }
        }
    }

    /// With names as far as they are to be had now. That a library has no symbols is nothing to note: it is so for most.
    private func withNames(_ report: StallReport) throws(CommandFailure) -> StallReport {
        let search = try symbolFiles.search(server: DebugInfoServer(patience: .seconds(5)))
        let budget = SymbolicationBudget(time: .seconds(10), memory: 1 << 30, inflates: true)
        let naming = ReportNaming(symbolicator: Symbolicator(search: search))
        let findings = naming.findings(for: report, budget: budget)
        for problem in findings.problems + naming.unusedFiles
        where ![.missingFile, .noLines, .noBuildID].contains(problem.code) {
            Output.note(problem.description)
        }
        return findings.amendment.applied(to: report)
    }
}
