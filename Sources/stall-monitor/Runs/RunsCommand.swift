import ArgumentParser
import StallGate
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
            chosen.lostNote(overview.runs).map { Output.note($0) }
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

/// Runs, hosts or loops as a table.
struct WatchedTable {
    let rows: [WatchedRow]
    let grouping: WatchedTime.Grouping
    var width: Int?

    private typealias Part = (column: TextTable.Column, cell: (WatchedRow) -> StyledText)

    var lines: [StyledText] {
        let parts = names + sums
        var table = TextTable(parts.map(\.column))
        for row in rows { table.append(parts.map { $0.cell(row) }) }
        return table.lines(width: width)
    }

    /// What a row is about.
    private var names: [Part] {
        switch grouping {
        case .run:
            [
                (.init(title: "STARTED"), { Self.time($0.startedAt, width) }),
                (.init(title: "ENDED", rank: 9), { $0.state == .running ? "running" : Self.time($0.endedAt, width) }),
                (.init(title: "STATE", rank: 3), { StyledText($0.state?.rawValue ?? "unknown", $0.style, limit: 40) }),
                (.init(title: "SERVICE", minimum: 8, rank: 7), { StyledText($0.service ?? "", limit: 60) }),
                (
                    .init(title: "RELEASE", minimum: 7, rank: 2, hidesEmpty: true),
                    { StyledText($0.release ?? "", limit: 60) }
                ),
                (.init(title: "HOST", minimum: 8, rank: 8), { StyledText($0.host ?? "", limit: 60) }),
                (.init(title: "PID", rank: 1), { StyledText($0.pid.map { "\($0)" } ?? "") }),
                (.init(title: "LOOPS", rank: 0), { "\($0.loops)" }),
            ]
        case .host:
            [
                (.init(title: "HOST", minimum: 20), { StyledText($0.host ?? "", .bold, limit: 120) }),
                (.init(title: "RUNS", rank: 2), { "\($0.runs)" }), (.init(title: "LOOPS", rank: 1), { "\($0.loops)" }),
            ]
        case .loop:
            [
                (.init(title: "LOOP", minimum: 16), { StyledText($0.label ?? "unknown", .bold, limit: 120) }),
                (.init(title: "TYPE", rank: 2), { StyledText($0.type?.rawValue ?? "", limit: 40) }),
                (.init(title: "SERVICE", minimum: 8, rank: 7), { StyledText($0.service ?? "", limit: 60) }),
                (.init(title: "RUNS", rank: 1), { "\($0.runs)" }),
                (
                    .init(title: "TURNS/S", rank: 5, hidesEmpty: true),
                    { StyledText($0.turnsPerSecond.map(Figure.short) ?? "") }
                ),
                (.init(title: "P99 TURN", rank: 4, hidesEmpty: true), { Self.length($0.p99TurnNs) }),
                (.init(title: "MAX TURN", rank: 3, hidesEmpty: true), { Self.length($0.maxTurnNs) }),
            ]
        }
    }

    private var sums: [Part] {
        [
            (.init(title: "WATCHED"), { Self.length($0.watchedNs) }), (.init(title: "STALLS"), { "\($0.stalls)" }),
            (.init(title: "BLOCKED"), { Self.length($0.totalNs) }),
            (.init(title: "SHARE", rank: 6), { StyledText($0.share.map(FaultTable.percent) ?? "") }),
            (.init(title: "WORST", rank: 5), { Self.length($0.longestNs) }),
        ]
    }

    private static func time(_ moment: Timestamp?, _ width: Int?) -> StyledText {
        StyledText(moment.map { width == nil ? $0.toSeconds : $0.withoutYear } ?? "")
    }

    private static func length(_ nanoseconds: Int64?) -> StyledText {
        StyledText(nanoseconds.map { DurationText(nanoseconds: $0).short } ?? "")
    }
}

extension WatchedRow {
    fileprivate var style: StyledText.Style? {
        switch state {
        case .running?: .green
        case .terminated?: .red
        default: nil
        }
    }
}
