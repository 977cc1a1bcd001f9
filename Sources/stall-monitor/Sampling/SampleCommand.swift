import ArgumentParser
import Glibc
import ProcessWatch
import StackCapture
import StallExport
import StallReports

struct SampleCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "sample",
        abstract: "Shows where a process's threads are: any process, with nothing installed in it.",
        discussion: """
            EXAMPLES
              stall-monitor sample 4711                        the main thread, once
              stall-monitor sample 4711 --all                  every thread
              stall-monitor sample --name redis-server         the process of that name
              stall-monitor sample 4711 --every 10ms --for 5s  how often which stack
              stall-monitor sample 4711 --for 10s --format html -o flames.html
              stall-monitor sample 4711 --for 10s --format pprof -o samples.pb
              stall-monitor sample 4711 --all --format json | jq '.stacks[].frames[0]'

            A sleeping thread is read without disturbing it. A running thread is stopped while its stack is copied: some tens of \
            microseconds, some hundreds on a busy machine. The last lines say how often and how long at most, and what CPU time \
            this command used itself. A thread can stop only while it has a CPU; waits for a CPU are reported separately. While \
            a thread is stopped, this command runs at the lowest real-time priority, so as not to wait for a CPU itself; without \
            permission for that, a thread can be stopped for milliseconds. Ctrl-C ends early and shows partial results, if there \
            are any; a second one ends at once.

            Exit code 0: every requested stack was taken, or with --every and --for at least one. 1: some or all were not; the \
            output says why. 64: wrong usage. 130: ended by Ctrl-C. 143: by SIGTERM. 129: by SIGHUP.

            Requires the same user and ptrace_scope 0, or root, or CAP_SYS_PTRACE.

            Threads are sampled one after the other. JSON is one object, schema stall-sample/1. Collapsed is one line per stack: \
            thread;outermost;…;innermost count. In flame graphs, the width of a stack is the number of its samples.
            """
    )

    enum Format: String, ExpressibleByArgument, CaseIterable {
        case text, json, collapsed, svg, html, speedscope, pprof

        /// Nil for text and JSON, which show more than the stacks.
        var stackFormat: StackFormat? { StackFormat(rawValue: rawValue) }
    }

    @Argument(help: ArgumentHelp("The process id.", valueName: "pid"), completion: Completions.processes)
    var given: Int32?

    @Option(
        help: ArgumentHelp(
            "Instead of a process id: the process with this name or program file: redis-server, 'nginx*'.",
            valueName: "pattern"
        )
    )
    var name: String?

    @Flag(help: "All threads, not only the main thread.")
    var all = false

    @Option(
        parsing: .unconditional,
        help: ArgumentHelp(
            "Sample repeatedly at this interval, 1ms to 1h. (default with --for: 10ms)",
            valueName: "length"
        )
    )
    var every: DurationText?

    @Option(
        name: .customLong("for"),
        parsing: .unconditional,
        help: ArgumentHelp("How long to sample: 5s, 2m. (default with --every: 5s)", valueName: "length")
    )
    var length: DurationText?

    @Option(
        parsing: .unconditional,
        help: ArgumentHelp(
            "The longest wait for the stack of one running thread, 1ms to 1h; on a busy machine, low-priority threads stop late. (default: 2s)",
            valueName: "length"
        )
    )
    var deadline: DurationText?

    @OptionGroup var quiet: QuietOption
    @OptionGroup var colour: ColourOption

    @Option(
        help:
            "Text for people, JSON for programs; svg (a picture) and html (a page to search and zoom in) are flame graphs, the others are for tools that draw them."
    )
    var format: Format = .text

    @OptionGroup var output: OutputOption

    func validate() throws {
        if let given, given <= 0 { throw ValidationError("a process id is 1 or higher") }
        if (given == nil) == (name == nil) { throw ValidationError("give a process id, or --name") }
        if name?.isEmpty == true { throw ValidationError("the name is empty") }
        if let every, !(1_000_000...3_600_000_000_000).contains(every.nanoseconds) {
            throw ValidationError("--every is from 1ms to 1h")
        }
        if let length, length.nanoseconds == 0 { throw ValidationError("--for must be longer than 0") }
        if let deadline, !(1_000_000...3_600_000_000_000).contains(deadline.nanoseconds) {
            throw ValidationError("--deadline is from 1ms to 1h")
        }
        if format == .text, output.file != nil {
            throw ValidationError("--output is for the other formats: give --format")
        }
        if format.stackFormat?.isBinary == true { try output.refuseTerminal(for: format.rawValue) }
    }

    func run() throws {
        let processID = try given ?? onlyProcess(named: name ?? "")
        // Before the sampling: a file that cannot be written is reported at once.
        let sink = try ExportSink(path: output.file)
        StopSignal.hold()
        let pause = InterruptibleWait(endsAtOnce: schedule == nil, sink.discard)
        do {
            var run = try SampleRun(
                processID: processID,
                showsAll: all,
                deadlineNs: deadline?.nanoseconds ?? 2_000_000_000,
                isQuiet: quiet.isQuiet
            )
            let ending = try run.sample(schedule, pause)
            StopSignal.release()
            try show(run.document(ending), in: sink)
            try sink.finish()
            if ending == .interrupted { throw ExitCode(pause.exitCode) }
            try finish(run, processID, ending)
        } catch let error as CaptureError {
            throw CommandFailure("process \(processID): \(error.sentence)")
        }
    }

    private var schedule: SampleSchedule? {
        guard every != nil || length != nil else { return nil }
        return SampleSchedule(
            intervalNs: every?.nanoseconds ?? 10_000_000,
            lengthNs: length?.nanoseconds ?? 5_000_000_000
        )
    }

    private func show(_ document: SampleDocument, in sink: borrowing ExportSink) throws {
        if let format = format.stackFormat {
            try sink.write(format.file(of: document.merged, document.subject, summary: document.summary))
        } else if format == .json {
            try sink.write(Array((JSONText.of(document) + "\n").utf8))
        } else {
            let terminal = colour.terminal()
            let page = SamplePage(document: document, showsCost: !quiet.isQuiet, width: terminal.width)
            try Output.write(page.lines, on: terminal)
        }
    }

    /// The process to sample. If several match, the user has to choose.
    private func onlyProcess(named pattern: String) throws(CommandFailure) -> Int32 {
        let found = ProcessWatch.processes(named: pattern)
        guard let first = found.first else { throw CommandFailure("there is no process named \(pattern)") }
        guard found.count > 1 else { return first }
        let more = found.count > 20 ? ["… and \(quantity(found.count - 20, "other"))"] : []
        throw CommandFailure(
            "\(found.count) processes are named \(pattern): give the id of one",
            found.prefix(20).map(Self.line) + more
        )
    }

    /// `4711  node  /usr/bin/node server.js`: enough to choose one of several.
    private static func line(_ processID: Int32) -> String {
        let process = SampleDocument.Process(processID)
        let bytes = (try? OutputFile.read("/proc/\(processID)/cmdline", limit: 1 << 20)) ?? []
        let words = bytes.split(separator: 0).map { String(decoding: $0, as: UTF8.self) }.joined(separator: " ")
        let command = words.isEmpty ? process.executable ?? "" : String(words.prefix(200))
        return "\(processID)  \(process.name ?? "")  \(command)"
    }

    private func finish(_ run: SampleRun, _ processID: Int32, _ ending: SampleDocument.Ending) throws {
        // Text and JSON contain the failure.
        if let failure = run.failure {
            throw format.stackFormat != nil ? CommandFailure("not all of it: \(failure)") : ExitCode.failure
        }
        if ending == .processEnded, !quiet.isQuiet {
            Output.note("process \(processID) ended after \(quantity(run.rounds, "sample"))")
        }
    }
}
