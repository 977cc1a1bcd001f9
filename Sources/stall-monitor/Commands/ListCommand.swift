#if Command
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
            }
            try Directory.report(contents.failures)
        }

        /// "No stalls" and "nobody looked" are different things.
        private func emptyNote(_ contents: ReportReader.Contents) -> String {
            if contents.runs.isEmpty { return "no stalls, and no sign that a monitor ran here" }
            return since == nil ? "no stalls" : "no stalls since then"
        }
    }
#endif
