import Locking
import RunLoopKit
import StallDetection
import StallReports

// Orders to the watchdog: loops to watch and to leave, pauses, another configuration, the end. Any thread gives them; the watchdog's own thread
// carries them out between two looks. Also the times in which nothing is looked at.

extension Watchdog {
    /// What other threads request from the watchdog.
    enum Order: Sendable {
        case watch(WatchIdentity, WatchedThing, StallRule, WakeFlag, [ExpectedSlowness])
        case cancel(Int)
        /// The configuration has changed.
        case adopt(StallMonitor.Configuration)
        /// Pauses one watch, or all, from a moment on.
        case pause(Int?, MonotonicInstant)
        case resume(Int?, MonotonicInstant)
        /// Calls this on the reporter's thread, once everything known at that time was reported.
        case settle(@Sendable () -> Void)
        case stop

        /// The moment from which on a loop counts because of this order. Nil for orders that start no watch.
        fileprivate var countsSince: MonotonicInstant? {
            switch self {
            case .watch(let identity, _, _, _, _): identity.since
            case .resume(_, let time): time
            case .cancel, .adopt, .pause, .settle, .stop: nil
            }
        }
    }

    /// Passes an order to the watchdog. Any thread. Orders after `stop` are ignored.
    func give(_ order: Order) {
        // A fork's child has no watchdog thread, and the lock may be held there forever.
        guard generation.isCurrent else { return }
        orders.withLock { $0?.append(order) }
        semaphore.signal()
    }

    /// - Parameter wasParked: Whether the watchdog was parked until now.
    /// - Returns: False after `stop`.
    func carryOutOrders(_ state: inout WatchdogState, wasParked: Bool) -> Bool {
        let given = orders.withLock { orders in
            defer { orders = [] }
            return orders ?? []
        }
        state.serveExit()
        let since = given.compactMap(\.countsSince).min()
        let missed = wasParked ? state.unparked(at: .now, since: since) : state.catchUp(since: since)
        for order in given {
            switch order {
            case .watch(let identity, let loop, let rule, let wakeFlag, let scopes):
                let watched = WatchedLoop(
                    identity: identity,
                    loop: loop,
                    rule: rule,
                    wakeFlag: wakeFlag,
                    scopes: scopes
                )
                watched.excludedTime.ignoreMissed(before: missed)
                watched.excludedTime.ignoreCovered(before: identity.since)
                state.add(watched)
            case .pause(let number, let time): state.pause(number, at: time)
            case .resume(let number, let time): state.resume(number, at: time, missed: missed)
            case .cancel(let number): state.remove(number)
            case .adopt(let configuration): state.adopt(configuration)
            case .settle(let done): state.settle(done)
            case .stop:
                orders.withLock { $0 = nil }
                return false
            }
        }
        return true
    }
}

extension WatchdogState {
    // MARK: - Adding and removing

    mutating func add(_ watched: WatchedLoop) {
        let record = WatchdogLedger.WatchRecord(
            name: watched.identity.name,
            since: watched.identity.since,
            firstTurn: watched.loop.heartbeat.turnCount,
            firstLengths: watched.lengthsBefore,
            heartbeat: watched.loop.heartbeat
        )
        let number = watched.identity.number
        forgetEndedLoops()
        // The configuration may have changed after the loop's rule was read from it.
        if let rule = presentRule(of: watched), rule != watched.policy.rule { watched.adopt(rule, at: .now) }
        services.ledger.update { $0.watches[number] = record }
        watchList.add(watched)
        lookWithinTick()
        if let pausedSince { services.ledger.update { $0.watches[number]?.pause(at: pausedSince) } }
        services.live.note(watched: watchList.count)
        services.notices.add(.checkpoint)
    }

    mutating func remove(_ number: Int) {
        guard let watched = watchList.loop(number: number) else { return }
        release(watched)
        closePause(of: watched, at: .now)
        watchList.remove(watched)
        wakeFlags.remove(watched.wakeFlag)
        services.live.note(watched: watchList.count)
        services.notices.add(.checkpoint)
    }

    /// Calls `done` on the reporter's thread after everything known now was reported. Looks at the stalled loops first, so that a
    /// stall that has ended is reported as ended.
    mutating func settle(_ done: @escaping @Sendable () -> Void) {
        for watched in watchList.all where watched.stall != nil { look(at: watched) }
        services.notices.add(.settled(done))
    }

    mutating func finish() {
        let all = watchList.all
        for watched in all { release(watched) }
        closeMonitorsPause(at: .now)
        for watched in all { closePause(of: watched, at: .now) }
        watchList = WatchList()
        services.costs.update(at: .now)
    }

