import ArgumentParser
import StallReports

struct FaultsCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "faults",
        abstract: "Adds stalls up by their faults: which one costs most, since when, where.",
        discussion: """
            EXAMPLES
              stall-monitor faults
              stall-monitor faults /var/lib/stalls --since yesterday --sort worst
              stall-monitor faults http://stalls:4319 --service shop --since 7d
              stall-monitor faults --service shop --format json | jq '.faults[0]'

            A fault is all stalls of one fingerprint: the same code standing still, on whatever host and in whatever build. Stalls \
            that were only counted are counted. SHARE is of the time that was watched, all loops together. The trend compares the two \
            halves of the time asked for: rising and falling are told where chance does not explain the difference. \
            'stall-monitor show FAULT' is a fault's own page.

            Exit code 0: done. 1: a directory, or a file in it, cannot be read; the others are told. 64: wrong usage.
            """
    )

    @OptionGroup var reports: ReportsArgument
    @OptionGroup(title: "Choosing") var selection: Selection

    @Option(
        help: "Which come first: those with the most time blocked, the most stalls, the worst stall, or the last seen."
    )
    var sort: FaultOrder = .total

    @Option(name: .customShort("n"), parsing: .unconditional, help: "Show at most so many.")
    var number: Int?

    @OptionGroup var screen: ScreenOptions

    @Option(help: "For people or for programs.")
    var format: OutputFormat = .text

    func validate() throws {
        if let number, number < 0 { throw ValidationError("-n is a number from 0") }
    }

    func run() throws {
        let found = try find()
        var document = found.document
        document.faults = Array(document.faults.prefix(number ?? .max))
        switch format {
        case .json:
            let text = String(decoding: try ReportJSON.encode(document).dropLast(), as: UTF8.self)
            try Output.write(JSONText.escaped(text) + "\n")
        case .text:
            if found.document.faults.isEmpty {
                Output.note(found.emptyNote)
            } else {
                try write(document.faults, found.document.faults)
            }
        }
        try ReportSources.report(found.failures)
    }

    private func find() throws -> (document: FaultDocument, emptyNote: String, failures: [ReportError]) {
        let chosen = selection.stalls
        if let address = reports.onlyAddress,
            let document = try CollectorCopy.faults(at: address, chosen, by: sort)
        {
            return (document, chosen.nothingFound, [])
        }
        let sources = try reports.sources(covering: chosen)
        let survey = try CommandFailure.wrapping { () throws(ReportError) in try FaultSurvey(sources, chosen) }
        return (survey.document(survey.faults(by: sort)), survey.emptyNote, survey.failures)
    }

    private func write(_ shown: [Fault], _ all: [Fault]) throws {
        let terminal = screen.terminal()
        let names = ShortFingerprints(all.lazy.map(\.fingerprint))
        try screen.write(
            FaultTable(faults: shown, names: names, now: .now(), width: terminal.width).lines,
            on: terminal
        )
        if shown.count < all.count { Output.note("\(all.count - shown.count) more faults; a greater -n shows them") }
    }
}
