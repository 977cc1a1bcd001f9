import ArgumentParser
import Glibc
import ProcessWatch
import StackCapture
import StallMonitor
import StallReports

/// One run of `watch`, from the first check to the closing line.
struct WatchRun {
    enum Ending: Hashable {
        /// Nothing is left to watch.
        case ended
        /// It was ended by another signal than SIGTERM.
        case interrupted(Int32)
        /// It was ended by SIGTERM, as a supervisor ends services.
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
    /// Whether one of the given processes could not be watched.
    private(set) var isIncomplete = false
    /// Whether a signal that was to end both has been passed on to the command.
    private var isToEnd = false
    private var rounds = 0
    /// The number of looks between two searches for new processes with the name.
    private let looksPerSearch: Int

    /// - Throws: Why none of the processes can be watched, in one line.
    init(_ options: WatchCommand, _ signals: WatchSignals) throws {
        try Self.check()
        (self.options, self.signals) = (options, signals)
        var watching = WatchOptions(
            threshold: .nanoseconds(options.threshold?.nanoseconds ?? 250_000_000),
            followsChildren: options.follow,
            symbols: try options.symbols.search(server: nil)
        )
        watching.usesBreakpoints = options.breakpoints
        watching.takesPollsForLoops = options.polls.mainLoop
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

    /// Checks whether processes can be watched from outside on this kernel.
    ///
    /// - Parameter counts: The kernel's counts for a thread that runs.
    /// - Throws: If there are none.
    static func check(counts: String? = readProcFile("/proc/self/schedstat")) throws(CommandFailure) {
        guard !Schedule.isCounted(in: counts) else { return }
        throw CommandFailure(
            "this kernel does not count how long threads run (/proc/PID/schedstat, CONFIG_SCHED_INFO), and without that a loop that turns "
                + "cannot be told from one that is stalled; watch from inside, with the library, or on another kernel"
        )
    }

    /// Makes the report directory, or says why it cannot be made: a reader's advice, to start a monitored process, is of no use here.
    private static func makeDirectory(_ path: String) throws {
        do throws(ReportError) {
            try ReportDirectory(path: path).prepare()
        } catch {
            let reason = errorText(error.errorNumber ?? ENOENT)
            let problem: String
            switch error.code {
            case .missingDirectory, .notADirectory: problem = "the report directory cannot be made: \(reason)"
            // Often the working directory is another user's, and reports would go into a new directory below it.
            case .permissionDenied: problem = "reports may not be written there: \(reason)"
            default: throw error
            }
            throw CommandFailure("\(error.path ?? path): \(problem); give another one with --reports")
        }
    }

    private mutating func begin() throws {
        if let name = options.name {
            let found = ProcessWatch.processes(named: name)
            guard !found.isEmpty else { throw CommandFailure("there is no process named \(name)") }
            _ = try add(found)
        } else if options.command.isEmpty {
            isIncomplete = try add(options.processIDs)
        } else {
            let child = try StartedCommand.given(options.command, adoptsOrphans: options.follow)
            self.child = child
            do throws(CaptureError) {
                try watcher.add(child)
            } catch {
                Output.note(error.words(ofStarted: options.command[0]))
            }
        }
    }

    /// Watches those of the processes that can be watched, and says why the others cannot: one may have ended since it was looked up.
    ///
    /// - Returns: Whether one is not watched.
    /// - Throws: Why none is.
    private func add(_ processes: [Int32]) throws -> Bool {
        var failures: [CommandFailure] = []
        for id in processes {
            do throws(CaptureError) {
                try watcher.add(id)
            } catch {
                failures.append(CommandFailure("process \(id): \(error.sentence)"))
            }
        }
        // The last of them is the command's own failure if nothing is left to watch.
        let failure = failures.count == processes.count ? failures.popLast() : nil
        for failure in failures { Output.note(failure.message) }
        if let failure { throw failure }
        return !failures.isEmpty
    }

    /// Watches until nothing is left to watch, or a signal arrives.
    mutating func watch() -> Ending {
        var ending = Ending.ended
        while true {
            let isReady = watcher.wait([signals.descriptor])
            if isReady, let ending = takeSignals() { return ending }
            let status = child?.takeStatus()
            watcher.look()
            if let status, let command = child {
                guard options.follow, !isToEnd else { return .commandEnded(status) }
                (child, ending) = (nil, .commandEnded(status))
                watcher.follow()
                noteWhatIsLeft(by: command)
            }
            rounds += 1
            if options.follow, let name = options.name, rounds % looksPerSearch == 0 { addLater(name) }
            if watcher.processIDs.isEmpty, child == nil, !(options.follow && options.name != nil) {
                // The last process may have left children.
                watcher.follow()
                if watcher.processIDs.isEmpty { return ending }
            }
        }
    }

    /// Passes signals on to the command. Without one, the first that is not about a child ends the run.
    private mutating func takeSignals() -> Ending? {
        while let signal = signals.take() {
            if let child {
                child.pass(on: signal)
                if [SIGINT, SIGTERM, SIGHUP].contains(signal.number) { isToEnd = true }
            } else if signal.number != SIGCHLD {
                // A stall may have ended since the last look.
                watcher.look()
                return signal.number == SIGTERM ? .terminated : .interrupted(signal.number)
            }
        }
        return nil
    }

    private func noteWhatIsLeft(by command: StartedCommand) {
        // The command itself may be among them until the next look.
        guard watcher.processIDs.contains(where: { $0 != command.processID }), !options.quiet.isQuiet else { return }
        Output.note("the command has ended; what it started and left running is watched until that has ended, too")
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
        StopSignal.release()
        let lost = reporter.close()
        if !isQuiet { view.close(after: Timestamp.now().nanoseconds(since: started), options.directory, lost: lost) }
        return lost
    }
}

extension StartedCommand {
    /// Starts the command that the user gave after '--'.
    ///
    /// - Throws: The exit status that shells and env(1) use for a command that cannot be run.
    static func given(_ command: [String], adoptsOrphans: Bool = false) throws -> StartedCommand {
        do throws(StartError) {
            return try StartedCommand(RawArguments.last(command.count), adoptsOrphans: adoptsOrphans)
        } catch {
            let failure = CommandFailure("\(command[0]): \(error)")
            // There was no process to run it in.
            if [EAGAIN, ENOMEM].contains(error.errorNumber) { throw failure }
            Output.note(failure.message)
            throw ExitCode(error.errorNumber == ENOENT ? 127 : 126)
        }
    }
}

extension CaptureError {
    /// Why a command that has just been started is not watched.
    func words(ofStarted command: String) -> String {
        if isByProcessEnd { return "\(command) ended before it could be watched" }
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
