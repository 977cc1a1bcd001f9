internal import CRunLoopShims
internal import Glibc
import Locking
internal import Synchronization

/// A run loop of CFRunLoop's class, on epoll, eventfd and CLOCK_MONOTONIC. What it does, rule by rule, and the order of a turn: see
/// the module's README.md.
///
/// One per thread, made when first asked for (R1). Unless a member says otherwise, any thread may call it. A loop whose thread has
/// ended takes nothing any more: what throws says so, all else does nothing and says so once on stderr (R3).
///
/// In a signal handler only ``wakeUp()`` may be called, of this class and of all others here. They take locks and allocate: a handler that
/// strikes the same thread in the middle of such a call waits for itself. A lock of this module's notices that, says so on stderr and
/// traps; malloc's hangs.
///
/// Where a call traps on a mistake of the program's, its text and the caller's line are told on stderr, in an optimised build, too: that is
/// what the parameters `file` and `line` are for.
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
    /// Of the innermost activation. A stop that finds none is undone by the next one's start (R22).
    let stopRequested = Atomic<Bool>(false)
    /// Whether another thread has made that stop, or one of several. Written before `stopRequested`, which releases it.
    let stopIsFromElsewhere = Atomic<Bool>(false)
    /// Whether the present turn of the innermost activation has its wait, or its poll, still to come; and whether that of an outer one
    /// has. The loop's thread; relaxed.
    let waitsAhead = Atomic<Bool>(false)
    let outerWaitsAhead = Atomic<Bool>(false)
    /// Whether due timers go before ready descriptors this time (R36). The loop's thread; relaxed.
    let timersGoFirst = Atomic<Bool>(true)
    /// What this loop publishes, and where a watcher leaves its wishes.
    public let heartbeat = LoopHeartbeat()
    let jobs: JobQueue
    let pinned: PinnedExecutor
    let owner: ForkSafeMutex<Owner>
    /// The generation of forks that the loop's thread was last seen in.
    let generation = Atomic<UInt32>(run_loop_generation())
    /// Nil for a main thread that was not seen when this library was loaded: see `LoopThread.main()`.
    let pthread: pthread_t?

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
        pthread = main ? LoopThread.mainPthread : pthread_self()
    }

    /// The main thread's loop. It is never destroyed. Does not touch the main dispatch queue before it runs.
    ///
    /// Callbacks are for any loop, and so not isolated to an actor. Those of items made by `onMainActor` are the main actor's:
    ///
    ///     EventRunLoop.main.add(.onMainActor(every: .seconds(1)) { _ in counter += 1 })
    public static var main: EventRunLoop { LoopRegistry.main }

    /// The calling thread's loop. It ends with its thread.
    ///
    /// Never fails for want of descriptors: it needs none until it first sleeps, and then goes without if need be (see `Poller`).
    public static var current: EventRunLoop { LoopRegistry.current }

    /// `main`, or the thread's name as the kernel has it, or had it when the thread ended.
    public var label: String {
        owner.withLock { owner in
            if !isMain, let name = owner.thread?.name { owner.name = name }
            return owner.name
        }
    }

    /// The loop's thread. Nil after it ended; on main also if this library was loaded by another thread and main has not run yet.
    public var thread: LoopThread? { isOfParent ? nil : ownThread }

    /// Whether the caller is the loop's thread.
    var isOnOwnThread: Bool {
        isMain ? run_loop_is_main_thread() : LoopRegistry.existing === self
    }

    /// Makes the main thread known, if it was not from the start, and the thread's new number in a forked child. The loop's thread.
    func adoptMainThread() {
        if generation.load(ordering: .relaxed) != run_loop_generation() { adoptFork() }
        guard isMain else { return }
        owner.withLock { owner in
            if owner.thread == nil { owner.thread = .current() }
        }
    }

    /// Ends the loop with its thread: tasks' jobs are run (R61), sources are cancelled, the rest is dropped, pending blocks are released
    /// without running (R2).
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
        _ = consume common
        clockWatch.close(losses: wake.losses)
        wake.close()
        blocks.close()
        requests.close()
        delayed.close()
        beforeWaiting.close()
        owner.withLock { $0.thread = nil }
        heartbeat.end()
    }
}

