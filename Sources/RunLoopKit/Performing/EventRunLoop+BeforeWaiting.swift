extension EventRunLoop {
    /// Does `body` once, on the loop's thread, when the loop is about to sleep or its run ends: late, and once for all the changes of a
    /// turn, as user interfaces lay out and commit, and pools are drained. Any thread; not in a signal handler.
    ///
    /// Until `body` has begun, doing this again with the same key replaces `body`, which keeps its place. What is asked for while such
    /// work is being done is done in the next turn, for which the loop stays awake. Work keeps no mode from being empty, and is not
    /// done for a run that is refused because of that; if the loop's thread ends first, it is released.
    ///
    /// A loop that always has a signalled source or a request never comes to its rest: see `limit`.
    ///
    /// - Parameters:
    ///   - key: Names the work in this loop: a string, an `ObjectIdentifier`.
    ///   - order: Among the loop's observers, lower first (R38). `Int.min` is before, `Int.max` after all else. Work of one order is done
    ///     in the order in which it was asked for. Use few: each that was ever used keeps an observer on the loop.
    ///   - activities: When; none traps. With `beforeWaiting` alone it is work for an idle loop: a run that ends takes no time for it.
    ///   - mode: A mode, or all common ones.
    ///   - limit: If the loop has not come to it after this time, it is done at the beginning of a turn. Nil for no limit.
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
        if isOfParent { return Complaint.loopOfParent.make() }
        let deadline = MonotonicInstant.after(limit)
        let lane = BeforeWaitingWork.Lane(order: order, activities: activities, mode: mode, isLimited: limit != nil)
        switch beforeWaiting.put(body, for: BeforeWaitingWork.Key(base: key), in: lane, deadline: deadline) {
        case .refused: return Complaint.loopEnded.make()
        case .replaced: return
        case .added: break
        case .addedToNewLane: add(beforeWaiting.observer(of: lane), to: mode)
        }
        // On its own thread the loop comes by without a wake-up, unless it may just have come by.
        if !isOnOwnThread || heartbeat.pulse.phase == .beforeWaiting { wake.post() }
    }

    /// Frees the work of that key without doing it, if it has not begun; says whether it had not. Any thread.
    @discardableResult
    public func cancelBeforeWaiting(_ key: some Hashable & Sendable) -> Bool {
        beforeWaiting.remove(BeforeWaitingWork.Key(base: key))
    }
}
