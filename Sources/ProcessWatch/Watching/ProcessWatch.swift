import CProcessWatch
import Glibc
import RunLoopKit
package import StackCapture
import StallDiagnosis
package import StallMonitor
import StallReports
package import Symbolication

/// Options for watching processes.
package struct WatchOptions: Sendable {
    /// The time between two looks: 10 ms to 10 s.
    package var tick: Duration
    /// A loop that does not turn for this long is stalled. At least two ticks.
    package var threshold: Duration
    /// Whether the children of a watched process are watched too.
    package var followsChildren: Bool
    /// Where to look for symbols.
    package var symbols: SymbolSearch
    /// Whether a main thread that waits in poll or select at one place again and again runs a loop, whatever it waits for. Otherwise what it
    /// waits for decides.
    package var takesPollsForLoops = false
    /// Whether breakpoints are used. Without them, only an uninterrupted system call is reported as a stall.
    package var usesBreakpoints = true

    /// The number of looks between two searches for new threads, children and processes.
    package var looksPerScan: Int { max(1, Int((.seconds(1) / tick).rounded())) }

    /// The threshold in ticks, rounded up.
    package var ticks: Int { Int((threshold / tick).rounded(.up)) }

    package init(
        threshold: Duration = .milliseconds(250),
        followsChildren: Bool = false,
        symbols: SymbolSearch = SymbolSearch()
    ) {
        self.threshold = max(.milliseconds(50), min(threshold, .seconds(3600)))
        tick = max(.milliseconds(10), min(self.threshold / 5, .seconds(10)))
        (self.followsChildren, self.symbols) = (followsChildren, symbols)
    }
}

/// Watches the event loops of other processes without installing anything in them: it looks at them each tick, decides with
/// ``LoopRule``, and passes stalls to ``OutsideReporter``. All calls must come from one thread.
package final class ProcessWatch {
    /// The processor time of the watching thread when the previous look began.
    private var lastProcessorTime = Duration.zero
    private let options: WatchOptions
    private let reporter: OutsideReporter
    private let tell: (WatchNote) -> Void
    private let supply: BreakpointSupply
    private var processes: [Int32: WatchedProcess] = [:]
    /// The command whose orphans are watched, too.
    private var command: StartedCommand?
    /// Children that cannot be watched, so that each is named once.
    private var refused: Set<Int32> = []
    private var clock: LookClock
    private var ticks = 0
    /// The limit of open files while nothing is watched.
    private var usualLimit: rlimit?
    private static let openFiles = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)

    package init(_ options: WatchOptions, _ reporter: OutsideReporter, tell: @escaping (WatchNote) -> Void) {
        (self.options, self.reporter, self.tell) = (options, reporter, tell)
        clock = LookClock(tick: options.tick, firstAt: .now)
        supply = BreakpointSupply()
        if options.usesBreakpoints, let problem = supply.problem { tell(.unarmed(problem)) }
    }

    /// Watches a command, which this process has started. If children are followed and it adopts orphans, these are followed, too.
    ///
    /// - Throws: Why the command itself cannot be watched, for example because it has ended. Its orphans can be.
    package func add(_ command: StartedCommand) throws(CaptureError) {
        self.command = command
        try add(command.processID)
    }

    /// Watches one more process.
    ///
    /// - Throws: Why it cannot be watched, and what to do.
    package func add(_ processID: Int32) throws(CaptureError) {
        guard processes[processID] == nil else { return }
        allowManyFiles()
        // A process takes some files itself, besides those of its threads: a server's children could use up those that reports need.
        guard processes.isEmpty || OpenFiles.exhaustedLimit == nil else {
            throw CaptureError(.systemCallFailed, underlying: EMFILE)
        }
        let process = try WatchedProcess(
            processID,
            options,
            reporter,
            hasBreakpoints: options.usesBreakpoints && supply.isThere,
            tell: tell
        )
        processes[processID] = process
        tell(.watching(processID: processID, name: process.name))
    }

    /// Three files are kept open for each thread, and the usual limit is 1,024. A command that is started meanwhile would inherit the limit.
    private func allowManyFiles() {
        guard usualLimit == nil else { return }
        var limit = rlimit()
        guard unsafe getrlimit(Self.openFiles, &limit) == 0 else { return }
        usualLimit = limit
        limit.rlim_cur = limit.rlim_max
        _ = unsafe setrlimit(Self.openFiles, &limit)
    }

    private func restoreLimit() {
        guard var limit = usualLimit else { return }
        usualLimit = nil
        _ = unsafe setrlimit(Self.openFiles, &limit)
    }

    /// The watched processes that have not ended.
    package var processIDs: [Int32] { processes.keys.sorted() }

    /// Looks at all processes. Call it when `wait` has returned.
    package func look() {
        let now = MonotonicInstant.now
        let processorTime = Duration.nanoseconds(Int64(clamping: ThreadClock.nanoseconds))
        let lateness = clock.begin(at: now, worked: processorTime - lastProcessorTime)
        lastProcessorTime = processorTime
        ticks += 1
        var loops = 0
        for (id, process) in processes {
            if let found = process.look(lateness: lateness) {
                loops += found
            } else {
                process.release(as: .terminated)
                processes[id] = nil
                tell(.ended(processID: id, name: process.name))
            }
        }
        if ticks % options.looksPerScan == 0 { follow() }
        reporter.looked(at: loops, late: lateness > .zero)
        clock.end(at: .now, maturity: processes.values.compactMap(\.maturity).min())
    }

    /// Waits until the next look is due, a process has ended, or one of the descriptors is readable. Ctrl-Z that is held (``StopSignal``) stops
    /// this process here: no thread is held, and the next look notices that it is late.
    ///
    /// - Returns: whether a process has ended or a descriptor is readable.
    @discardableResult
    package func wait(_ descriptors: [Int32]) -> Bool {
        let all = descriptors + processes.values.compactMap(\.handle)
        return unsafe process_watch_wait(all, Int32(all.count), clock.due.nanoseconds, true) > 0
    }

    /// Searches for children of the watched processes, if they are followed, and for adopted orphans.
    package func follow() {
        guard options.followsChildren else { return }
        // A command may leave orphans faster than they can be let go. The next search finds the others.
        var searches = 1
        while addChildren(), searches < 16 { searches += 1 }
    }

    /// - Returns: Whether an orphan has ended meanwhile: its own children are this process's by now.
    private func addChildren() -> Bool {
        var hasMissed = false
        // These are not added below, where the others are let go.
        if command != nil { refused = refused.filter { !StartedCommand.reap($0) } }
        let parents = processes.keys.map { ObservedProcess(otherID: $0) } + (command == nil ? [] : [.own])
        var children = Set(parents.flatMap(ChildProcesses.numbers))
        if let command { children.subtract(command.formerChildren.union([command.processID])) }
        // The number of one that has ended may be given to another.
        refused.formIntersection(children)
        for child in children.sorted() where processes[child] == nil && !refused.contains(child) {
            do throws(CaptureError) {
                try add(child)
            } catch {
                if error.isByProcessEnd {
                    if command != nil, StartedCommand.reap(child) { hasMissed = true }
                    continue
                }
                refused.insert(child)
                tell(.refused(processID: child, error: error))
            }
        }
        return hasMissed
    }

    /// Ends the watching. Reports of stalls that still last are closed.
    package func end() {
        for process in processes.values { process.release(as: .abandoned) }
        // Otherwise the next look would begin with its orphans again.
        (processes, command) = ([:], nil)
        supply.close()
        restoreLimit()
    }

    /// The ids of processes with a matching name: see ``ProcessFiles/named(_:)``.
    package static func processes(named pattern: String) -> [Int32] { ProcessFiles.named(pattern) }
}

