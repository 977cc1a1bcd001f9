import ArgumentParser
import Glibc
import ProcessWatch
import StallGate
import StallReports

struct GateRunCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "run",
        abstract: "Runs a command, watches it, and judges what it stalled.",
        discussion: """
            EXAMPLES
              stall-monitor gate run -- swift test
              stall-monitor gate run --repeat 5 --warm-up 2s -- ./load-test.sh
              stall-monitor gate run --baseline stall-baseline.json -- ./load-test.sh
              stall-monitor gate run --keep run -- node server.js

            The command finds a fresh report directory in $STALL_MONITOR_DIRECTORY, where a monitor in it, or in any process that it starts, \
            reports to. Where none does within a second, its processes are watched from outside, as 'stall-monitor watch --follow' \
            does. What stalls in the warm-up counts for nothing: a monitor finds it in $STALL_MONITOR_STARTUP_GRACE_MILLISECONDS.

            Each run is judged by the budget for itself: a limit that is passed in more than half of the runs is over, in fewer it comes and \
            goes, which is inconclusive. All runs together are compared with the baseline. The verdict goes to standard error, JSON and \
            JUnit to standard output, where the command writes, too.

            Exit code 0: within. 1: cannot judge, also because nothing was watched. 2: over budget or worse. 3: inconclusive. 64: wrong usage. \
            130: ended by Ctrl-C. A command that fails ends it with its own exit status, after the verdict, and is not repeated.
            """
    )

    @OptionGroup var options: JudgeOptions

    @Option(name: .customLong("repeat"), parsing: .unconditional, help: "How often to run it.")
    var repeats = 1

    @Option(help: "For how long after each start stalls do not count, up to an hour: 2s.")
    var warmUp: DurationText?

    @Option(
        help: ArgumentHelp(
            "Where reports stay: a folder that is empty or not there. Without it they stay unless all is within.",
            valueName: "dir"
        ),
        completion: .directory
    )
    var keep: String?

    @Argument(parsing: .postTerminator, help: ArgumentHelp("What to run.", valueName: "command"))
    var command: [String] = []

    func validate() throws {
        if command.isEmpty { throw ValidationError("give the command after '--'") }
        if !(1...1000).contains(repeats) { throw ValidationError("--repeat is from 1 to 1000") }
        if let warmUp, warmUp.nanoseconds > 3_600_000_000_000 { throw ValidationError("--warm-up is up to 1h") }
        if keep?.isEmpty == true { throw ValidationError("the folder's name is empty") }
    }

    func run() throws {
        let signals = try Result { () throws(StartError) in try WatchSignals() }
            .mapError { CommandFailure("cannot take signals: \($0)") }.get()
        // A mistake in it is to be told before the command has run for an hour.
        _ = try options.budget.read(isBaselined: options.baseline != nil)
        let folder = try RunFolder(keep)
        var (overviews, status): ([ReportReader.Overview], Int32) = ([], 0)
        while overviews.count < repeats, status == 0 {
            let run = try GateRun(command, try folder.next(), warmUp: warmUp?.nanoseconds ?? 0, signals)
            switch run.finish() {
            case .interrupted:
                Output.note(
                    "ended after \(GateResult.number(overviews.count, "whole run")); reports are in \(folder.path)"
                )
                throw ExitCode(130)
            case .ended(let ending): status = ending
            }
            overviews.append(try run.overview())
        }
        try tell(try options.judge(overviews), status, folder)
    }

    private func tell(_ result: GateResult, _ status: Int32, _ folder: RunFolder) throws {
        let text = try options.text(of: result, width: Terminal.current(STDERR_FILENO).width)
        if options.format == .text { Output.error(text) } else { try Output.write(text) }
        if keep == nil, result.verdict == .within, status == 0 {
            folder.remove()
        } else {
            Output.note("reports are in \(folder.path)")
        }
        if status != 0 {
            Output.note("\(command[0]) ended with exit status \(status)")
            throw ExitCode(status)
        }
        if result.exitCode != .success { throw result.exitCode }
    }
}
