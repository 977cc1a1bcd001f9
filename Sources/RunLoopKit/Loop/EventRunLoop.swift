import CRunLoopShims
import Glibc
import Locking
import Synchronization

/// A run loop with CFRunLoop's features, on epoll, eventfd and CLOCK_MONOTONIC. The module's README.md gives the order of a
/// turn and the rules.
///
/// There is one loop per thread, created when it is first requested (R1). Unless a member says otherwise, any thread may call
/// it. A loop whose thread has ended accepts nothing more: a throwing call throws, every other call has no effect and prints
/// one warning on stderr (R3).
///
/// In a signal handler only ``wakeUp()`` may be called, of this class and of all others here. The other calls take locks and
/// allocate: a handler that interrupts such a call on the same thread waits for itself. A lock of this module detects that,
/// prints a message on stderr and traps; malloc's lock hangs.
///
/// A call that traps on a programmer error prints its text and the caller's line on stderr, also in an optimised build: the
/// parameters `file` and `line` serve that purpose.
public final class EventRunLoop: Sendable {
    let isMain: Bool
    let table = ForkSafeMutex(ModeTable())
    let blocks = BlockQueue()
    let requests = PerformQueue()
    let delayed = DelayedPerforms()
    let beforeWaiting = BeforeWaitingWork()
    let wake = WakeUp()
    let mainQueue = MainQueue()
    let clockWatch = ClockWatch()
    /// `Stop` bits, for the innermost activation. A stop while none runs is cleared by the start of the next one (R22).
    let stopRequests = Atomic<UInt8>(0)
    /// Whether the runs of common modes end, those that begin later, too: the loop's thread is to end.
    private let isEndingFlag = Atomic<Bool>(false)
    /// Whether the current turn of the innermost activation has still to reach its wait or its poll; and whether an outer
    /// activation has. The loop's thread; relaxed.
    let waitsAhead = Atomic<Bool>(false)
    let outerWaitsAhead = Atomic<Bool>(false)
    /// Whether due timers precede ready descriptors this time (R36). The loop's thread; relaxed.
    let timersGoFirst = Atomic<Bool>(true)
    /// What this loop publishes, and where a watcher leaves its requests.
    public let heartbeat = LoopHeartbeat()
    let jobs: JobQueue
    let pinned: PinnedExecutor
    let owner: ForkSafeMutex<Owner>
    /// The fork generation in which the loop's thread was last seen.
    let generation = Atomic<UInt32>(run_loop_generation())
    /// Opens when the loop has ended with its thread.
    let ended: Latch
    /// Nil for a main thread that was not seen when this library was loaded: see `LoopThread.main()`.
    let pthread: pthread_t?

    /// Who has stopped an activation. In one word: a run that begins or ends at that moment sees all of a stop or nothing.
    enum Stop {
        static let own: UInt8 = 1
        static let fromElsewhere: UInt8 = 2
    }

    struct Owner: Sendable {
        var thread: LoopThread?
        var name: String
    }

    init(main: Bool) {
        isMain = main
        let thread = main ? LoopThread.main() : LoopThread.current()
        let name = main ? "main" : thread?.name ?? "thread"
        owner = ForkSafeMutex(Owner(thread: thread, name: name))
        jobs = JobQueue(wake: wake)
        pinned = PinnedExecutor(jobs: jobs)
        ended = Latch(.workerEnd, openedBy: thread?.id)
        pthread = main ? LoopThread.mainPthread : pthread_self()
    }

    /// The main thread's loop. It is never destroyed. It does not use the main dispatch queue before it runs.
    ///
    /// Callbacks are not isolated to an actor, because they can be on any loop. ``onMainActor(_:)`` makes one of a closure that
    /// is isolated to the main actor:
    ///
    ///     EventRunLoop.main.add(EventTimer(every: .seconds(1), onMainActor { _ in counter += 1 }))
    public static var main: EventRunLoop { LoopRegistry.main }

    /// The calling thread's loop; in every callback, block and request, the loop that calls. It ends with its thread.
    ///
    /// Never fails for lack of descriptors: it needs none until it first sleeps, and then continues without them if necessary
    /// (see `Poller`).
    public static var current: EventRunLoop { LoopRegistry.current }

    /// `main`, or the thread's name in the kernel, or the name that the thread had when it ended.
    public var label: String {
        owner.withLock { owner in
            if !isMain, let name = owner.thread?.name { owner.name = name }
            return owner.name
        }
    }

    /// The loop's thread. Nil after it ended; on main also if this library was loaded by another thread and main has not run
    /// yet.
    public var thread: LoopThread? { isOfParent ? nil : ownThread }

    /// Whether the caller is the loop's thread.
    var isOnOwnThread: Bool {
        isMain ? run_loop_is_main_thread() : LoopRegistry.existing === self
    }

    /// Records the main thread, if it was not known from the start, and the thread's new id in a forked child. The loop's
    /// thread.
    func noteOwnThread() {
        if generation.load(ordering: .relaxed) != run_loop_generation() { noteThreadAfterFork() }
        guard isMain else { return }
        owner.withLock { owner in
            if owner.thread == nil { owner.thread = .current() }
        }
    }

    /// Ends the innermost run, and from now on every run of a common mode, each after the turn that sees it. Any thread.
    func endRuns() {
        isEndingFlag.store(true, ordering: .releasing)
        stop()
        // A run that is just beginning, and that `stop` does not see yet, then finds this before it sleeps.
        wake.post()
    }

    /// Whether `endRuns` was called.
    var isEnding: Bool { isEndingFlag.load(ordering: .acquiring) }

