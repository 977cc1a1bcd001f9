import ArgumentParser
import StallReports

struct ListCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "list",
        abstract: "Lists the stalls, the newest last.",
        discussion: """
            EXAMPLES
              stall-monitor list
              stall-monitor list /var/lib/shop/stalls --since 1h
              stall-monitor list --format json | jq '.[].cause.verdict'

            A plus behind a duration: it lasted at least that long. ×37 since 12:00: so many of the same fault came after it and were \
            only counted. JSON is one array of whole reports.
            """
    )

    @OptionGroup var reports: ReportsArgument

    @Option(
        help:
            "Only stalls that ended after this moment, or have not ended: a length of time before now (10m), or RFC 3339."
    )
    var since: Since?

    @Option(help: "For people or for programs.")
    var format: OutputFormat = .text

    func run() throws {
        let contents = try Directory(path: reports.path).contents()
        let shown = contents.reports.filter { since?.includes($0) ?? true }
        switch format {
        case .json:
            let items = try shown.map { try JSONText.of($0) }
            try Output.write("[" + items.joined(separator: ",\n") + "]\n")
        case .text:
            let terminal = Terminal.current()
            let ids = ShortIDs(contents.reports.map(\.id))
            if shown.isEmpty {
                Output.note(emptyNote(contents))
            } else {
                try Output.write(
                    StallList.lines(shown, ids: ids, repeats: contents.repeats, width: terminal.width),
                    on: terminal
                )
            }
            noteCountedOnly(contents)
        }
        try Directory.report(contents.failures)
    }

    /// "No stalls" and "nobody looked" are different things.
    private func emptyNote(_ contents: ReportReader.Contents) -> String {
        if !contents.failures.isEmpty { return "no stalls in what can be read" }
        if contents.runs.isEmpty { return "no stalls, and no sign that a monitor ran here" }
        return since == nil ? "no stalls" : "no stalls since then"
    }

    /// Faults whose report is not here, or was never written: they would be missing from the list in silence.
    private func noteCountedOnly(_ contents: ReportReader.Contents) {
        let ids = Set(contents.reports.map(\.id))
        let faults = contents.runs.flatMap { $0.repeated ?? [] }.filter { fault in
            fault.repeats.report.map(ids.contains) != true
                && since.map { fault.repeats.lastAt >= $0.moment } ?? true
        }
        for fault in faults { Output.note("only counted: \(fault.fingerprint) \(fault.repeats.whole)") }
    }
}
