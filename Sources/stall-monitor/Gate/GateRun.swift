import ArgumentParser
import Glibc
import ProcessWatch
import RunLoopKit
import StackCapture
import StallGate
import StallMonitor
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

/// One run of a command under the gate. Monitors inside the command report into a directory. Until one of them starts, the
/// command's processes are watched from outside.
struct GateRun {
    struct Ending: Hashable {
        /// The command's exit status, in the form that shells use.
        let status: Int32
        /// SIGINT, SIGTERM or SIGHUP, the last one that we received. Nil: the command ended by itself.
        let signal: Int32?
    }

    private let signals: WatchSignals
    private let child: StartedCommand
    private let watcher: ProcessWatch
    private let reporter: OutsideReporter
    private let start = MonotonicInstant.now
    private let grace: Duration
    private let notes = NotJudged()
    /// Reports of the command's own monitors, and of the watcher outside.
    private let (own, outside): (ReportReader, ReportReader)

    /// Starts the command.
    ///
    /// - Parameters:
    ///   - folder: An empty folder for this run alone.
    ///   - watching: How its processes are watched from outside.
    init(
        _ command: [String],
        _ folder: String,
        _ watching: WatchOptions,
        warmUp: Int64?,
        _ signals: WatchSignals
    ) throws {
        self.signals = signals
        own = ReportReader(path: "\(folder)/inside")
        outside = ReportReader(path: "\(folder)/outside")
        grace = max(.seconds(1), .nanoseconds(warmUp ?? 0))
        // The command may change its working directory. No other thread exists yet that could read the environment.
        unsafe setenv(ReportDirectory.environmentVariable, "\(ReportTree.resolved(folder))/inside", 1)
        if let warmUp {
            // Rounded up: 0 is no warm-up, even if a configuration file has one.
            let milliseconds = (warmUp + 999_999) / 1_000_000
            unsafe setenv(StallMonitor.Configuration.startupGraceVariable, "\(milliseconds)", 1)
        }
        child = try StartedCommand.given(command, adoptsOrphans: true)
        let rule = StallRule(tick: watching.tick, ticks: watching.ticks)
        reporter = try OutsideReporter(.init(directory: outside.path, rule: rule)) { event in
            if case .fault(let error) = event { Output.note(error.message) }
        }
        watcher = ProcessWatch(watching, reporter) { [notes] in notes.add($0) }
    }

    /// Who watches the command's processes.
    private enum Watcher { case nobody, outside, own }

    /// Waits until the command ends. Signals are passed on to it.
    func finish() -> Ending {
        var (active, rounds) = (Watcher.nobody, 0)
        var endingSignal: Int32?
        while true {
            watcher.wait([signals.descriptor])
            endingSignal = passOnSignals() ?? endingSignal
            let status = child.takeStatus()
            watcher.look()
            if let status {
                endWatching(by: active)
                return Ending(status: status, signal: endingSignal)
            }
            rounds += 1
            active = successor(of: active, rounds)
        }
    }

    /// - Returns: The last of these signals that is to end the command. Nil if there was none.
    private func passOnSignals() -> Int32? {
        var ending: Int32?
        while let signal = signals.take() {
            child.pass(on: signal)
            if signal.number == SIGCHLD { child.reapOrphans() }
            if [SIGINT, SIGTERM, SIGHUP].contains(signal.number) { ending = signal.number }
        }
        return ending
    }

    /// Who watches from now on.
    ///
    /// - Parameter rounds: How often this was asked: the directory is not read each time.
    private func successor(of active: Watcher, _ rounds: Int) -> Watcher {
        let age = MonotonicInstant.now - start
        switch active {
        case .nobody where age >= .milliseconds(500) && hasOwnMonitor,
            .outside where rounds % 20 == 0 && hasOwnMonitor:
            watcher.end()
            return .own
        case .nobody where age >= grace:
            watchFromOutside()
            return .outside
        default: return active
        }
    }

    private func endWatching(by active: Watcher) {
        if active != .own { watcher.end() }
        reporter.close()
        if active != .own { notes.show() }
        // Only what is judged is kept: whoever reads the whole folder would also find a watcher that watched nothing.
        guard hasOwnMonitor else { return }
        noteUnjudged()
        RunFolder.removeReports(in: outside.path)
    }

