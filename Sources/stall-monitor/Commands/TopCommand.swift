import ArgumentParser
import StallReports

struct TopCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "top",
        abstract: "Shows the watched processes, and the stalls under way as they grow.",
        discussion: """
            EXAMPLES
              stall-monitor top
              stall-monitor top /var/lib/shop/stalls --every 200ms
              stall-monitor top --format json | jq '.processes[].stalls[].live'

            KEYS
              up, down, k, j  pick a row; also Page Up, Page Down, Home, End
              Enter           open the picked process, stall or fault
              f, p            faults; processes and their stalls
              s               sort by the next column
              q, Escape       back; from the tables q quits

            On a terminal the screen is drawn again and again; elsewhere, with --once and as JSON it is shown once. ALIVE is what the \
            kernel says of a process now. A process that died is shown with its last state and how it ended, until the next start in \
            the directory has closed its reports.

            Exit code 0: done. 1: the directory, or a live record in it, cannot be read. 64: wrong usage. 130: ended by Ctrl-C.
            """
    )

    @OptionGroup var reports: ReportsArgument
    @OptionGroup(title: "Choosing") var selection: Selection

    @Flag(help: "Show it once, and end.")
    var once = false

    @Option(help: ArgumentHelp("How long between two looks.", valueName: "time"))
    var every: DurationText = DurationText(nanoseconds: 1_000_000_000)

    @OptionGroup var colour: ColourOption

    @Option(help: "For people or for programs.")
    var format: OutputFormat = .text

    func validate() throws {
        try reports.refuseAddresses()
        if every.nanoseconds < 10_000_000 { throw ValidationError("--every is 10ms or more") }
    }

    func run() throws {
        let terminal = colour.terminal()
        if format == .text, !once, terminal.movesCursor { return try watch() }
        var failures: [ReportError] = []
        let snapshot = try look(&failures)
        switch format {
        case .json:
            let text = String(decoding: try ReportJSON.encode(snapshot).dropLast(), as: UTF8.self)
            try Output.write(JSONText.escaped(text) + "\n")
        case .text: try Output.write(LiveTable(snapshot: snapshot, width: terminal.width).lines, on: terminal)
        }
        try ReportSources.report(failures)
    }

    private func watch() throws {
        var run = try TopRun(reports.paths, selection.stalls, every: .nanoseconds(every.nanoseconds), colour)
        if let signal = try run.run() { throw ExitCode(128 + signal) }
    }

    private func look(_ failures: inout [ReportError]) throws(CommandFailure) -> LiveSnapshot {
        try CommandFailure.wrapping { () throws(ReportError) in
            try reports.sources.snapshot(&failures).chosen(by: selection.stalls)
        }
    }
}
