import Glibc
import ProcessWatch
import StackCapture
import StallMonitor
import StallReports
import Symbolication

/// One run of `watch`, from the first look to the closing line.
struct WatchRun {
    enum Ending: Hashable {
        /// Nothing is left to watch.
        case ended
        case interrupted
        case commandEnded(Int32)
    }

    private let options: WatchCommand
    private let signals: WatchSignals
    private let view: WatchView
    private let desk: OutsideReporter
    private let watcher: ProcessWatch
    private let started = Timestamp.now()
    private var child: StartedCommand?
    private var looks = 0

    /// - Throws: why none of the processes can be watched, in one line.
    init(_ options: WatchCommand, _ signals: WatchSignals) throws {
        (self.options, self.signals) = (options, signals)
        var watching = WatchOptions(
            threshold: .nanoseconds(options.threshold?.nanoseconds ?? 250_000_000),
            followsChildren: options.follow,
            symbols: try options.symbols.search(server: nil)
        )
        watching.usesBreakpoints = options.breakpoints
        let view = WatchView(options.format, isBesideCommand: !options.command.isEmpty)
        self.view = view
        let rule = StallRule(tick: watching.tick, ticks: watching.ticks)
        try CommandFailure.wrapping { () throws(ReportError) in
            try ReportDirectory(path: options.directory).prepare()
        }
        desk = try OutsideReporter(.init(directory: options.directory, rule: rule)) { view.show($0) }
        watcher = ProcessWatch(watching, desk) { view.show($0) }
        do {
            try begin()
        } catch {
            close(isQuiet: true)
            throw error
        }
    }

    private mutating func begin() throws {
        if let name = options.name {
            let found = ProcessWatch.processes(named: name)
            guard !found.isEmpty else { throw CommandFailure("no process is called \(name)") }
            try add(found, toleratesSome: true)
        } else if options.command.isEmpty {
            try add(options.processIDs, toleratesSome: false)
        } else {
            let child = try start(options.command)
            self.child = child
            do throws(CaptureError) {
                try watcher.add(child.processID)
            } catch {
                Output.note("\(options.command[0]) runs, but cannot be watched: \(error)")
            }
        }
    }

    private func start(_ command: [String]) throws(CommandFailure) -> StartedCommand {
        do throws(StartError) {
            return try StartedCommand(command)
        } catch {
            throw CommandFailure("\(command[0]): \(error)")
        }
    }

    private func add(_ processes: [Int32], toleratesSome: Bool) throws {
        var failure: CommandFailure?
        var count = 0
        for id in processes {
            do throws(CaptureError) {
                try watcher.add(id)
                count += 1
            } catch {
                failure = CommandFailure("process \(id): \(error)")
                guard toleratesSome else { throw failure ?? CommandFailure("") }
                Output.note(failure?.message ?? "")
            }
        }
        if count == 0, let failure { throw failure }
    }

    /// Until there is nothing left to watch, or somebody ends it.
    mutating func watch() -> Ending {
        while true {
            watcher.wait([signals.descriptor])
            while let signal = signals.take() {
                guard let child else {
                    if signal.number != SIGCHLD { return .interrupted }
                    continue
                }
                child.pass(on: signal)
            }
            if let status = child?.takeStatus() {
                watcher.look()
                return .commandEnded(status)
            }
            watcher.look()
            looks += 1
            if options.follow, let name = options.name, looks % 20 == 0 { addLater(name) }
            if watcher.processIDs.isEmpty, child == nil, !(options.follow && options.name != nil) { return .ended }
        }
    }

    /// Processes of the name that came later. One that may not be watched was told of at its first refusal.
    private func addLater(_ name: String) {
        for id in ProcessWatch.processes(named: name) where !watcher.processIDs.contains(id) { try? watcher.add(id) }
    }

    /// Closes what is under way, waits until it is written, and says what there was.
    ///
    /// - Returns: how many reports could not be written.
    @discardableResult
    func close(isQuiet: Bool = false) -> Int {
        watcher.end()
        let lost = desk.close()
        if !isQuiet { view.close(after: Timestamp.now().nanoseconds(since: started), options.directory, lost: lost) }
        return lost
    }
}
