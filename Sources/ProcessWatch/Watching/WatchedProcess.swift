import CProcessWatch
import Glibc
import RunLoopKit
import StackCapture
import StallDetection
import StallDiagnosis
import StallMonitor
import StallReports
import Symbolication

/// One watched process, until it ends. It may run several programs in succession. Confined to the watcher's thread.
final class WatchedProcess {
    let processID: Int32
    let files: ProcessFiles
    private let reporter: OutsideReporter
    private let options: WatchOptions
    private let hasBreakpoints: Bool
    private let tell: (WatchNote) -> Void
    /// Readable once the process has ended. Nil if the kernel does not support such a descriptor.
    let handle: Int32?
    private var process: OutsideProcess
    private var program: ProcessFiles.Program?
    private var threads: [Int32: WatchedThread] = [:]
    private var pools: ObservedPools?
    /// The process's directory `task`, and how many threads it had at the last scan.
    private var task: (descriptor: Int32, count: Int?) = (-1, nil)
    /// When it was last seen that there is no thread that is not known.
    private var lastComplete = MonotonicInstant.now
    private var ticks = 0
    /// Whether the program has had a loop, which may have ended.
    private var hasHadLoop = false
    private var hasToldMissing = false
    /// Whether it was said that there is no loop, without what to do about a main thread that polls: it had not polled by then.
    private var mayYetPoll = false
    private var hasToldRefusal = false
    private var hasToldCrowded = false

    /// - Throws: Why it cannot be watched: no such process, missing permission, another architecture.
    init(
        _ processID: Int32,
        _ options: WatchOptions,
        _ reporter: OutsideReporter,
        hasBreakpoints: Bool,
        tell: @escaping (WatchNote) -> Void
    ) throws(CaptureError) {
        (self.processID, files) = (processID, ProcessFiles(processID: processID))
        (self.options, self.reporter, self.hasBreakpoints, self.tell) = (options, reporter, hasBreakpoints, tell)
        process = try Self.open(processID, options)
        // One that is followed and dumps its core would be found again each second.
        if files.isEnding { throw CaptureError(.noSuchProcess) }
        let opened = process_watch_open_process(processID)
        handle = opened >= 0 ? opened : nil
        reporter.note(process)
    }

    deinit {
        if let handle { close(handle) }
        if task.descriptor >= 0 { close(task.descriptor) }
    }

    private static func open(_ processID: Int32, _ options: WatchOptions) throws(CaptureError) -> OutsideProcess {
        let sampler = try ProcessSampler(processID: processID)
        return OutsideProcess(processID: processID, sampler: sampler, search: options.symbols)
    }

    var name: String { process.service.name }

    private func context(lateness: Duration = .zero) -> WatchContext {
        WatchContext(
            processID: processID,
            process: process,
            reporter: reporter,
            rule: LoopRule(tick: options.tick, threshold: options.threshold),
            stallRule: StallRule(tick: options.tick, ticks: options.ticks),
            takesPollsForLoops: options.takesPollsForLoops,
            hasBreakpoints: hasBreakpoints,
            lateness: lateness,
            isServed: { [unowned self] in isServed($0, except: $1) },
            tell: tell
        )
    }

    /// Looks at all threads.
    ///
    /// - Returns: how many loops and pools are watched. Nil once the process has ended.
    func look(lateness: Duration) -> Int? {
        if isScanDue(), !scan() { return nil }
        ticks += 1
        let context = context(lateness: lateness)
        guard lookAtThreads(context) else { return nil }
        pools?.decide(context)
        if ticks == options.looksPerScan * 3 { tellMissing() }
        if mayYetPoll, ticks % options.looksPerScan == 0 { tellPolls() }
        return threads.values.count { $0.loop != nil } + (pools?.known.count ?? 0)
    }