/// When the next look is due, and how late a look began. Pure: it reads no clock.
struct LookClock: Hashable, Sendable {
    private let tick: Duration
    private(set) var due: MonotonicInstant
    private var lastBegan: MonotonicInstant?

    init(tick: Duration, firstAt due: MonotonicInstant) { (self.tick, self.due) = (tick, due) }

    /// Begins a look. A look that begins early does not change when the next one is due.
    ///
    /// - Parameter worked: The processor time that the watcher has used since the previous look began. The first stack of a
    ///   large program takes more than a tick: that is work and no lateness, because breakpoints prove the turns that happen
    ///   during it.
    /// - Returns: How late the look began; zero if it does not matter. It is measured from the beginning of the previous
    ///   look, so the part of a long look in which the watcher did not run counts: the whole machine may have been stopped.
    mutating func begin(at now: MonotonicInstant, worked: Duration = .zero) -> Duration {
        defer { lastBegan = now }
        guard let lastBegan else { return .zero }
        let lateness = now - min(due, lastBegan + max(tick, worked + tick / 10))
        return lateness > tick / 5 ? lateness : .zero
    }

    /// Ends a look.
    ///
    /// - Parameter maturity: When the first of the loops reaches its threshold, unless it turns before.
    mutating func end(at now: MonotonicInstant, maturity: MonotonicInstant?) {
        guard let began = lastBegan, began >= due else { return }
        due = due + tick
        if due < now { due = now + tick / 10 }
        if let maturity, maturity > began { due = min(due, maturity) }
    }
}

extension CaptureError {
    /// Whether a process that was to be watched has ended, or is about to. A child that has ended is a zombie. At first only the first thread of a
    /// process is looked at, so one that is gone is the process's end, too.
    package var isByProcessEnd: Bool { [.noSuchProcess, .zombie, .threadGone].contains(code) }
}