extension EventRunLoop {
    /// At the latest after how many turns a loop with work at hand asks the kernel for more (R16), for all loops of the process. One
    /// makes them ask in each, as Foundation's do, so that the two can be compared.
    package static func askKernel(everyTurns turns: Int) { Poller.turnsWithoutAsking.store(turns, ordering: .relaxed) }
}

// MARK: - From any thread

extension EventRunLoop {
    /// Ends the innermost activation as soon as its turn is over, and wakes the loop for it (R22, R23). Ignored if none runs.
    ///
    /// Made by another thread while a nested activation ends for another reason, it ends the one outside it: it is never lost.
    ///
    /// Not in a signal handler: see ``EventRunLoop/wakeUp()``.
    public func stop() {
        guard heartbeat.pulse.phase != .idle else { return }
        let isFromElsewhere = !isOnOwnThread
        requestStop(fromElsewhere: isFromElsewhere)
        // By the loop itself, after its turn's wait: the turn's end sees it, and a wake-up would stay behind for the next run's first sleep.
        if isFromElsewhere || waitsAhead.load(ordering: .relaxed) { wake.post() }
    }

    func requestStop(fromElsewhere: Bool) {
        if fromElsewhere { stopIsFromElsewhere.store(true, ordering: .relaxed) }
        stopRequested.store(true, ordering: .releasing)
    }

    /// Ends the innermost activation of this mode, at the latest when those nested in it are over, and wakes the loop for it (R17). If
    /// the mode is not running, nothing is remembered, as in ``stop()`` (R22). Not for ``Mode/common``, which never runs. Not in a signal
    /// handler.
    public func stop(mode: Mode) {
        guard !isOfParent, heartbeat.pulse.phase != .idle else { return }
        guard let mode = table.withLock({ $0.existing(mode) }) else { return }
        mode.stopRequested.store(true, ordering: .releasing)
        let mayWait = waitsAhead.load(ordering: .relaxed) || outerWaitsAhead.load(ordering: .relaxed)
        if !isOnOwnThread || mayWait { wake.post() }
    }

    /// Ends the loop's present sleep, or, if it does not sleep, the next one at once. Lock-free, one system call if the loop sleeps, else
    /// none (R25, R26).
    ///
    /// The one call that may be made in a signal handler. The handler must find the loop in a variable that was filled before: ``main`` and
    /// ``current`` may have to make it. What is to be done is left in an atomic, and seen by an observer of `afterWaiting`. A signal that
    /// needs no handler is more simply read from a descriptor: signalfd(2) in a ``DescriptorSource``.
    public func wakeUp() { wake.post() }

    /// Wakes the loop if the caller is not its thread: the loop's own thread sees the change before it sleeps.
    package func wakeUpFromElsewhere() {
        if !isOnOwnThread { wake.post() }
    }

    /// The mode that runs now, that of the innermost activation; nil if none runs.
    public var currentMode: Mode? {
        let pulse = heartbeat.pulse
        return pulse.phase == .idle ? nil : modeName(at: pulse.modeIndex).map { Mode($0) }
    }

    /// Whether the loop sleeps, or is just about to.
    public var isWaiting: Bool { heartbeat.pulse.phase == .waiting }

    /// The name of the mode with an index that the heartbeat gave; nil if there is none.
    public func modeName(at index: Int) -> String? {
        table.withLock { $0.modes.indices.contains(index) ? $0.modes[index].name : nil }
    }

    /// The epoll set that the loop sleeps on in the mode with an index that the heartbeat gave; nil while there is none. Any thread.
    public func waitSet(inMode index: Int) -> Int32? {
        let poller = table.withLock { $0.modes.indices.contains(index) ? $0.modes[index].poller : nil }
        return poller.flatMap { $0.isOpen ? $0.place.set : nil }
    }

    /// When the earliest timer of a mode fires, those in their callout left out; nil if there is none.
    public func nextTimerFireDate(in mode: Mode = .default) -> MonotonicInstant? {
        guard let outlook = table.withLock({ $0.existing(mode)?.timerOutlook }) else { return nil }
        let earliest = outlook.earliestFire(at: .now(withWall: outlook.hasWallClockTimers))
        return earliest == .max ? nil : MonotonicInstant(nanoseconds: earliest)
    }
}