    private mutating func release(_ watched: WatchedLoop) {
        lookForEnd(of: watched)
        let now = MonotonicInstant.now
        // This comes before the watcher is detached, because detaching removes the heartbeat's counts.
        services.ledger.update { [number = watched.identity.number] in $0.endWatch(number, at: now) }
        watched.loop.heartbeat.detach()
        watched.abandon(at: now, with: &services)
    }

    /// Removes the loops that have ended. Such a loop raises its flag, so it is awake.
    mutating func forgetEndedLoops(among awake: [WatchedLoop]) {
        for watched in awake where watched.loop.heartbeat.hasEnded { remove(watched.identity.number) }
    }

    /// Removes ended loops that no look finds, because they are paused.
    private mutating func forgetEndedLoops() {
        guard watchList.count > watchLimit else { return }
        forgetEndedLoops(among: watchList.all)
        watchLimit = max(64, watchList.count * 2)
    }

    // MARK: - Another configuration

    mutating func adopt(_ configuration: StallMonitor.Configuration) {
        services.adopt(configuration)
        latestRule = configuration.rule
        for watched in watchList.all { watched.nextRule = presentRule(of: watched) }
        adoptRules(of: watchList.all)
        lookWithinTick()
    }

    /// Nil for a loop with its own rule.
    private func presentRule(of watched: WatchedLoop) -> StallRule? {
        guard watched.identity.followsConfiguration else { return nil }
        return watched.loop.pool == nil ? latestRule : latestRule?.forPools
    }

    mutating func adoptRules(of loops: [WatchedLoop]) {
        for watched in loops where watched.stall == nil {
            guard let rule = watched.nextRule.take(), rule != watched.policy.rule else { continue }
            watchList.change(watched, to: rule, missed: missed)
        }
    }

    // MARK: - Pauses and crashes

    /// Whether the loop is paused, so that it is not looked at.
    func isPaused(_ watched: WatchedLoop) -> Bool { watched.isPaused || pausedSince != nil }

    /// Pauses one watch, or all, from `time` on. Ongoing stalls are closed, because their further length will not be known.
    mutating func pause(_ number: Int?, at time: MonotonicInstant) {
        for watched in loops(number) {
            lookForEnd(of: watched)
            watched.abandon(at: .now, with: &services)
            if number != nil, watched.pausedSince == nil { watched.pausedSince = time }
            let number = watched.identity.number
            services.ledger.update { $0.watches[number]?.pause(at: time) }
        }
        if number == nil, pausedSince == nil { pausedSince = time }
        // Readers assume that a watch listed in the run record has been watched up to now.
        services.notices.add(.checkpoint)
    }

    /// Looks again at what was paused, and counts from `time` on. A loop that was not paused is left alone: it may be stalled.
    ///
    /// - Parameter missed: How much time the watchdog had missed by then.
    mutating func resume(_ number: Int?, at time: MonotonicInstant, missed: Duration) {
        let paused = loops(number).filter { isPaused($0) }
        if number == nil { closeMonitorsPause(at: time) }
        for watched in paused {
            if number != nil { closePause(of: watched, at: time) }
            guard !isPaused(watched) else { continue }
            watched.resume(at: time)
            watchList.wake(watched, restedUntil: nil, missed: missed)
            let number = watched.identity.number
            services.ledger.update { $0.watches[number]?.resume(at: time) }
        }
    }

    /// The loop with this number; nil means all.
    private func loops(_ number: Int?) -> [WatchedLoop] {
        guard let number else { return watchList.all }
        return watchList.loop(number: number).map { [$0] } ?? []
    }

    private mutating func closeMonitorsPause(at time: MonotonicInstant) {
        guard let since = pausedSince.take() else { return }
        services.record(.monitoringPaused, from: since, to: time, watch: nil)
    }

    private func closePause(of watched: WatchedLoop, at time: MonotonicInstant) {
        guard let since = watched.pausedSince.take() else { return }
        services.record(.monitoringPaused, from: since, to: time, watch: watched.identity.name.label)
    }

    /// A crash handler stops all loops while it runs. That time is not part of a stall, so ongoing stalls keep the length of the
    /// last look. If the process survives, they are closed with that length, and counting starts again.
    mutating func noticeCrash() {
        guard crash.isUnderWay() != isCrashing else { return }
        isCrashing.toggle()
        for watched in watchList.all {
            if isCrashing {
                if let stall = watched.stall { services.notices.add(.crashing(stall.number)) }
            } else {
                watched.abandon(at: .now, with: &services)
                watched.resume(at: .now)
            }
        }
    }
}

extension WatchdogLedger.WatchRecord {
    mutating func pause(at time: MonotonicInstant) {
        if pausedSince == nil { pausedSince = max(time, since) }
    }

    mutating func resume(at time: MonotonicInstant) {
        guard let start = pausedSince.take() else { return }
        paused += max(.zero, time - start)
    }
}
