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

            A stall is shown when it is detected, when it becomes more severe, and when it has ended; on a terminal the last line \
            shows the longest one under way as it grows. With -f the directory may appear later, go and come again; Ctrl-C ends it. \
            JSON is one whole report per line.

            Exit code 0: done. 1: the directory, or a file in it, cannot be read. 64: wrong usage. 130: ended by Ctrl-C.
            """
    )

    @OptionGroup var reports: ReportsArgument

    @Flag(name: .shortAndLong, help: "Go on with new stalls until ended.")
    var follow = false

    @Option(
        help:
            "Only stalls that ended after this moment, or have not ended: a length of time before now (10m), or RFC 3339."
    )
    var since: Since?

    @Option(
        name: .customShort("n"),
        help: "At most so many of the stalls that are there. (default: 10, with --since all)"
    )
    var number: Int?

    @Option(help: "For people or for programs.")
    var format: OutputFormat = .text

    func validate() throws {
        if let number, number < 0 { throw ValidationError("-n is a number from 0") }
    }

    func run() throws {
        var view = TailView(since: since, limit: number ?? (since == nil ? 10 : .max), format: format)
        if follow {
            try view.follow(reports.path)
        } else {
            let catalog = try Directory(path: reports.path).catalog()
            var failures = catalog.failures
            try view.showPast(catalog, &failures)
            try Directory.report(failures)
        }
    }
}
