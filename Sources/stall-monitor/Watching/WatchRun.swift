import Glibc
import ProcessWatch
import StackCapture
import StallMonitor
import StallReports
import Symbolication
import Synchronization

/// One run of `watch`, from the first check to the closing line.
struct WatchRun {
    enum Ending: Hashable {
        /// Nothing is left to watch.
        case ended
        /// By another signal than SIGTERM.
        case interrupted(Int32)
        /// By SIGTERM, as a supervisor ends services.
        case terminated
        case commandEnded(Int32)
    }

    private let options: WatchCommand
    private let signals: WatchSignals
    private let view: WatchView
    private let reporter: OutsideReporter
    private let watcher: ProcessWatch
    private let started = Timestamp.now()
    private var child: StartedCommand?
    private var rounds = 0
    /// The number of looks between two searches for new processes with the name.
    private let looksPerSearch: Int

    /// - Throws: Why none of the processes can be watched, in one line.
    init(_ options: WatchCommand, _ signals: WatchSignals) throws {
        (self.options, self.signals) = (options, signals)
        var watching = WatchOptions(
            threshold: .nanoseconds(options.threshold?.nanoseconds ?? 250_000_000),
            followsChildren: options.follow,
            symbols: try options.symbols.search(server: nil)
        )
        watching.usesBreakpoints = options.breakpoints
        looksPerSearch = watching.looksPerScan
        let view = WatchView(
            options.format,
            isBesideCommand: !options.command.isEmpty,
            isQuiet: options.quiet.isQuiet
        )
        self.view = view
        let rule = StallRule(tick: watching.tick, ticks: watching.ticks)
        try Self.makeDirectory(options.directory)
        reporter = try OutsideReporter(.init(directory: options.directory, rule: rule)) { view.show($0) }
        watcher = ProcessWatch(watching, reporter) { view.show($0) }
        do {
            try begin()
        } catch {
            close(isQuiet: true)
            throw error
        }
    }

    /// Makes the report directory, or says why it cannot be made: a reader's advice, to start a monitored process, is of no use here.
    private static func makeDirectory(_ path: String) throws {
        do throws(ReportError) {
            try ReportDirectory(path: path).prepare()
        } catch {
            guard [.missingDirectory, .notADirectory].contains(error.code) else { throw error }
            throw CommandFailure(
                "\(error.path ?? path): the report directory cannot be made: \(errorText(error.errorNumber ?? ENOENT)); "
                    + "give another one with --reports"
            )
        }
    }

    private mutating func begin() throws {
        if let name = options.name {
            let found = ProcessWatch.processes(named: name)
            guard !found.isEmpty else { throw CommandFailure("there is no process named \(name)") }
            try add(found, toleratesSome: true)
        } else if options.command.isEmpty {
            try add(options.processIDs, toleratesSome: false)
        } else {
            let child = try StartedCommand.given(options.command)
            self.child = child
            do throws(CaptureError) {
                try watcher.add(child.processID)
            } catch {
                Output.note(error.words(ofStarted: options.command[0]))
            }
        }
    }

    private func add(_ processes: [Int32], toleratesSome: Bool) throws {
        var failures: [CommandFailure] = []
        for id in processes {
            do throws(CaptureError) {
                try watcher.add(id)
            } catch {
                let failure = CommandFailure("process \(id): \(error.sentence)")
                guard toleratesSome else { throw failure }
                failures.append(failure)
            }
        }
        // The last of them is the command's own failure if nothing is left to watch.
        let failure = failures.count == processes.count ? failures.popLast() : nil
        for failure in failures { Output.note(failure.message) }
        if let failure { throw failure }
    }

    /// Watches until nothing is left to watch, or a signal arrives.
    mutating func watch() -> Ending {
        while true {
            let isReady = watcher.wait([signals.descriptor])
            while isReady, let signal = signals.take() {
                guard let child else {
                    if signal.number == SIGCHLD { continue }
                    return signal.number == SIGTERM ? .terminated : .interrupted(signal.number)
                }
                child.pass(on: signal)
            }
            if let status = child?.takeStatus() {
                watcher.look()
                return .commandEnded(status)
            }
            watcher.look()
            rounds += 1
            if options.follow, let name = options.name, rounds % looksPerSearch == 0 { addLater(name) }
            if watcher.processIDs.isEmpty, child == nil, !(options.follow && options.name != nil) { return .ended }
        }
    }

