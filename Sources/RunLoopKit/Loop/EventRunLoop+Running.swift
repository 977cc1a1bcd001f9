import CRunLoopShims
import Locking
import Synchronization

/// The state of one call of `run` that its turns need.
struct Activation {
    let mode: LoopMode
    /// When it times out; `distantFuture` for never.
    var deadline: MonotonicInstant = .distantFuture
    /// A timeout of zero or less: one pass, and no sleep (R18).
    let pollsOnly: Bool
    let returnsAfterSource: Bool
    /// Ends the run, once set, after the turn that sees it.
    var completion: RunCompletion?
    /// True in the first turn and in the turn after a drain: these do not check the main queue early (R16).
    var skipsLook = true

    /// Whether the current turn is the last one, and so must not sleep any more. The completion may have been set since the turn
    /// began, by a run nested in an observer of `beforeWaiting`.
    var isOver: Bool { completion?.isSet == true || deadline.hasPassed }
}

extension EventRunLoop {
    /// Runs the default mode until it is stopped or finished (R21). Traps if called on another thread than the loop's.
    public func run(file: StaticString = #fileID, line: UInt = #line) {
        while true {
            switch run(mode: .default, file: file, line: line) {
            case .stopped, .finished: return
            case .timedOut, .handledSource: continue
            }
        }
    }

    /// Runs one mode. Traps if called on another thread than the loop's. May be called again from inside a callout (R23).
    ///
    /// - Parameters:
    ///   - timeout: Nil for no limit; zero or less makes one polling pass (R18).
    ///   - returnAfterSourceHandled: Return after a turn that performed a source or drained the main queue (R19).
    /// - Returns: Why the run ended (R17). `finished` at once, unobserved, for an empty mode (R11) and for ``Mode/common``
    ///   (R8).
    @discardableResult
    public func run(
        mode: Mode = .default,
        for timeout: Duration? = nil,
        returnAfterSourceHandled: Bool = false,
        file: StaticString = #fileID,
        line: UInt = #line
    ) -> RunResult {
        let wrongThread = "A run loop is run by its own thread; use `perform` to have work done there."
        require(isOnOwnThread, wrongThread, file: file, line: line)
        return run(mode: mode, for: timeout, returnAfterSourceHandled: returnAfterSourceHandled, until: nil)
    }

    /// The same, on the loop's thread. It also returns `handledSource` after the turn in which `completion` was set.
    package func run(
        mode: Mode,
        for timeout: Duration?,
        returnAfterSourceHandled: Bool,
        until completion: RunCompletion?
    ) -> RunResult {
        guard mode != .common else {
            LoopWarning.commonIsNoMode.printOnce()
            return .finished
        }
        guard let mode = table.withLock({ $0.existing(mode) }), !isEmpty(mode) else { return .finished }
        noteOwnThread()
        var activation = Activation(
            mode: mode,
            pollsOnly: timeout.map { $0 <= .zero } ?? false,
            returnsAfterSource: returnAfterSourceHandled,
            completion: completion
        )
        let outer = run_loop_begin_run()
        defer { run_loop_end_run(outer) }
        return activate(&activation, for: timeout)
    }

    /// Sets the outer run aside, runs the activation, and resumes the outer run (R12).
    private func activate(_ activation: inout Activation, for timeout: Duration?) -> RunResult {
        let outer = setOuterRunAside(for: activation.mode)
        notify(.entry, in: activation.mode)
        // The run's time begins here: the time that the entry observers take does not count.
        if let timeout { activation.deadline = .now.advanced(by: timeout) }
        let result = takeTurns(&activation)
        if result == .stopped { noteStops(of: activation) }
        notify(.exit, in: activation.mode)
        resume(outer, afterRunOf: activation.mode, result)
        return result
    }

    private func takeTurns(_ activation: inout Activation) -> RunResult {
        // A worker's last pass (`WorkerThread.stop(draining:)`) is made even if the worker is stopped once more, just as it begins.
        let isLastPass = isEnding && activation.pollsOnly
        if !isLastPass, hasStopRequest(activation.mode) { return .stopped }
        while true {
            if let result = turn(&activation) { return result }
        }
    }

    /// One turn (R14).
    private func turn(_ activation: inout Activation) -> RunResult? {
        let mode = activation.mode
        waitsAhead.store(true, ordering: .relaxed)
        notify(.beforeTimers, in: mode)
        notify(.beforeSources, in: mode)
        runEnqueued(in: mode)
        var handled = performSources(activation)
        if handled { runEnqueued(in: mode) }
        let arrival = nextArrival(activation, hasHandled: handled)
        waitsAhead.store(false, ordering: .relaxed)
        activation.skipsLook = false
        switch arrival {
        case .nothing, .wakeUp: break
        case .timers(let now): fireTimers(in: mode, at: now)
        case .mainQueue:
            heartbeat.noteCallout()
            mainQueue.drain()
            activation.skipsLook = true
            handled = true
        case .descriptor(let delivery):
            handled = deliver(delivery, in: mode) || handled
        }
        runEnqueued(in: mode)
        return result(of: activation, handledSource: handled)
    }

