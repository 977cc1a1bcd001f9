import ArgumentParser
import StallGate
import StallReports

struct GateBaselineCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "baseline",
        abstract: "Records what a service stalls when it is well, for 'gate --baseline'.",
        subcommands: [Record.self]
    )

    struct Record: ParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "record",
            abstract: "Makes a baseline of one or more report directories.",
            discussion: """
                EXAMPLES
                  stall-monitor gate baseline record ./stall-reports
                  stall-monitor gate baseline record run/* --output baselines

                Each directory must be one that can be judged: with a run record, and complete. All of them are to be of one environment: \
                processors, kernel and kind of build. Into a folder a baseline goes under a name that tells its environment, and \
                'gate --baseline FOLDER' takes the one that is like the run. The more runs, the smaller the changes that can be proven.

                Exit code 0: recorded. 1: a directory cannot be read or judged, or the file not be written. 64: wrong usage.
                """
        )

        @Argument(help: ArgumentHelp("Report directories.", valueName: "dir"), completion: .directory)
        var directories: [String] = []

        @Option(name: .shortAndLong, help: ArgumentHelp("A file, or a folder.", valueName: "path"))
        var output = BaselineFile.defaultPath

        func validate() throws {
            for directory in directories { try ReportsArgument.refuseEmpty(directory) }
        }

        func run() throws {
            let baseline = try BaselineFile.record(directories.isEmpty ? [ReportDirectory.defaultPath] : directories)
            let path = try BaselineFile.write(baseline, to: output)
            let watched = DurationText(nanoseconds: baseline.watchedNs).short
            Output.note(
                "recorded \(GateResult.number(baseline.faults.count, "fault")) of \(GateResult.number(baseline.runs, "run")), \(watched) watched, in \(path) "
                    + "(\(baseline.environment))"
            )
        }
    }
}