    /// Adds processes with that name that have started since. The first refusal was already reported.
    private func addLater(_ name: String) {
        for id in ProcessWatch.processes(named: name) where !watcher.processIDs.contains(id) { try? watcher.add(id) }
    }

    /// Closes ongoing stalls, waits until they are written, and prints the summary.
    ///
    /// - Returns: The number of reports that could not be written.
    @discardableResult
    func close(isQuiet: Bool = false) -> Int {
        watcher.end()
        let lost = reporter.close()
        if !isQuiet { view.close(after: Timestamp.now().nanoseconds(since: started), options.directory, lost: lost) }
        return lost
    }
}

extension StartedCommand {
    /// Starts the command that the user gave after '--'.
    static func given(_ command: [String]) throws(CommandFailure) -> StartedCommand {
        do throws(StartError) {
            return try StartedCommand(RawArguments.last(command.count))
        } catch {
            throw CommandFailure("\(command[0]): \(error)")
        }
    }
}

extension CaptureError {
    /// Why a command that has just been started is not watched. One that has ended is a zombie, because we are its parent.
    func words(ofStarted command: String) -> String {
        if code == .zombie || code == .noSuchProcess { return "\(command) ended before it could be watched" }
        return "\(command) was started, but cannot be watched: \(sentence)"
    }
}

extension WatchSignals {
    /// For a command, which says why it cannot start.
    static func taken() throws(CommandFailure) -> WatchSignals {
        do throws(StartError) {
            return try WatchSignals()
        } catch {
            throw CommandFailure("cannot take signals: \(error)")
        }
    }
}

/// The output of `watch`. Called on the watcher's and the reporter's threads.
final class WatchView: Sendable {
    private struct State {
        var shown: Set<ULID> = []
        var stalls = 0
        var counted = 0
        /// Counted by thread: a thread that runs another program with a loop counts once.
        var loops: Set<[Int32]> = []
        var pools: Set<String> = []
        var processes = 0
    }

    private let format: OutputFormat
    /// Whether standard output belongs to the watched command.
    private let isBesideCommand: Bool
    /// Whether only stalls and problems are shown.
    private let isQuiet: Bool
    private let state = Mutex(State())

    init(_ format: OutputFormat, isBesideCommand: Bool, isQuiet: Bool) {
        (self.format, self.isBesideCommand, self.isQuiet) = (format, isBesideCommand, isQuiet)
    }

    func show(_ event: StallEvent) {
        switch event {
        case .began(let report), .ended(let report): show(report)
        case .grew: break
        case .suppressed: state.withLock { $0.counted += 1 }
        case .fault(let error): Output.note(error.message)
        case .mended(let error): Output.note("this is over: \(error.message)")
        }
    }

    private func show(_ report: StallReport) {
        let isFirst = state.withLock { state in
            guard state.shown.insert(report.id).inserted else { return false }
            state.stalls += 1
            return true
        }
        if format == .json {
            if let text = try? JSONText.of(report) { write(text + "\n") }
        } else {
            let terminal = Terminal.current(isBesideCommand ? STDERR_FILENO : STDOUT_FILENO)
            write(Self.lines(report, isFirst: isFirst, terminal.width).map { terminal.show($0) + "\n" }.joined())
        }
        // An ended stall is not shown again.
        if report.state != .ongoing { state.withLock { _ = $0.shown.remove(report.id) } }
    }

    /// The lines for a stall that began or ended.
    static func lines(_ report: StallReport, isFirst: Bool, _ width: Int?) -> [StyledText] {
        StallLine.lines(report, isFirst: isFirst).wrapped(to: width, hanging: 4)
    }

    private func write(_ text: String) {
        if isBesideCommand { Output.error(text) } else { try? Output.write(text) }
    }

    func show(_ note: WatchNote) {
        state.withLock { state in
            if case .foundLoop(let process, let thread, _) = note { state.loops.insert([process, thread]) }
            if case .foundPool(let process, let pool, _) = note { state.pools.insert("\(process) \(pool)") }
            if case .watching = note { state.processes += 1 }
        }
        if !isQuiet || Self.isProblem(note) { Output.note(Self.words(note)) }
    }

