import ArgumentParser
import Glibc
import StallReports

struct TopCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "top",
        abstract: "Shows the watched processes, and the stalls under way as they grow.",
        discussion: """
            EXAMPLES
              stall-monitor top --live
              stall-monitor top --live /var/lib/shop/stalls --every 200ms
              stall-monitor top --live --format json | jq '.processes[].stalls[].live'

            On a terminal the screen is drawn anew until Ctrl-C ends it; elsewhere, with --once and as JSON it is shown once. A process \
            that died is shown with its last state and how it ended, until the next start in the directory has closed its reports.

            Exit code 0: done. 1: the directory, or a live record in it, cannot be read. 64: wrong usage. 130: ended by Ctrl-C.
            """
    )

    @OptionGroup var reports: ReportsArgument
    @OptionGroup(title: "Choosing") var selection: Selection

    @Flag(help: "The present. Nothing else is shown without it either.")
    var live = false

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
        if format == .text, !once, terminal.movesCursor { try refresh() }
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

    private func look(_ failures: inout [ReportError]) throws(CommandFailure) -> LiveSnapshot {
        try CommandFailure.wrapping { () throws(ReportError) in
            try reports.sources.snapshot(&failures).chosen(by: selection.stalls)
        }
    }

    /// Draws the screen again and again, without clearing it between: what stays the same does not flicker.
    private func refresh() throws -> Never {
        try Output.write("\u{1B}[2J")
        while true {
            var failures: [ReportError] = []
            let terminal = colour.terminal()
            let lines = LiveTable(snapshot: try look(&failures), width: terminal.width).lines
            let notes = failures.map { StyledText($0.description, .red) }
            let text = Self.fitted(notes + lines, terminal).map { terminal.show($0) + "\u{1B}[K" }
            try Output.write("\u{1B}[H" + text.joined(separator: "\n") + "\u{1B}[J")
            usleep(UInt32(clamping: every.nanoseconds / 1000))
        }
    }

    /// What there is room for: a screen that scrolls cannot be drawn anew from its top.
    private static func fitted(_ lines: [StyledText], _ terminal: Terminal) -> [StyledText] {
        var lines = lines
        if let height = terminal.height, lines.count > height {
            let left = lines.count - height + 1
            lines = lines.prefix(height - 1) + ["… \(left) more lines; --once shows them all"]
        }
        return lines.map { $0.truncated(to: terminal.width ?? .max) }
    }
}
