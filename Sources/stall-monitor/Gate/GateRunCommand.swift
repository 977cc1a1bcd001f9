import ArgumentParser
import Glibc
import ProcessWatch
import StallGate
import StallReading
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

            The command gets an empty report directory in $STALL_MONITOR_DIRECTORY; monitors in it, or in any process that it \
            starts, report there. If none does within a second, or within the warm-up if that is longer, its processes are \
            watched from outside, as by 'stall-monitor watch --follow'. Stalls in the warm-up do not count: monitors in the \
            command read its length from $STALL_MONITOR_STARTUP_GRACE_MILLISECONDS when they start. It replaces a \
            'startupGraceMilliseconds' of their configuration file, also a longer one. Of a 'startupGrace' that is set in code, \
            the longer counts.

            Each run is judged by the budget separately: a limit exceeded in more than half of the runs is over budget; in fewer \
            runs it is intermittent, which is inconclusive. All runs together are compared with the baseline. The verdict goes to \
            standard error; JSON and JUnit go to standard output, like the command's own output.

            Exit code 0: within. 1: cannot judge, also because nothing was watched. 2: over budget or worse. 3: inconclusive. \
            64: wrong usage. 130: ended by Ctrl-C; 143 or 129: by SIGTERM or SIGHUP before the last run. If the command itself \
            fails, it is not repeated, and after the verdict its exit status is used, but 1 instead of 3; 127 if there is no such \
            command, 126 if it cannot be run.
            """
    )

    @OptionGroup var options: JudgeOptions

    @Option(
        name: .customLong("repeat"),
        parsing: .unconditional,
        help: ArgumentHelp("How many times to run the command, 1 to 1000.", valueName: "number")
    )
    var repeats = 1

    @Option(
        parsing: .unconditional,
        help: ArgumentHelp(
            "Ignore stalls for this long after each start, up to an hour: 2s. It replaces a length in a configuration file.",
            valueName: "length"
        )
    )
    var warmUp: DurationText?

    @Option(
        help: ArgumentHelp(
            "Keep the reports in this folder, which must be empty or missing. Without it they are deleted if the verdict is 'within'.",
            valueName: "dir"
        ),
        completion: .directory
    )
    var keep: String?

    @OptionGroup var polls: MainLoopOption

    @OptionGroup var zone: ZoneOption

    @Argument(parsing: .postTerminator, help: ArgumentHelp("What to run.", valueName: "command"))
    var command: [String] = []

    func validate() throws {
        zone.use()
        if command.isEmpty { throw ValidationError("give the command after '--'") }
        if command.first?.isEmpty == true { throw ValidationError("the command's name is empty") }
        if !(1...1000).contains(repeats) { throw ValidationError("--repeat is from 1 to 1000") }
        if let warmUp, warmUp.nanoseconds > 3_600_000_000_000 { throw ValidationError("--warm-up is up to 1h") }
        if keep?.isEmpty == true { throw ValidationError("the folder's name is empty") }
    }

    func run() throws {
        let signals = try WatchSignals.taken()
        StopSignal.hold()
        // Reports a mistake in the budget or the baseline before the command runs for an hour.
        _ = try options.budget.read(isBaselined: options.baseline != nil)
        _ = try options.baselineFile(for: nil)
        let folder = try RunFolder(keep)
        var (overviews, status): ([ReportReader.Overview], Int32) = ([], 0)
        while overviews.count < repeats, status == 0 {
            let run = try start(folder, signals)
            let ending = run.finish()
            // SIGTERM and SIGHUP may be how a server is ended that runs once. Fewer runs than wanted are not judged.
            if let signal = ending.signal, signal == SIGINT || overviews.count + 1 < repeats {
                noteEnd(after: overviews.count, folder)
                throw ExitCode(128 + signal)
            }
            status = ending.status
            overviews.append(try run.overview())
        }
        StopSignal.release()
        let result = try options.judge(overviews)
        let files = options.writeFiles(result, tighteningBy: status == 0 ? overviews : nil)
        try conclude(result, files, status, folder)
    }

    /// Starts the next run. If the command cannot be started, its empty folder is useless, and the next gate would refuse it as not empty.
    private func start(_ folder: RunFolder, _ signals: WatchSignals) throws -> GateRun {
        do {
            var watching = WatchOptions(followsChildren: true)
            watching.takesPollsForLoops = polls.mainLoop
            return try GateRun(command, try folder.next(), watching, warmUp: warmUp?.nanoseconds, signals)
        } catch {
            folder.removeLast()
            if folder.runs > 0 { noteEnd(after: folder.runs, folder) }
            throw error
        }
    }

    /// Fewer runs than wanted are not judged.
    private func noteEnd(after runs: Int, _ folder: RunFolder) {
        Output.note("ended after \(quantity(runs, "whole run")); reports are in \(folder.path)")
    }

    private func conclude(
        _ result: GateResult,
        _ files: Result<Void, any Error>,
        _ status: Int32,
        _ folder: RunFolder
    ) throws {
        let text = try options.text(of: result, width: Terminal.current(STDERR_FILENO).width)
        if options.format == .text { Output.error(text) } else { try Output.write(text) }
        if keep == nil, result.verdict == .within, status == 0 {
            folder.remove()
        } else {
            Output.note("reports are in \(folder.path)")
        }
        try files.get()
        if status != 0 {
            Output.note("\(command[0]) ended with exit status \(status)")
            // 3 would mean that the gate is inconclusive, which jobs let pass.
            throw ExitCode(status == 3 ? 1 : status)
        }
        if result.exitCode != .success { throw result.exitCode }
    }
}