    /// Ends the loop with its thread: tasks' jobs are run (R61), sources are cancelled, everything else is dropped, and pending
    /// blocks are released without running (R2).
    func end() {
        endJobs()
        let (modes, common) = table.withLock { table in
            let common = table.end()
            return (table.modes, common)
        }
        for mode in modes {
            for item in mode.items { detach(item, from: mode) }
            mode.withDescriptors { $1.close() }
        }
        for item in common { item.noteCommon(false, on: self) }
        _ = consume common
        clockWatch.close(losses: wake.losses)
        wake.close()
        blocks.close()
        requests.close()
        delayed.close()
        beforeWaiting.close()
        owner.withLock { $0.thread = nil }
        heartbeat.end()
        ended.open()
    }
}

extension EventRunLoop {
    /// Sets the number of turns after which a loop with work at hand polls the kernel at the latest (R16), for all loops of the
    /// process. With 1 they poll in each turn, as Foundation's loops do, so that the two can be compared.
    package static func askKernel(everyTurns turns: Int) { Poller.turnsWithoutAsking.store(turns, ordering: .relaxed) }
}

// MARK: - From any thread

extension EventRunLoop {
    /// Ends the innermost activation as soon as its turn is over, and wakes the loop for it (R22, R23). Ignored if none runs.
    ///
    /// If another thread calls it while a nested activation ends for another reason, it ends the enclosing one: it is never
    /// lost.
    ///
    /// Not in a signal handler: see ``EventRunLoop/wakeUp()``.
    public func stop() {
        guard heartbeat.pulse.phase != .idle else { return }
        let isFromElsewhere = !isOnOwnThread
        stopRequests.bitwiseOr(isFromElsewhere ? Stop.fromElsewhere : Stop.own, ordering: .acquiringAndReleasing)
        // If the loop itself calls this after its turn's wait, the turn's end sees it; a wake-up would remain for the next
        // run's first sleep.
        if isFromElsewhere || waitsAhead.load(ordering: .relaxed) { wake.post() }
    }

    /// Ends the innermost activation of this mode, at the latest when the activations nested in it have ended, and wakes the
    /// loop for it (R17). If the mode is not running, nothing is remembered, as in ``stop()`` (R22); if another thread calls it
    /// while that activation ends for another reason, it ends the next outer activation of the mode. Not for ``Mode/common``,
    /// which never runs. Not in a signal handler.
    public func stop(mode: Mode) {
        guard !isOfParent, heartbeat.pulse.phase != .idle else { return }
        guard let mode = table.withLock({ $0.existing(mode) }) else { return }
        let isFromElsewhere = !isOnOwnThread
        mode.stopRequests.bitwiseOr(isFromElsewhere ? Stop.fromElsewhere : Stop.own, ordering: .acquiringAndReleasing)
        // An outer run's wait does not matter to a stop of the innermost one: a wake-up would end that wait.
        let isInnermost = heartbeat.pulse.modeIndex == mode.index
        let outerWaits = !isInnermost && outerWaitsAhead.load(ordering: .relaxed)
        if isFromElsewhere || waitsAhead.load(ordering: .relaxed) || outerWaits { wake.post() }
    }

    /// Ends the loop's current sleep, or, if it does not sleep, ends the next one at once. Lock-free; one system call if the
    /// loop sleeps, otherwise none (R25, R26).
    ///
    /// The only call that may be made in a signal handler. The handler must find the loop in a variable that was set before:
    /// ``main`` and ``current`` may have to create it. The handler leaves the work in an atomic, where an observer of
    /// `afterWaiting` sees it. A signal that needs no handler is more simply read from a descriptor: signalfd(2) in a
    /// ``DescriptorSource``.
    public func wakeUp() { wake.post() }

    /// Wakes the loop if the caller is not its thread: the loop's own thread sees the change before it sleeps.
    package func wakeUpFromElsewhere() {
        if !isOnOwnThread { wake.post() }
    }

    /// The running mode of the innermost activation; nil if none runs.
    public var currentMode: Mode? {
        let pulse = heartbeat.pulse
        return pulse.phase == .idle ? nil : modeName(at: pulse.modeIndex).map { Mode($0) }
    }

    /// Whether the loop sleeps, or is about to.
    public var isWaiting: Bool { heartbeat.pulse.phase == .waiting }

    /// The name of the mode with an index read from the heartbeat; nil if there is none.
    public func modeName(at index: Int) -> String? {
        table.withLock { $0.modes.indices.contains(index) ? $0.modes[index].name : nil }
    }

    /// The index of a mode in the heartbeat; nil while there is no such mode. Any thread.
    func index(of mode: Mode) -> Int? { table.withLock { $0.existing(mode)?.index } }

    /// The epoll set on which the loop sleeps in the mode with an index read from the heartbeat; nil while there is none. Any
    /// thread.
    public func waitSet(inMode index: Int) -> Int32? {
        let poller = table.withLock { $0.modes.indices.contains(index) ? $0.modes[index].poller : nil }
        return poller.flatMap { $0.isOpen ? $0.place.set : nil }
    }

    /// When the earliest timer of a mode fires, not counting timers in their callout; nil if there is none.
    public func nextTimerFireDate(in mode: Mode = .default) -> MonotonicInstant? {
        guard let outlook = table.withLock({ $0.existing(mode)?.timerOutlook }) else { return nil }
        let earliest = outlook.earliestFire(at: .now(withWall: outlook.hasWallClockTimers))
        return earliest == .max ? nil : MonotonicInstant(nanoseconds: earliest)
    }
}
