import ArgumentParser
import Dispatch
import Glibc
import ProcessWatch
import StackCapture
import StallReports
import Synchronization

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
              stall-monitor sample 4711 --for 10s --format collapsed | flamegraph.pl >svg
              stall-monitor sample 4711 --all --format json | jq '.stacks[].frames[0]'

            A thread that sleeps is read without its noticing. A thread that runs is stopped for as long as it takes to copy \
            its stack: some tens of microseconds, some hundreds on a busy machine. The last lines say how often and for how \
            long at most, and what this command took itself. A thread can stop only when it has a processor; what it waits for \
            one is no time held, and told apart. While a thread stands, this command has the lowest real-time priority, so as \
            not to wait for a processor itself; where it may not have that, a thread can stand for milliseconds. \
            Ctrl-C ends early and shows what there is, if there is anything; a second one ends at once.

            Exit code 0: every stack that was asked for was taken. 1: some or all were not, and why. 130: ended by Ctrl-C. 64: wrong usage.

            It takes the same user and an open ptrace_scope, or root, or CAP_SYS_PTRACE.

            Each thread is looked at at its own moment. JSON is one object, schema stall-sample/1. Collapsed is one line per \
            stack: thread;outermost;…;innermost count.
            """
    )

    enum Format: String, ExpressibleByArgument, CaseIterable {
        case text, json, collapsed
    }

    @Argument(help: ArgumentHelp("The process's number.", valueName: "pid"), completion: Completions.processes)
    var given: Int32?

    @Option(
        help: ArgumentHelp(
            "In place of a number: the process that is called so, or whose program's file is: redis-server, 'nginx*'.",
            valueName: "pattern"
        )
    )
    var name: String?

    @Flag(help: "All threads, not only the first one.")
    var all = false

    @Option(help: "Sample again and again, at this interval: 1ms to 1h. (default with --for: 10ms)")
    var every: DurationText?

    @Option(name: .customLong("for"), help: "How long to sample: 5s, 2m. (default with --every: 5s)")
    var length: DurationText?

    @Option(
        help: ArgumentHelp(
            "The longest to wait for the stack of one thread that runs: on a busy machine a thread of low priority stops late. (default: 2s)",
            valueName: "length"
        )
    )
    var deadline: DurationText?

    @OptionGroup var colour: ColourOption

    @Option(help: "For people, for programs, or for flame graphs.")
    var format: Format = .text

    func validate() throws {
        if let given, given <= 0 { throw ValidationError("a process's number is 1 or higher") }
        if (given == nil) == (name == nil) { throw ValidationError("give a process's number, or --name") }
        if name?.isEmpty == true { throw ValidationError("the name is empty") }
        if let every, !(1_000_000...3_600_000_000_000).contains(every.nanoseconds) {
            throw ValidationError("--every is from 1ms to 1h")
        }
        if let length, length.nanoseconds == 0 { throw ValidationError("--for is longer than nothing") }
        if let deadline, !(1_000_000...3_600_000_000_000).contains(deadline.nanoseconds) {
            throw ValidationError("--deadline is from 1ms to 1h")
        }
    }

    func run() throws {
        let processID = try given ?? onlyProcess(named: name ?? "")
        let pause = SamplePause(endsAtOnce: schedule == nil)
        do {
            var run = try SampleRun(
                processID: processID,
                showsAll: all,
                deadlineNs: deadline?.nanoseconds ?? 2_000_000_000
            )
            let ending = try run.sample(schedule, pause)
            try show(run.document(ending))
            try finish(run, processID, ending)
        } catch let error as CaptureError {
            throw CommandFailure("process \(processID): \(error)")
        }
    }

    private var schedule: SampleSchedule? {
        guard every != nil || length != nil else { return nil }
        return SampleSchedule(
            intervalNs: every?.nanoseconds ?? 10_000_000,
            lengthNs: length?.nanoseconds ?? 5_000_000_000
        )
    }

    private func show(_ document: SampleDocument) throws {
        switch format {
        case .json: try Output.write(JSONText.escaped(String(decoding: ReportJSON.encode(document), as: UTF8.self)))
        case .collapsed: try Output.write(CollapsedStacks(document: document).text)
        case .text:
            let terminal = colour.terminal()
            try Output.write(SamplePage(document: document, width: terminal.width).lines, on: terminal)
        }
    }

    /// One process is looked at: of several a person picks.
    private func onlyProcess(named pattern: String) throws(CommandFailure) -> Int32 {
        let found = ProcessWatch.processes(named: pattern)
        guard let first = found.first else { throw CommandFailure("no process is called \(pattern)") }
        guard found.count > 1 else { return first }
        let some = found.prefix(20).map { "\($0)" }.joined(separator: ", ")
        let more = found.count > 20 ? " and \(found.count - 20) others" : ""
        throw CommandFailure("\(found.count) processes are called \(pattern): give the number of one: \(some)\(more)")
    }

    private func finish(_ run: SampleRun, _ processID: Int32, _ ending: SampleDocument.Ending) throws {
        if ending == .interrupted { throw ExitCode(130) }
        // Text and JSON have said it.
        if let failure = run.failure {
            throw format == .collapsed ? CommandFailure("not all of it: \(failure)") : ExitCode.failure
        }
        if ending == .processEnded { Output.note("process \(processID) ended after \(run.rounds) samples") }
    }
}

/// Waits that Ctrl-C ends: from here on the signal no longer ends the process by itself.
///
/// The process ends at once where there is nothing to show yet, and at the second signal in any case: the kernel lets every thread of the target go
/// on that this process has stopped (ptrace(2)).
struct SamplePause {
    private let interruption: Interruption
    /// Kept for as long as they are to be heard.
    private let sources: [any DispatchSourceSignal]

    private final class Interruption: Sendable {
        let semaphore = DispatchSemaphore(value: 0)
        let count = Atomic<Int>(0)
    }

    /// - Parameter endsAtOnce: what there is when the signal comes is not worth showing.
    init(endsAtOnce: Bool) {
        let interruption = Interruption()
        self.interruption = interruption
        sources = [SIGINT, SIGTERM, SIGHUP].map { number in
            signal(number, SIG_IGN)
            // Not on the main queue: the main thread is busy with the target.
            let source = DispatchSource.makeSignalSource(signal: number, queue: .global(qos: .userInteractive))
            source.setEventHandler {
                let before = interruption.count.add(1, ordering: .relaxed).oldValue
                if endsAtOnce || before > 0 { _exit(128 + number) }
                interruption.semaphore.signal()
            }
            source.activate()
            return source
        }
    }

    /// Whether the command is to end.
    var isInterrupted: Bool { interruption.count.load(ordering: .relaxed) > 0 }

    /// The opposite, for other threads.
    var goesOn: @Sendable () -> Bool { { [interruption] in interruption.count.load(ordering: .relaxed) == 0 } }

    /// - Parameter moment: on `now`'s clock. Past moments are fine.
    /// - Returns: whether it came to that moment; if not, the command is to end.
    func wait(until moment: Int64) -> Bool {
        let moment = DispatchTime(uptimeNanoseconds: UInt64(max(0, moment)))
        return interruption.semaphore.wait(timeout: moment) == .timedOut
    }

    /// Nanoseconds, monotonic.
    static var now: Int64 { Int64(DispatchTime.now().uptimeNanoseconds) }
}
