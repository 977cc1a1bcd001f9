import ArgumentParser
import StallReports

struct TailCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "tail",
        abstract: "Shows the latest stalls, and follows new ones as they happen.",
        discussion: """
            EXAMPLES
              stall-monitor tail -f
              stall-monitor tail /var/lib/shop/stalls --since 10m
              stall-monitor tail -f --format json | jq -r .culprit.function

            A stall is shown when it is detected, when it becomes more severe, and when it ends; on a terminal the last line \
            shows the longest ongoing stall. With -f the directory may be missing at first, or be removed and created again; \
            Ctrl-C ends it. JSON is one whole report per line.

            Exit code 0: done. 1: the directory, or a file in it, cannot be read. 64: wrong usage. 130: ended by Ctrl-C.
            """
    )

    @OptionGroup var reports: ReportsArgument
    @OptionGroup(title: "Choosing") var selection: Selection

    @Flag(name: .shortAndLong, help: "Keep following new stalls (Ctrl-C ends).")
    var follow = false

    @Option(
        name: .customShort("n"),
        parsing: .unconditional,
        help: ArgumentHelp(
            "Show at most this many existing stalls. (default: 10; with --since: all)",
            valueName: "number"
        )
    )
    var number: Int?

    @OptionGroup var colour: ColourOption

    @Option(help: "Text for people, or JSON for programs.")
    var format: OutputFormat = .text

    func validate() throws {
        try reports.refuseAddresses()
        if let number, number < 0 { throw ValidationError("-n is a number from 0") }
    }

    func run() throws {
        var view = TailView(
            selection: selection.stalls,
            limit: number ?? (selection.since == nil ? 10 : .max),
            format: format,
            terminal: colour.terminal()
        )
        if follow {
            try view.follow(reports.paths)
        } else {
            let catalog = try reports.sources.catalogs()
            var failures = catalog.failures
            try view.showPast(catalog, &failures)
            try ReportSources.report(failures)
        }
    }
}