    /// The first match wins (R17).
    private func result(of activation: Activation, handledSource: Bool) -> RunResult? {
        if handledSource && activation.returnsAfterSource { return .handledSource }
        if activation.completion?.isSet == true { return .handledSource }
        if hasTimedOut(activation) { return .timedOut }
        if hasStopRequest(activation.mode) || endsWithLoop(activation) { return .stopped }
        return isEmpty(activation.mode) ? .finished : nil
    }

    private func hasStopRequest(_ mode: LoopMode) -> Bool {
        stopRequests.load(ordering: .acquiring) != 0 || mode.stopRequests.load(ordering: .acquiring) != 0
    }

    /// Whether the run ends because all do. One that waits for its completion does not: its caller would only run the mode again.
    func endsWithLoop(_ activation: Activation) -> Bool {
        isEnding && activation.completion == nil && activation.mode.isCommon.load(ordering: .acquiring)
    }

    private func noteStops(of activation: Activation) {
        activation.completion?.noteStops(
            ofLoop: stopRequests.load(ordering: .acquiring) != 0,
            ofMode: activation.mode.stopRequests.load(ordering: .acquiring) != 0
        )
    }

    private func hasTimedOut(_ activation: Activation) -> Bool {
        activation.pollsOnly || activation.deadline.hasPassed
    }

    /// Whether nothing can ever happen in the mode (R9, R10).
    private func isEmpty(_ mode: LoopMode) -> Bool {
        if mode.population.load(ordering: .acquiring) > 0 || servesMainQueue(in: mode) { return false }
        return !blocks.hasBlocks(for: mode) && !requests.hasWaiting(for: mode) && !hasJobs(for: mode)
    }

    /// On main, in common modes, outside the queue's own callout (R58).
    func servesMainQueue(in mode: LoopMode) -> Bool {
        isMain && mode.isCommon.load(ordering: .acquiring) && !mainQueue.isDraining && mainQueue.isUsable
    }
}

// MARK: - Callouts

extension EventRunLoop {
    /// Publishes a transition and calls the observers. Without observers and a watcher this costs four loads and a store.
    @inline(__always)
    func notify(_ phase: LoopPhase, in mode: LoopMode) {
        let turn = heartbeat.pulse.turn &+ (phase == .beforeTimers ? 1 : 0)
        heartbeat.publish(phase, modeIndex: mode.index, turn: turn)
        guard let activity = phase.activity,
            mode.observedActivities.load(ordering: .acquiring) & activity.rawValue != 0
        else { return }
        callObservers(activity, in: mode)
    }

    /// Calls the observers in order, on a snapshot (R38, R39).
    @inline(never)
    private func callObservers(_ activity: Activity, in mode: LoopMode) {
        for observer in mode.observers where observer.activities.contains(activity) {
            heartbeat.noteCallout()
            observer.observe(activity)
        }
    }

    /// A drain point: blocks, then tasks' jobs (R51, R61).
    private func runEnqueued(in mode: LoopMode) {
        runBlocks(in: mode)
        runJobs(in: mode)
    }

    private func runBlocks(in mode: LoopMode) {
        var batch = blocks.take(for: mode)
        guard !batch.isEmpty else { return }
        batch.runAll { heartbeat.noteCallout() }
        blocks.recycle(batch)
    }

    /// Serves the perform requests (R52), and performs the signalled sources, or the first of them (R28–R32). Returns whether
    /// there was any request or source.
    private func performSources(_ activation: Activation) -> Bool {
        let mode = activation.mode
        let served = serveRequests(in: mode)
        let isInsidePass = mode.openPasses.load(ordering: .relaxed) > 0
        guard isInsidePass || mode.hasSignalledSources.load(ordering: .acquiring) else { return served }
        let pass = isInsidePass ? mode.takeSignalledInsidePass() : mode.takeSignalled()
        // A pass with one source hides nothing from nested runs. (The pass itself must not be used after it was recycled: its
        // buffer would be copied.)
        let hides = pass.count > 1 ? 1 : 0
        mode.openPasses.add(hides, ordering: .relaxed)
        defer { mode.openPasses.subtract(hides, ordering: .relaxed) }
        var handled = false
        for (index, source) in pass.enumerated() {
            heartbeat.noteCallout()
            if source.performIfSignalled(in: mode) { handled = true }
            if handled && activation.returnsAfterSource && index + 1 < pass.count {
                mode.putBack(pass[(index + 1)...])
                break
            }
        }
        mode.recycle(pass)
        return handled || served
    }

    /// Delivers to the source; returns whether the handler found anything.
    private func deliver(_ delivery: DescriptorTable.Delivery, in mode: LoopMode) -> Bool {
        heartbeat.noteCallout()
        let finding = delivery.source.deliver(delivery.events)
        if finding != .something { mode.withDescriptors { table, _ in table.note(finding, of: delivery) } }
        return finding != .nothing
    }

    /// Fires the timers that are due now, and no others (R43). A nested run takes over the remaining ones.
    private func fireTimers(in mode: LoopMode, at now: ClockReading) {
        let pass = TimerPass(now: now, mode: mode, loop: self)
        _ = mode.withTimers { $0.collectDue(at: now) }
        while let timer = mode.withTimers({ $0.takeDue() }) {
            heartbeat.noteCallout()
            timer.fireIfDue(in: pass)
        }
    }
}