    /// Whether this look begins with a scan. That is also so before a stall is reported, because a process that runs another program now has no
    /// old loop that could be stalled; and when a pool may have new workers, or none any more: one without a free worker starts another thread, and
    /// one without work has no threads.
    private func isScanDue() -> Bool {
        if ticks % options.looksPerScan == 0 { return true }
        let time = MonotonicInstant.now
        if threads.values.contains(where: { $0.loop?.isSuspect(at: time) == true }) { return true }
        guard let pools, pools.areThere else { return false }
        if ProcessFiles.threadCount(inTask: task.descriptor) != task.count { return true }
        lastComplete = time
        return pools.isSuspect(at: time)
    }

    /// - Returns: false once the process has ended.
    private func lookAtThreads(_ context: WatchContext) -> Bool {
        for (id, thread) in threads {
            if let pools, pools.mayHaveWorkers, thread.isNew, thread.loop == nil {
                thread.files.readNameAgain()
                pools.add(id, thread.files, freeAt: lastComplete, context)
            }
            let outcome = pools?.look(id, context) == false ? .ended : thread.look(context)
            switch outcome {
            case .nothing: break
            case .foundLoop: foundLoop(thread, context)
            case .ended:
                // If the process ends, so do all its threads, wherever they were: that is no turn.
                if hasEnded || files.isEnding { return false }
                if thread.files.areRefused {
                    giveUp()
                    return true
                }
                thread.loop?.release(as: .recovered, context)
                threads[id] = nil
                pools?.remove(id)
            }
        }
        return true
    }

    private var hasEnded: Bool { files.hasEnded(by: handle) }

    /// When the first of its loops or pools will count as stalled unless it goes on before.
    var maturity: MonotonicInstant? {
        (threads.values.map { $0.loop?.maturity } + [pools?.maturity()]).compactMap { $0 }.min()
    }

    /// Finds new threads, and notices when the process runs another program.
    private func scan() -> Bool {
        let time = MonotonicInstant.now
        if task.descriptor < 0 { task.descriptor = files.openTask() }
        // Counted before the list is read: a thread that starts meanwhile is found by the next scan.
        task.count = ProcessFiles.threadCount(inTask: task.descriptor)
        // While a process dumps its core, all its threads stand still: that is no stall.
        guard !hasEnded, !files.isEnding else { return false }
        if threads.values.first?.files.areRefused == true { giveUp() }
        guard let present = files.threads else { return true }
        if let now = files.program, now != program {
            // A new process may not have reached its first program yet.
            if program == nil { begin(with: now) } else { replace(by: now) }
        }
        if pools == nil, program != nil { pools = ObservedPools(context()) }
        for id in present where threads[id] == nil {
            if let limit = OpenFiles.exhaustedLimit {
                tellCrowded(limit)
                break
            }
            guard let thread = WatchedThread(threadID: id, ofProcess: processID) else { continue }
            threads[id] = thread
            pools?.add(id, thread.files, freeAt: lastComplete, context())
        }
        lastComplete = time
        return true
    }

    /// Files that were opened early may belong to the program that ran before the first one.
    private func begin(with first: ProcessFiles.Program) {
        program = first
        guard let opened = try? Self.open(processID, options),
            opened.identity.executable != process.identity.executable
        else { return }
        process = opened
        pools = nil
        reporter.note(process)
    }

    /// Replaces the program: the process runs another one now, so the old loops are gone.
    private func replace(by now: ProcessFiles.Program) {
        let old = context()
        let opened = try? Self.open(processID, options)
        // This comes before the stalls end, because their stacks get their names again then.
        if opened != nil { process.noteReplaced() }
        for thread in threads.values { thread.loop?.release(as: .recovered, old) }
        pools?.release(as: .recovered, old)
        pools = nil
        (threads, program, ticks) = ([:], now, 1)
        (hasHadLoop, hasToldMissing, mayYetPoll, hasToldRefusal, hasToldCrowded) = (false, false, false, false, false)
        if let opened { process = opened }
        reporter.note(process)
        tell(.newProgram(processID: processID, name: name))
    }

