import ArgumentParser
import ProcessWatch
import StallReports

struct WatchCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "watch",
        abstract:
            "Finds the stalls of any process's event loops and task pools, with nothing installed in it, and writes reports of them.",
        discussion: """
            EXAMPLES
              stall-monitor watch 4711                      until it ends, or Ctrl-C
              stall-monitor watch --name redis-server --reports /var/lib/stalls
              stall-monitor watch --name 'nginx*' --follow  and the children it starts
              stall-monitor watch --threshold 100ms -- node server.js
              stall-monitor watch 4711 --format json | jq -r .culprit.function

            A thread runs an event loop if it is found twice at the same place in epoll_wait or io_uring_enter, on a descriptor of \
            its own. So does a main thread that waits in poll or select for what servers wait for; clients of other servers are \
            not judged. If the main thread's loop always has a timer, as programs with GLib or Qt often do, it looks like a client \
            and needs --main-loop. Five times per threshold this command checks whether each loop rests in its wait. If one does not, a \
            hardware breakpoint at the end of the wait shows whether it turns. A loop that has neither rested nor turned for the \
            threshold is stalled: a report is written, which tail, list, show, top and gate read. Stalls longer than the \
            threshold and one check are found; their beginning is known to within one check.

            It also finds the worker threads that run Swift's tasks. Such a pool runs a limited number of jobs at once. It is \
            stalled if that many workers have each been at one job for the threshold: a breakpoint where a job begins shows \
            that they began no other. Many short jobs, and a long one beside a free worker, are no stall.

            Nothing is injected into the process, and none of its memory is changed. A computing thread is stopped for its \
            stack, for some tens of microseconds, a few times per stall; a resting thread never is. If this command is killed, \
            the kernel removes breakpoints and stops.

            Without permission for breakpoints, only uninterrupted system calls are reported as stalls; for everything else a \
            note says that it is unproven. Loops that were never seen at rest are unknown. Threads that share one epoll \
            descriptor, as in Go and tokio, have no loop of their own and are not judged. Time in which this command itself had \
            no CPU does not count: on an overloaded machine, stalls are reported late or not at all.

            A report also says how many clients waited at least when the stall was found, as far as the kernel knows them, and \
            which thread held the lock for which the loop waited. Code generated at run time has names if its runtime writes \
            /tmp/perf-PID.map: node --perf-basic-prof --interpreted-frames-native-stack (the first option alone names compiled \
            functions only), python -X perf, agents of the JVM.

            Requires the same user and ptrace_scope 0, or root, or CAP_SYS_PTRACE; and for breakpoints \
            kernel.perf_event_paranoid of 2 or less, or CAP_PERFMON. With '-- COMMAND', SIGINT, SIGTERM, SIGHUP and SIGQUIT are \
            passed on to the command, this command exits with its status, and prints everything to standard error, JSON, too: \
            standard output is the command's. With \
            --follow, what the command leaves running is watched, too, such as a daemon in the background, until it ends or a \
            signal ends this command; the signal is not passed on then. If SIGINT, SIGTERM or SIGHUP came before, this command ends \
            with that one.

            Exit code 0: the processes have ended, or SIGTERM ended it. 1: nothing, or not every given process, could be watched \
            (no such process or name, another user's, a kernel thread, or one that has ended), or reports are lost. 64: wrong usage. \
            127: there is no such command. 126: the command cannot be run. 130: ended by Ctrl-C. 129: by SIGHUP. 131: by SIGQUIT.
            """
    )

    @Argument(
        help: ArgumentHelp(
            "Process ids; or, after '--', a command to start and watch.",
            valueName: "pid … | -- command"
        ),
        completion: Completions.processes
    )
    var words: [String] = []

    @Option(
        help: ArgumentHelp(
            "Every process with this name or program file: redis-server, 'nginx*'.",
            valueName: "pattern"
        )
    )
    var name: String?

    @Flag(help: "Also watch children that a watched process starts; with --name also processes that start later.")
    var follow = false

    @OptionGroup var polls: MainLoopOption

    @Option(
        help: ArgumentHelp(
            "The report directory. (default: $STALL_MONITOR_DIRECTORY, else ./stall-reports)",
            valueName: "dir"
        ),
        completion: .directory
    )
    var reports: String?

    @Option(
        parsing: .unconditional,
        help: ArgumentHelp(
            "A loop that is blocked for this long is stalled: 50ms to 1h. (default: 250ms)",
            valueName: "length"
        )
    )
    var threshold: DurationText?

    @Option(
        help:
            "Text for people, or JSON for programs: one report per line, when a stall begins and when it ends."
    )
    var format: OutputFormat = .text

    @OptionGroup var quiet: QuietOption
    @OptionGroup var symbols: SymbolFilesOption

    @Flag(
        inversion: .prefixedNo,
        help: "Use hardware breakpoints. Without them, only uninterrupted system calls are reported as stalls."
    )
    var breakpoints = true

    func validate() throws {
        try reports.map(ReportsArgument.check)
        if let reports, CollectorCopy.isAddress(reports) {
            throw ValidationError(
                "'\(reports)' is a collector's address: 'watch' writes into a directory, and 'ship' sends"
            )
        }
        if let word = words.dropLast(command.count).first(where: { Int32($0) == nil }) {
            throw ValidationError(
                "'\(CommandFailure(word))' is not the number of a process; a command stands after '--', a name after --name"
            )
        }
        let ways = [!processIDs.isEmpty, name != nil, !command.isEmpty].count { $0 }
        guard ways == 1 else {
            throw ValidationError(
                "give \(ways == 0 ? "one" : "only one") of: numbers of processes, --name, or a command after '--'"
            )
        }
        if processIDs.contains(where: { $0 <= 0 }) { throw ValidationError("a process id is 1 or higher") }
        if name?.isEmpty == true { throw ValidationError("the name is empty") }
        if command.first?.isEmpty == true { throw ValidationError("the command's name is empty") }
        if let threshold, !(50_000_000...3_600_000_000_000).contains(threshold.nanoseconds) {
            throw ValidationError("--threshold is from 50ms to 1h")
        }
    }

    func run() throws {
        // This comes first: a signal must not end the process before its ongoing reports are closed.
        let signals = try WatchSignals.taken()
        StopSignal.hold()
        var run = try WatchRun(self, signals)
        let ending = run.watch()
        let lost = run.close()
        switch ending {
        case .ended, .terminated: if lost > 0 || run.isIncomplete { throw ExitCode.failure }
        case .interrupted(let signal): throw ExitCode(128 + signal)
        case .commandEnded(let status): throw ExitCode(status)
        }
    }

    /// The words before '--'.
    var processIDs: [Int32] { words.dropLast(command.count).compactMap { Int32($0) } }

    /// The words after '--'. The parser returns both as one list.
    var command: [String] {
        let all = CommandLine.arguments
        return all.firstIndex(of: "--").map { words.suffix(all.count - $0 - 1) } ?? []
    }

    var directory: String { reports ?? ReportDirectory.defaultPath }
}
