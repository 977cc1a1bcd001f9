import Locking

extension EventRunLoop {
    /// Runs a block once, on the loop's thread, in a run of one mode, or of any common mode (R51). Any thread; not in a signal
    /// handler.
    ///
    /// - Parameter wake: False leaves a sleeping loop asleep, as CFRunLoopPerformBlock does (R24).
    public func perform(in mode: Mode = .default, wake: Bool = true, _ block: consuming @escaping @Sendable () -> Void)
    {
        enqueue(BlockQueue.Block(modes: .init(mode), body: block), wake: wake)
    }

    /// Runs a block once, on the loop's thread, in whichever of the modes runs first (R51). Any thread; not in a signal
    /// handler.
    ///
    /// - Parameters:
    ///   - modes: At least one; an empty array traps.
    ///   - wake: As in ``perform(in:wake:_:)``.
    public func perform(
        inModes modes: [Mode],
        wake: Bool = true,
        file: StaticString = #fileID,
        line: UInt = #line,
        _ block: consuming @escaping @Sendable () -> Void
    ) {
        requireMode(in: modes, file, line)
        enqueue(BlockQueue.Block(modes: .init(modes), body: block), wake: wake)
    }

    private func enqueue(_ block: consuming BlockQueue.Block, wake: Bool) {
        if isOfParent { return LoopWarning.loopOfParent.make() }
        if case .named = block.modes { make(block.modes) }
        switch blocks.append(block, wakes: wake) {
        case .refused: LoopWarning.loopEnded.make()
        case .needsWakeUp: if wake { self.wake.post() }
        case .isAnnounced: break
        }
    }

    /// Work that names no mode would be kept forever and never run.
    func requireMode(in modes: [Mode], _ file: StaticString, _ line: UInt) {
        require(!modes.isEmpty, "What is to be performed names at least one mode.", file: file, line: line)
    }

    /// Creates the modes if necessary, as adding an item does (R4): a block or a request is enough to create a mode that can be
    /// run.
    func make(_ modes: BlockQueue.Modes) {
        guard case .named(let names) = modes else { return }
        table.withLock { table in
            for mode in names where mode != .common { _ = table.mode(mode) }
        }
    }
}

extension BlockQueue.Modes {
    init(_ modes: [EventRunLoop.Mode]) {
        self = modes.count == 1 ? .init(modes[0]) : .named(Set(modes))
    }
}

extension EventRunLoop {
    /// Runs `body` once, on the loop's thread, when the loop is about to sleep or its run ends: once for all the changes of a
    /// turn, as user interfaces lay out and commit, and pools are drained. Any thread; not in a signal handler.
    ///
    /// Until `body` has begun, another call with the same key replaces `body`, which keeps its position. A call made while such
    /// work is being done takes effect in the next turn, for which the loop stays awake. Work does not keep a mode from being
    /// empty, and is not done for a run that is refused because the mode is empty; if the loop's thread ends first, the work is
    /// released.
    ///
    /// A loop that always has a signalled source or a request never reaches its rest: see `limit`.
    ///
    /// - Parameters:
    ///   - key: Names the work in this loop: a string, an `ObjectIdentifier`.
    ///   - order: Among the loop's observers, lower first (R38). `Int.min` is before, `Int.max` after everything else. Work of
    ///     one order is done in the order of the calls. Use few orders: each order ever used keeps an observer on the loop.
    ///   - activities: When the work is done; an empty set traps. `beforeWaiting` alone makes it work for an idle loop: a run
    ///     that ends takes no time for it.
    ///   - mode: A mode, or all common ones.
    ///   - limit: If the loop has not done the work after this time, it is done at the beginning of a turn. Nil for no limit.
    public func performBeforeWaiting(
        _ key: some Hashable & Sendable,
        order: Int = 0,
        at activities: Activity = [.beforeWaiting, .exit],
        in mode: Mode = .common,
        atLatest limit: Duration? = nil,
        file: StaticString = #fileID,
        line: UInt = #line,
        _ body: @escaping @Sendable () -> Void
    ) {
        let canCome = !activities.isDisjoint(with: .all)
        require(canCome, "Work before a sleep names at least one activity.", file: file, line: line)
        if isOfParent { return LoopWarning.loopOfParent.make() }
        let deadline = MonotonicInstant.after(limit)
        let lane = BeforeWaitingWork.Lane(order: order, activities: activities, mode: mode, isLimited: limit != nil)
        switch beforeWaiting.put(body, for: BeforeWaitingWork.Key(base: key), in: lane, deadline: deadline) {
        case .refused: return LoopWarning.loopEnded.make()
        case .replaced: return
        case .added: break
        case .addedToNewLane: add(beforeWaiting.observer(of: lane), to: mode)
        }
        // On its own thread the loop reaches the work without a wake-up, unless it may just have passed that point.
        if !isOnOwnThread || heartbeat.pulse.phase == .beforeWaiting { wake.post() }
    }

    /// Frees the work of that key without doing it, if it has not begun; returns whether it had not begun. Any thread.
    @discardableResult
    public func cancelBeforeWaiting(_ key: some Hashable & Sendable) -> Bool {
        beforeWaiting.remove(BeforeWaitingWork.Key(base: key))
    }
}

extension EventRunLoop {
    /// Runs `body` once, on the loop's thread, after `delay`, in whichever of the modes runs then (R53). Any thread; not in a
    /// signal handler.
    ///
    /// Bodies with equal delays run in the order of the calls. If the loop ends first, `body` is released without running.
    ///
    /// - Parameters:
    ///   - delay: Zero or less: in the next turn that checks timers.
    ///   - modes: At least one; an empty array traps. By default the default mode alone.
    ///   - target: The owner of the perform, for ``cancelPerforms(target:)``. It is not retained, and is identified by its
    ///     identity only: a target that may be released before `body` must cancel in its deinit.
    /// - Returns: A handle that cancels this perform.
    @discardableResult
    public func perform(
        after delay: Duration,
        inModes modes: [Mode] = [.default],
        target: AnyObject? = nil,
        file: StaticString = #fileID,
        line: UInt = #line,
        _ body: @escaping @Sendable () -> Void
    ) -> DelayedPerform {
        requireMode(in: modes, file, line)
        let date = MonotonicInstant.now.advanced(by: max(delay, .zero))
        // Not due before it is in all its modes and recorded, so that it cannot finish in the middle of that.
        let timer = EventTimer(at: .distantFuture) { [delayed] timer in
            delayed.forget(timer)
            body()
        }
        for mode in modes { add(timer, to: mode) }
        if !isOfParent, delayed.record(timer, target: target.map { ObjectIdentifier($0) }) {
            timer.nextFireDate = date
        } else {
            timer.invalidate()
        }
        return DelayedPerform(timer, of: delayed)
    }

    /// Cancels every perform after a delay that was requested with this target on this loop and has not begun (R53). Any
    /// thread; also from inside a callout, where it stops performs that are due in the same turn.
    public func cancelPerforms(target: AnyObject) { delayed.cancelAll(of: ObjectIdentifier(target)) }
}