    /// The process can no longer be read, so nothing is known about its stalls. If that changes, the next scan finds its loops again.
    private func giveUp() {
        release(as: .abandoned)
        guard !hasToldRefusal else { return }
        (hasToldRefusal, hasToldMissing, mayYetPoll) = (true, true, false)
        tell(.unreadable(processID: processID, name: name))
    }

    private func tellCrowded(_ limit: Int) {
        guard !hasToldCrowded else { return }
        hasToldCrowded = true
        tell(.crowded(processID: processID, openFiles: limit))
    }

    private func foundLoop(_ thread: WatchedThread, _ context: WatchContext) {
        if let descriptor = thread.loopDescriptor {
            let others = threads.values.filter { $0.threadID != thread.threadID && $0.descriptor == descriptor }
            guard others.isEmpty else {
                let isKnown = others.contains(where: \.sharesItsDescriptor)
                for shared in others + [thread] { shared.giveUp(context) }
                guard !isKnown else { return }
                tell(.sharedDescriptor(processID: processID, descriptor: descriptor, threads: others.count + 1))
                return
            }
        }
        hasHadLoop = true
        tell(.foundLoop(processID: processID, threadID: thread.threadID, loop: thread.name))
    }

    private func isServed(_ descriptor: Int32, except threadID: Int32) -> Bool {
        threads.values.contains { thread in
            guard thread.threadID != threadID, let wait = thread.present?.wait else { return false }
            return WaitCalls.onDescriptor.contains(wait.call) && Int32(truncatingIfNeeded: wait.argument) == descriptor
        }
    }

    /// Says once that no loop was found, or which threads are not judged and which names are missing.
    private func tellMissing() {
        guard !hasToldMissing else { return }
        hasToldMissing = true
        if hasHadLoop || pools?.known.isEmpty == false { tellUnjudged() } else { tellThatThereIsNone() }
        if hasHadLoop, let options = process.missingScriptOptions {
            tell(.namelessScript(processID: processID, name: name, options: options))
        }
    }

    private func tellUnjudged() {
        let others = threads.values.filter { pools?.isWorker($0.threadID) != true }
        let doubtful = others.sorted { $0.threadID < $1.threadID }.compactMap { thread in
            thread.doubtful.map { (name: thread.name, what: $0) }
        }
        if !doubtful.isEmpty { tell(.unjudged(processID: processID, threads: doubtful, mainPolls: mainPolls)) }
    }

    /// Whether the main thread polls and has no loop.
    private var mainPolls: Bool { threads[processID].map { $0.loop == nil && $0.polls } ?? false }

    /// A program that takes long to start polls later than it is said that it has no loop.
    private func tellPolls() {
        let hasFound = hasHadLoop || pools?.known.isEmpty == false
        if hasFound {
            mayYetPoll = false
        } else if threads[processID]?.hasPolled == true {
            tellThatThereIsNone()
        }
    }

    /// Reports what its threads do instead.
    private func tellThatThereIsNone() {
        let waits = threads.values.map { thread -> String in
            switch thread.present {
            case .calling(let wait): SystemCall(number: wait.call, arguments: []).description
            case .running: "running"
            case .halted, nil: "stopped"
            }
        }
        let counts = Dictionary(waits.map { ($0, 1) }, uniquingKeysWith: +).sorted {
            ($1.value, $0.key) < ($0.value, $1.key)
        }
        let observed = ObservedProcess(otherID: processID)
        let children = options.followsChildren ? [] : ChildProcesses.numbers(of: observed)
        let mainPolls = mainPolls
        mayYetPoll = !mainPolls
        tell(
            .noLoop(
                processID: processID,
                name: name,
                threads: counts.map { ($0.key, $0.value) },
                mainPolls: mainPolls,
                children: children.count
            )
        )
    }

    /// Ends the watching of this process.
    func release(as state: StallState) {
        let context = context()
        for thread in threads.values { thread.loop?.release(as: state, context) }
        pools?.release(as: state, context)
        (threads, pools) = ([:], nil)
    }
}
