import ArgumentParser

/// The root command. Its subcommands do the work.
@main
struct StallMonitorCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "stall-monitor",
        abstract: "Shows and judges what a stall monitor reported.",
        discussion: """
            A monitored process writes its reports into a directory. Every subcommand that reads them looks in the directory \
            it is given, or else in $STALL_MONITOR_DIRECTORY, or else in ./stall-reports. 'sample' needs no reports; 'watch' makes \
            some, of processes that have no monitor.

            Data goes to standard output, everything else to standard error. Colours are used on a terminal only, and not \
            when $NO_COLOR is set. Times are UTC.

            EXIT CODES
              0   done; for gate: within budget, and no worse than the baseline
              1   could not do it, or not all of it; for gate: cannot judge; for doctor: a problem
              2   gate: over budget, or worse than the baseline
              3   gate: inconclusive
              64  wrong usage
              130 ended by Ctrl-C
              watch -- COMMAND leaves with the command's own; so does gate run, where the command fails
            """,
        version: "0.1.0",
        subcommands: [
            TailCommand.self, ListCommand.self, FaultsCommand.self, DiffCommand.self, TopCommand.self, ShowCommand.self,
            DoctorCommand.self, SymbolicateCommand.self, GateCommand.self, ExportCommand.self, SampleCommand.self,
            WatchCommand.self, ShipCommand.self,
        ]
    )
}