    /// What was seen from outside before a monitor of the command reported, such as a build before a test, is not judged. Without this note,
    /// 'within' would say too much.
    private func noteUnjudged() {
        guard let seen = try? outside.overview() else { return }
        let names = Set(
            seen.stalls.compactMap(\.service) + seen.runs.flatMap { run in (run.repeated ?? []).compactMap(\.service) }
        )
        let (count, some) = (seen.stalls.count.addingSaturated(seen.countedOnly), names.sorted().prefix(4))
        guard count > 0 else { return }
        let more = names.count > some.count ? " and \(names.count - some.count) more" : ""
        Output.note(
            "\(quantity(count, "stall")) of \(some.joined(separator: ", "))\(more), seen from outside before a monitor of the command reported, "
                + "\(count == 1 ? "is" : "are") not judged; to judge such a process, run it in a gate of its own"
        )
    }

    private func watchFromOutside() {
        do throws(CommandFailure) {
            try WatchRun.check()
        } catch {
            return Output.note(error.message)
        }
        do throws(CaptureError) {
            try watcher.add(child)
        } catch {
            Output.note(error.words(ofStarted: "the command"))
        }
    }

    private var hasOwnMonitor: Bool { ((try? own.names()) ?? []).contains { $0.content == .run } }

    /// The reports to judge: those of the command's own monitors if there are any, otherwise those of the watcher outside.
    func overview() throws(ReportError) -> ReportReader.Overview { try (hasOwnMonitor ? own : outside).overview() }
}

/// What the watcher outside says of what it does not judge. That it finds nothing to watch in a process is shown only if it found nothing in any
/// of them: beside a server, a shell without a loop is no news. Confined to the watcher's thread.
private final class NotJudged {
    private var processes: [String] = []
    /// Loops and pools beside those that are judged: without these notes, 'within' would say too much.
    private var doubts: [String] = []
    private var hasFound = false
    private static let mostLines = 4

    func add(_ note: WatchNote) {
        switch note {
        case .unarmed, .crowded: Output.note(WatchView.words(note))
        case .foundLoop, .foundPool: hasFound = true
        case .noLoop, .namelessPools, .sharedDescriptor, .refused, .unreadable: processes.append(WatchView.words(note))
        // Without any breakpoints, `unarmed` says it once for all.
        case .unproven(_, _, _, hasBreakpoints: true), .unprovenPool(_, _, hasBreakpoints: true),
            .unjudged(_, _, mainPolls: true):
            doubts.append(WatchView.words(note))
        default: break
        }
    }

    func show() {
        let lines = hasFound ? doubts : processes + doubts
        lines.prefix(Self.mostLines).forEach(Output.note)
        let more = lines.count - Self.mostLines
        if more > 0 { Output.note("\(quantity(more, "more such note")) \(more == 1 ? "is" : "are") left out") }
    }
}

/// A folder with one subfolder per run.
final class RunFolder {
    let path: String
    private(set) var runs = 0
    /// Whether the folder itself was made here.
    private let isOwn: Bool

    /// - Parameter keep: An empty or missing folder; nil creates a temporary one.
    init(_ keep: String?) throws(CommandFailure) {
        guard let keep else {
            (path, isOwn) = (try Folder.makeTemporary(named: "stall-gate"), true)
            return
        }
        path = keep
        isOwn = unsafe mkdir(keep, 0o700) == 0
        if isOwn { return }
        guard errno == EEXIST, Folder.exists(keep) else {
            throw CommandFailure("--keep \(keep): \(errorText(errno))")
        }
        guard Folder.names(in: keep).isEmpty else {
            throw CommandFailure(
                "--keep \(keep): it is not empty; give an empty folder, or a new name"
            )
        }
    }

    /// Creates the next run's folder.
    func next() throws(CommandFailure) -> String {
        runs += 1
        let folder = "\(path)/run-\(runs)"
        guard unsafe mkdir(folder, 0o700) == 0 else {
            throw CommandFailure("\(folder): \(errorText(errno))")
        }
        return folder
    }

    /// Removes the reports of all runs. Other files in the folder stay.
    func remove() { while runs > 0 { removeLast() } }

    /// Removes the reports of the last run, and with the first one the folder, unless the user has made it or other files are in it.
    func removeLast() {
        for kind in ["inside", "outside"] { Self.removeReports(in: "\(path)/run-\(runs)/\(kind)") }
        unsafe _ = rmdir("\(path)/run-\(runs)")
        runs -= 1
        if runs == 0, isOwn { unsafe _ = rmdir(path) }
    }

    /// Removes a report directory.
    static func removeReports(in folder: String) {
        for name in Folder.names(in: folder) { unsafe _ = unlink("\(folder)/\(name)") }
        unsafe _ = rmdir(folder)
    }
}
