import ArgumentParser
import StallReading
import StallReports

struct RunsCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "runs",
        abstract: "Shows what was watched and when, and which part of that time was blocked.",
        discussion: """
            EXAMPLES
              stall-monitor runs
              stall-monitor runs --since 3:00 --until 3:10
              stall-monitor runs --by host --since yesterday
              stall-monitor runs --by loop --service shop
              stall-monitor runs --format json | jq '.rows[].watched_ns'

            A run is one monitor in one process, from its start to its end; --by host and --by loop add them up, the greatest \
            blocked share first. Stalls that were only counted are included. If a time is chosen, WATCHED is the part of a \
            run that lies in it, and turns are not shown, because a run does not record when they were. P99 TURN is that of the \
            run in which it is greatest; of a task pool, turns are its jobs.

            Exit code 0: done. 1: the directory, or a file in it, cannot be read; the others are shown. 64: wrong usage.
            """
    )

    @OptionGroup var reports: ReportsArgument
    @OptionGroup(title: "Choosing") var selection: Selection

    @Option(help: ArgumentHelp("One row for each run, host or loop.", valueName: "what"))
    var by: WatchedTime.Grouping = .run

    @Option(
        name: .customShort("n", allowingJoined: true),
        parsing: .unconditional,
        help: ArgumentHelp(
            "Show at most this many: the latest runs, or the most blocked hosts and loops.",
            valueName: "number"
        )
    )
    var number: Int?

    @OptionGroup var screen: ScreenOptions

    @Option(help: "Text for people, or JSON for programs.")
    var format: OutputFormat = .text

    func validate() throws {
        if let number, number < 0 { throw ValidationError("-n is a number from 0") }
    }

    func run() throws {
        let chosen = selection.stalls
        let overview = try reports.sources(covering: chosen).overview()
        let all = WatchedTime(overview, chosen, by: by).sorted
        let shown = by == .run ? all.suffix(number ?? .max) : all.prefix(number ?? .max)
        switch format {
        case .json: try Output.writeJSON(RunsDocument(by: by, rows: Array(shown)))
        case .text:
            if all.isEmpty {
                Output.note(overview.failures.isEmpty ? chosen.nothingWatched(overview) : "no runs in what can be read")
            } else {
                let terminal = screen.terminal()
                try screen.write(
                    WatchedTable(rows: Array(shown), grouping: by, width: terminal.width).lines,
                    on: terminal
                )
            }
            if let note = chosen.lostNote(overview.runs) { Output.note(note) }
        }
        try ReportSources.report(overview.failures)
    }
}

extension WatchedTime.Grouping: ExpressibleByArgument {}

extension StallSelection {
    /// The note if there is no row.
    fileprivate func nothingWatched(_ overview: ReportReader.Overview) -> String {
        if overview.runs.isEmpty { return nothingFound(among: overview.stalls.count, []) }
        return isEverything ? "no loop was watched" : "no matching runs among \(overview.runs.count)"
    }
}

/// What `runs --format json` prints.
struct RunsDocument: Encodable {
    let schema = "stall-runs/1"
    let at = Timestamp.now()
    let by: WatchedTime.Grouping
    let rows: [WatchedRow]
}
