import ArgumentParser
import ProcessWatch
import StallReports
import Symbolication

struct WatchCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "watch",
        abstract:
            "Finds the stalls of any process's event loops, with nothing installed in it, and writes reports of them.",
        discussion: """
            EXAMPLES
              stall-monitor watch 4711                      until it ends, or Ctrl-C
              stall-monitor watch --name redis-server --reports /var/lib/stalls
              stall-monitor watch --name 'nginx*' --follow  and the children it starts
              stall-monitor watch --threshold 100ms -- node server.js
              stall-monitor watch 4711 --format json | jq -r .culprit.function

            It finds the threads that turn a loop by itself: those found twice at one place in epoll_wait, epoll_pwait or \
            io_uring_enter on a descriptor of their own, and the main thread in poll or select if it waits there for what servers \
            wait for: a client of another server is not judged. Five times a threshold it looks \
            whether they rest there. Of one that does not, a hardware breakpoint at the wait's return tells whether it turns; one \
            that has neither rested nor turned for the threshold is stalled, and a report is written into the report directory: tail, list, \
            show, top and gate read it. A stall of the threshold and one look more is found, as long as this command itself gets a \
            processor; its beginning is known to a look.

            Nothing is put into the process and no byte of it is changed. A thread that computes is stopped for its stack, for some tens of \
            microseconds, a few times in each stall; one that rests never is. If this command is killed, breakpoints and stops go \
            with it.

            Where breakpoints are not permitted only an uninterrupted system call is told as a stall; of all else it is said that it is \
            unproven. A loop that was never seen at rest is not known. Threads that take turns at one epoll descriptor, as \
            those of Go and tokio do, turn no loop of their own and are not judged.

            A report also says how many clients waited at least when the stall was found, as far as the kernel knows of them; and code made at \
            run time has names where its maker writes /tmp/perf-PID.map: node --perf-basic-prof, python -X perf, agents of the JVM.

            Time in which this command itself had no processor counts towards no stall: on a machine that is full, stalls are \
            told later or not at all. With one line it leaves with 1 where nothing can be watched: no such process or name, another \
            user's, one of the kernel's, one that has ended.

            It takes the same user and an open ptrace_scope, or root, or CAP_SYS_PTRACE; and for breakpoints \
            kernel.perf_event_paranoid of 2 or less, or CAP_PERFMON. After '--' SIGINT and SIGTERM are passed on to the command, and this \
            one leaves with its exit status when it ends; lines then go to standard error.

            Exit code 0: the processes have ended. 1: nothing could be watched, or reports are lost. 64: wrong usage. 130: ended by Ctrl-C.
            """
    )

    @Argument(
        help: ArgumentHelp(
            "Numbers of processes; or, after '--', a command to start and watch.",
            valueName: "pid … | -- command"
        ),
        completion: Completions.processes
    )
    var words: [String] = []

    @Option(
        help: ArgumentHelp(
            "Every process that is called so, or whose program's file is: redis-server, 'nginx*'.",
            valueName: "pattern"
        )
    )
    var name: String?

    @Flag(help: "The children that a watched process starts, too; with --name also processes that come later.")
    var follow = false

    @Option(help: ArgumentHelp("The report directory.", valueName: "dir"), completion: .directory)
    var reports: String?

    @Option(help: "From how long on a loop that stands still is stalled: 50ms to 1h. (default: 250ms)")
    var threshold: DurationText?

    @Option(
        help:
            "For people or for programs. JSON is one whole report per line, when a stall begins and when it has ended."
    )
    var format: OutputFormat = .text

    @OptionGroup var symbols: SymbolFilesOption

    @Flag(inversion: .prefixedNo, help: "Whether to use hardware breakpoints. Without, see above.")
    var breakpoints = true
    func validate() throws {
        try ReportsArgument.refuseEmpty(reports)
        if words.dropLast(command.count).contains(where: { Int32($0) == nil }) {
            throw ValidationError("a process is given by its number; a command stands after '--', a name after --name")
        }
        let ways = [!processIDs.isEmpty, name != nil, !command.isEmpty].count { $0 }
        guard ways == 1 else {
            throw ValidationError("give one of: numbers of processes, --name, or a command after '--'")
        }
        if processIDs.contains(where: { $0 <= 0 }) { throw ValidationError("a process's number is 1 or higher") }
        if name?.isEmpty == true { throw ValidationError("the name is empty") }
        if let threshold, !(50_000_000...3_600_000_000_000).contains(threshold.nanoseconds) {
            throw ValidationError("--threshold is from 50ms to 1h")
        }
    }

    func run() throws {
        // First of all: none is to end us before what is under way is closed.
        let signals = try Result { () throws(StartError) in try WatchSignals() }
            .mapError { CommandFailure("cannot take signals: \($0)") }.get()
        var run = try WatchRun(self, signals)
        let ending = run.watch()
        let lost = run.close()
        switch ending {
        case .ended: if lost > 0 { throw ExitCode.failure }
        case .interrupted: throw ExitCode(130)
        case .commandEnded(let status): throw ExitCode(status)
        }
    }

    /// What stands before '--'.
    var processIDs: [Int32] { words.dropLast(command.count).compactMap { Int32($0) } }

    /// What stands after it. The parser has made one list of both.
    var command: [String] {
        let all = CommandLine.arguments
        return all.firstIndex(of: "--").map { words.suffix(all.count - $0 - 1) } ?? []
    }

    var directory: String { reports ?? ReportDirectory.defaultPath }
}
