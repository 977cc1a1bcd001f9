public import ArgumentParser
public import StallExport
import StallReports

struct ExportCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "export",
        abstract: "Writes stalls in another tool's format.",
        discussion: """
            EXAMPLES
              stall-monitor export --format html --output stalls.html
              stall-monitor export --format pprof -o stalls.pb    # go tool pprof stalls.pb
              stall-monitor export --format speedscope --since 1d > stalls.speedscope.json
              stall-monitor export ./stall-reports --format prometheus -o stalls.prom

            FORMATS
            \(ExportFormat.allCases.map(line).joined(separator: "\n"))

            In flame graphs, the width of a stack is the blocked time for which it was found; all stacks together are the total \
            blocked time.

            Exit code 0: done. 1: the directory, or a file in it, cannot be read, or the output cannot be written; readable \
            reports are in the output. 64: wrong usage.
            """
    )

    @OptionGroup var reports: ReportsArgument

    @Option(help: ArgumentHelp("The format; see above.", valueName: "format"))
    var format: ExportFormat

    @OptionGroup var output: OutputOption

    @OptionGroup(title: "Choosing") var selection: Selection

    /// The format's name and summary, for a terminal of 80 columns: a longer line would be continued at the margin.
    private static func line(_ format: ExportFormat) -> String {
        let name = StyledText("  \(format.rawValue)").padded(to: 16)
        let lines = (name + StyledText(format.summary)).wrapped(to: 79, hanging: 16).map(\.plain)
        // A wrapped line ends with the blank at which it was broken.
        return lines.joined(separator: "\n").replacing(" \n", with: "\n")
    }

    func validate() throws {
        if format.isBinary { try output.refuseTerminal(for: format.rawValue) }
    }

    func run() throws {
        let sources = try reports.sources(covering: selection.stalls)
        let catalogs = try sources.catalogs()
        let chosen = selection.stalls
        let names = catalogs.faultNames(for: chosen)
        let known = catalogs.runs()
        var failures = catalogs.failures + known.failures
        // Their counts are of the whole run, and so is the watched time beside them.
        let runs = known.runs.filter { chosen.includes($0) }.compactMap { $0.chosen(by: chosen.atAnyTime) }
        let sink = try ExportSink(path: output.file, isDiscardedAtExit: true)
        var exporter = format.makeExporter()
        var count = 0
        try sink.write(shown(exporter.begin(runs)))
        for id in try catalogs.stalls(of: chosen, names: names, &failures) {
            guard let report = catalogs.report(id, &failures), chosen.includes(report, names: names) else { continue }
            count += 1
            try sink.write(shown(exporter.add(report)))
        }
        try sink.write(shown(exporter.end()))
        try sink.finish()
        if let file = output.file {
            Output.note("\(quantity(count, "stall")) in \(file)")
        } else if count == 0, failures.isEmpty {
            Output.note(chosen.nothingFound(among: catalogs.stalls.count, known.runs, names: names))
        }
        try ReportSources.report(failures)
    }

    /// JSON can contain characters of a report that a terminal interprets. On standard output they are escaped, as by other
    /// commands.
    private func shown(_ bytes: [UInt8]) -> [UInt8] {
        guard output.file == nil, format.isJSON else { return bytes }
        return Array(JSONText.escaped(String(decoding: bytes, as: UTF8.self)).utf8)
    }
}

extension ExportFormat: ExpressibleByArgument {}