    /// Whether something is not watched, or not judged.
    private static func isProblem(_ note: WatchNote) -> Bool {
        switch note {
        case .watching, .foundLoop, .foundPool, .newProgram, .ended: false
        case .unprovenPool, .namelessPools, .noLoop, .unjudged, .sharedDescriptor, .unproven, .refused, .unarmed,
            .unreadable, .crowded, .namelessScript:
            true
        }
    }

    static func words(_ note: WatchNote) -> String {
        switch note {
        case .watching(let id, let name): "watching process \(id) (\(name))"
        case .foundLoop(let id, let thread, let loop): "found a loop of process \(id): thread \(thread) (\(loop))"
        case .foundPool(let id, let pool, let width):
            "found a task pool of process \(id): \(pool), \(quantity(width, "job")) at once"
        case .unprovenPool(let id, let pool):
            "no worker of the task pool of process \(id) (\(pool)) is free, and it is unknown whether they go from job to job: only "
                + "uninterrupted system calls of its workers are reported as stalls; with hardware breakpoints it could be judged, see "
                + "'stall-monitor watch --help'"
        case .namelessPools(let id):
            "the task pool of process \(id) is not judged, because its libdispatch has no symbol table; " + remedy(id)
        case .noLoop(let id, let name, let threads):
            "no event loop was found in process \(id) (\(name)) so far: its threads are in "
                + threads.map { $0.count == 1 ? $0.what : "\($0.what) (\($0.count))" }.joined(separator: ", ")
        case .unjudged(let id, let threads):
            "of process \(id) these threads are not judged, because it is unknown whether they run a loop: "
                + threads.prefix(8).map { "\($0.name) (\($0.what))" }.joined(separator: ", ")
                + (threads.count > 8 ? " and \(threads.count - 8) more" : "") + "; " + remedy(id)
        case .sharedDescriptor(let id, let descriptor, let threads):
            "\(threads) threads of process \(id) take turns at epoll descriptor \(descriptor): none of them has a loop of its own, "
                + "so they are not judged; " + remedy(id)
        case .unproven(let id, let thread, let loop):
            "thread \(thread) (\(loop)) of process \(id) is busy, and it is unknown whether its loop turns: only uninterrupted "
                + "system calls of this loop are reported as stalls; with hardware breakpoints it could be judged, see 'stall-monitor watch --help'"
        case .newProgram(let id, let name): "process \(id) runs another program: \(name)"
        case .ended(let id, let name): "process \(id) (\(name)) has ended"
        case .refused(let id, let error):
            "process \(id) is a child of a watched one, and cannot be watched: \(error.sentence)"
        case .unreadable(let id, let name):
            "process \(id) (\(name)) can no longer be watched: it runs as another user now, does not let others read it, or, with "
                + "ptrace_scope 1, is no longer a descendant of this command; root can watch it"
        case .crowded(let id, let openFiles):
            "some threads of process \(id) are not watched: this command may open \(openFiles) files, and needs three for each thread; "
                + "raise its hard limit ('ulimit -Hn', or LimitNOFILE= of a unit)"
        case .namelessScript(let id, let name, let options):
            "stalls of process \(id) (\(name)) do not show the functions of its script: start it with \(options)"
        case .unarmed(let problem): problem
        }
    }

    /// What to do about threads that cannot be judged.
    private static func remedy(_ process: Int32) -> String {
        "'stall-monitor sample \(process) --all --for 5s' shows what they do, and a Swift program that links StallMonitorLoops "
            + "reports their stalls itself"
    }

    /// The last line.
    func close(after nanoseconds: Int64, _ directory: String, lost: Int) {
        let state = state.withLock { $0 }
        let counted = state.counted > 0 ? ", \(state.counted) more of known faults only counted" : ""
        let pools = state.pools.isEmpty ? "" : " and \(quantity(state.pools.count, "task pool"))"
        if !isQuiet {
            Output.note(
                "watched \(quantity(state.loops.count, "loop"))\(pools) of \(quantity(state.processes, "process")) for "
                    + "\(DurationText(nanoseconds: max(0, nanoseconds)).short): \(quantity(state.stalls, "stall"))\(counted)"
                    + "; reports are in \(directory)"
            )
        }
        if lost > 0 {
            Output.note("\(quantity(lost, "report")) could not be written, and \(lost == 1 ? "is" : "are") lost")
        }
    }
}
