import Glibc
import ProcessWatch
import RunLoopKit
import StackCapture
import StallMonitor
import StallReading
import StallReports

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
        case .unarmed, .crowded: Output.note(note.words)
        case .foundLoop, .foundPool: hasFound = true
        case .noLoop, .namelessPools, .sharedDescriptor, .refused, .unreadable: processes.append(note.words)
        // Without any breakpoints, `unarmed` says it once for all.
        case .unproven(_, _, _, hasBreakpoints: true), .unprovenPool(_, _, hasBreakpoints: true),
            .unjudged(_, _, mainPolls: true):
            doubts.append(note.words)
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
