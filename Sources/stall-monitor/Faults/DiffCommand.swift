import ArgumentParser
import StallExport
import StallGate
import StallReading
import StallReports

struct DiffCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "diff",
        abstract: "Compares two sets of stalls: new, worse, gone and better faults.",
        discussion: """
            EXAMPLES
              stall-monitor diff ./before ./after
              stall-monitor diff release=1.4 release=1.5 --reports /var/lib/stalls
              stall-monitor diff day=yesterday day=today --html diff.html
              stall-monitor diff host=web1,release=1.5 host=web2,release=1.5 --all

            A side is a report directory, a file from 'gate baseline record', or a choice of stalls: \(StallSet.keys), with = \
            and patterns. Faults are compared as by 'gate --baseline': by their rate per watched hour, and by their length \
            without waits for a CPU. A fault is called worse or better only if chance is an unlikely explanation: p is the \
            probability of chance, corrected for all faults and for both directions.

            Exit code 0: compared, whatever the result ('gate --baseline' judges). 1: a side, or a file in it, cannot be read, \
            or it has no run record. 64: wrong usage.
            """
    )

    @Argument(help: ArgumentHelp("The earlier side.", valueName: "before"), completion: .directory)
    var before: String

    @Argument(help: ArgumentHelp("The later side.", valueName: "after"), completion: .directory)
    var after: String

    @Option(
        help: ArgumentHelp(
            "Where to search for choices: a report directory, a directory that contains some, or a collector's address.",
            valueName: "dir"
        ),
        completion: .directory
    )
    var reports: [String] = []

    @Flag(help: "Show unchanged faults too.")
    var all = false

    @Option(
        help: ArgumentHelp(
            "Also write a page for a browser: a flame graph of both sides, coloured by what changed, and the faults.",
            valueName: "file"
        ),
        completion: .file(extensions: ["html"])
    )
    var html: String?

    @OptionGroup var screen: ScreenOptions
    @OptionGroup var zone: ZoneOption
    @OptionGroup var index: IndexOption

    @Option(help: "Text for people, or JSON for programs.")
    var format: OutputFormat = .text

    func validate() throws {
        zone.use()
        index.use()
        if html?.isEmpty == true { throw ValidationError("the page's file name is empty") }
        try ([before, after] + reports).forEach(ReportsArgument.check)
        for side in [before, after] {
            do throws(CommandFailure) { _ = try StallSet(side) } catch { throw ValidationError(error.description) }
        }
    }

    func run() throws {
        if html != nil, let side = [before, after].first(where: { Self.baselineFile($0) != nil }) {
            throw CommandFailure("\(side) is a baseline, which has no stacks: --html needs reports on both sides")
        }
        // A side that is a directory is read by itself.
        let choices = try [before, after].compactMap { text in
            if case .choice(let selection) = try StallSet(text) { selection } else { nil }
        }
        let places = reports.isEmpty ? [ReportDirectory.defaultPath] : reports
        let sources = try ReportSources(choices.isEmpty ? [] : places, covering: choices)
        var failures: [ReportError] = []
        let sides = try sides(sources, &failures)
        let difference = FaultDifference(sides[0], sides[1])
        let terminal = screen.terminal()
        let table = DifferenceTable(
            before: .init(name: before, set: sides[0]),
            after: .init(name: after, set: sides[1]),
            difference: difference,
            showsUnchanged: all,
            width: terminal.width
        )
        // The table is shown also if the page cannot be written.
        let page = Result { if let html { try write(table, sources, to: html) } }
        switch format {
        case .json:
            try Output.writeJSON(DifferenceDocument(before: sides[0], after: sides[1], difference: difference))
        case .text: try screen.write(table.lines, on: terminal)
        }
        try page.get()
        try ReportSources.report(failures)
    }

    /// The stalls of both sides. Two choices are from the same directories, which are read once.
    ///
    /// - Parameter failures: The errors of what cannot be read are appended.
    private func sides(_ sources: ReportSources, _ failures: inout [ReportError]) throws -> [Baseline] {
        var searched: ReportReader.Overview?
        var sides: [Baseline] = []
        for text in [before, after] {
            if let path = Self.baselineFile(text) {
                sides.append(try BaselineFile(path, for: nil).baseline)
                continue
            }
            let set = try StallSet(text)
            let overview: ReportReader.Overview
            if case .choice = set {
                overview = try searched ?? sources.overview()
                searched = overview
            } else {
                // The former overview is released before another directory is read: each may have a million stalls.
                searched = nil
                overview = try set.places(or: sources).overview()
            }
            for failure in overview.failures where !failures.contains(failure) { failures.append(failure) }
            sides.append(try set.baseline(of: overview, named: text))
        }
        return sides
    }

    private func write(_ table: DifferenceTable, _ sources: ReportSources, to path: String) throws {
        var page = FlameGraphDifference(
            before: .init(name: before, watchedNs: table.before.set.watchedNs),
            after: .init(name: after, watchedNs: table.after.set.watchedNs)
        )
        for (name, isBefore) in [(before, true), (after, false)] {
            try StallSet(name).forEachReport(in: sources) { page.add($0, isBefore: isBefore) }
        }
        let (columns, rows) = table.plainTable
        let bytes = try page.page(summary: table.summary.plain, columns: columns, rows: rows)
        try OutputFile.write(String(decoding: bytes, as: UTF8.self), to: path)
        Output.note("wrote \(path)")
    }

    /// The path, if the side is a file and not a directory or choice.
    private static func baselineFile(_ text: String) -> String? {
        guard case .directory(let path) = try? StallSet(text), !Folder.exists(path), OutputFile.exists(path) else {
            return nil
        }
        return path
    }
}
