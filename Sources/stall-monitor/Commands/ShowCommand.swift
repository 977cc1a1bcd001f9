#if Command
    import ArgumentParser
    import StallReports

    struct ShowCommand: ParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "show",
            abstract: "Shows one stall on a page: cause, stacks, what it cost to find out.",
            discussion: """
                EXAMPLES
                  stall-monitor show latest
                  stall-monitor show 01M7YF7P /var/lib/shop/stalls --full
                  stall-monitor show latest --format json | jq .stacks

                Own frames are marked with ▶.
                """
        )

        @Argument(
            help: ArgumentHelp("The stall: 'latest', or its id, or as much of it as no other has.", valueName: "id")
        )
        var id: String

        @OptionGroup var directory: ReportsArgument

        @Option(
            name: .customLong("reports"),
            help: ArgumentHelp("The same as <dir>.", valueName: "dir"),
            completion: .directory
        )
        var reports: String?

        @Flag(help: "Show every frame, also the libraries'.")
        var full = false

        @Option(help: "For people or for programs.")
        var format: OutputFormat = .text

        func validate() throws {
            if reports != nil, directory.directory != nil {
                throw ValidationError("give the directory once: as an argument, or with --reports")
            }
            if StallChoice(id) == nil {
                throw ValidationError("'\(CommandFailure(id))' is neither 'latest' nor part of an id")
            }
        }

        func run() throws {
            guard let choice = StallChoice(id) else { throw CommandFailure("no such stall") }
            let report = try load(choice)
            switch format {
            case .json: try Output.write(JSONText.of(report) + "\n")
            case .text: try Output.write(StallPage(report: report, showsAllFrames: full).lines, on: .current())
            }
        }

        private func load(_ choice: StallChoice) throws(CommandFailure) -> StallReport {
            let reader = ReportReader(path: reports ?? directory.path)
            let ids = try CommandFailure.wrapping { () throws(ReportError) in
                try reader.names().filter { $0.content == .stall }.map(\.id)
            }
            let id = try choice.pick(from: ids)
            return try CommandFailure.wrapping { () throws(ReportError) in try reader.report(id) }
        }
    }
#endif
