import RunLoopKit
import StackCapture
import StallDetection
import StallDiagnosis
import StallReports

/// The watchdog's data: all watched loops, and the looks at them. Confined to the watchdog's thread.
struct WatchdogState: ~Copyable {
    /// When to look next.
    var nextLook: MonotonicInstant { schedule.next }
    private var schedule = LookSchedule(first: .now)
    var watchList = WatchList()
    /// When there are more watches than this, those of ended loops are removed, also if they are paused.
    private var watchLimit = 64
    private let wakeFlags: WakeFlags
    /// When the wake flags were last read. A loop whose flag was raised since then rested until then.
    private var flagsTaken: MonotonicInstant = .now
    /// How much time had been missed when the flags were last read.
    private var missedAtFlags = Duration.zero
    private var checkpoints = CheckpointSchedule(start: .now)
    private var selfCheck: SelfCheck
    /// Since when the whole monitor is paused. Nil if it is not.
    var pausedSince: MonotonicInstant?
    let crash = CrashWatch()
    /// Whether the process is crashing. Then no stall begins, and ongoing stalls do not grow.
    var isCrashing = false
    var services: WatchServices

    init(
        notices: Mailbox<StallNotice>,
        ledger: WatchdogLedger,
        stackSource: StackSource,
        wakeFlags: WakeFlags,
        costs: CostGuard? = nil,
        live: LiveBoard = LiveBoard(),
        countsTraced: Bool = false,
        supply: SupplyLocation = .init(),
        lastResort: LastResort? = nil
    ) {
        self.wakeFlags = wakeFlags
        selfCheck = SelfCheck(at: .now, supply)
        services = WatchServices(
            notices: notices,
            ledger: ledger,
            live: live,
            stackSource: stackSource,
            costs: costs ?? CostGuard(limits: .init(), meter: CostMeter(), notices: notices, ledger: ledger),
            supply: SupplyMeter(location: supply),
            countsTraced: countsTraced,
            lastResort: lastResort
        )
    }

    /// Called on the watchdog's thread, which was started after `time`.
    mutating func begin(since time: MonotonicInstant) { selfCheck.begin(since: time) }

    /// Whether every loop is at rest and will raise its flag.
    var isAtRest: Bool { watchList.isAtRest }

    /// How much time the watchdog has missed so far.
    var missed: Duration { selfCheck.missed }

    /// The shortest tick of all loops.
    private var tick: Duration { watchList.tick }

    // MARK: - Waking

    /// Ends the parked wait. The first look follows a tick later, so a loop that often wakes briefly costs one look per tick.
    ///
    /// - Parameter since: When another loop began to count, by an order that is still to be carried out.
    /// - Returns: How much time had been missed before.
    mutating func unparked(at time: MonotonicInstant, since: MonotonicInstant?) -> Duration {
        let (woken, missed) = (wakeFlags.takeRaised().compactMap(watchList.loop(place:)), selfCheck.missed)
        // A paused loop may have been busy all the time.
        let departures = woken.filter { !isPaused($0) }.compactMap(\.departure)
        let first = (departures + [since].compactMap { $0 }).min()
        let (runnable, absences) = selfCheck.unpark(departure: first, at: time, tick: tick)
        services.record(absences)
        for watched in woken { watchList.wake(watched, restedUntil: runnable, missed: missed) }
        (flagsTaken, missedAtFlags) = (time, selfCheck.missed)
        schedule = LookSchedule(first: time + tick)
        return missed
    }

    /// Called while not parked, when a loop begins to count by an order given at `since`. The process may have been stopped since
    /// then, or since the next look was due.
    ///
    /// - Returns: How much time had been missed before.
    mutating func catchUp(since: MonotonicInstant?) -> Duration {
        let missed = selfCheck.missed
        if let since { services.record(selfCheck.wake(due: min(since, nextLook), at: .now, tick: tick)) }
        return missed
    }

    private mutating func wakeRaised() {
        let now = MonotonicInstant.now
        for watched in wakeFlags.takeRaised().compactMap(watchList.loop(place:)) {
            watchList.wake(watched, restedUntil: flagsTaken, missed: missedAtFlags)
        }
        flagsTaken = now
    }

    // MARK: - Looking

    /// Looks at every awake loop. Between two ticks, looks only at loops that reach their threshold.
    mutating func look() {
        let (woken, due) = (MonotonicInstant.now, nextLook)
        services.costs.update(at: woken)
        wakeRaised()
        services.record(selfCheck.wake(due: due, at: woken, tick: tick))
        missedAtFlags = selfCheck.missed
        let isRound = schedule.isRound(at: woken)
        let dueLoops = schedule.takeDue(at: woken).compactMap(watchList.loop(place:))
        let seen = (isRound ? watchList.awake : dueLoops).filter { !isPaused($0) }
        if isCrashing || seen.contains(where: { $0.stall != nil }) { noticeCrash() }
        guard !isCrashing else { return schedule = LookSchedule(first: woken + tick) }
        for watched in seen { look(at: watched) }
        adoptRules(of: seen)
        services.live.note(watched: watchList.count, lastLook: .now)
        services.ledger.update { counts in
            counts.looks += 1
            counts.loopLooks += seen.count
            counts.lateLooks += woken - due > tick ? 1 : 0
        }
        let maturities = seen.compactMap { watched in
            watched.policy.maturity.map { (maturity: $0, place: watched.wakeFlag.place) }
        }
        forgetEndedLoops(among: seen)
        if isRound { watchList.letSleep { $0.isPaused || pausedSince != nil } }
        plan(isRound, maturities)
    }

    private mutating func look(at watched: WatchedLoop) {
        // Reads the clock again for each loop: the captures for the one before may have taken a while.
        let now = MonotonicInstant.now
        services.record(selfCheck.step(at: now, tick: tick))
        let excluded = watched.excludedTime.take(at: now, missed: selfCheck.missed, because: selfCheck.reason)
        let late = watched.excludedTime.lastMissed > watched.policy.rule.tick
        let (_, findings) = watched.look(at: now, late: late, excluded: excluded)
        watched.follow(findings, at: now, with: &services)
        for finding in findings {
            if case .candidate = finding.decision {
                noticeCrash()
                if isCrashing { continue }
            }
            watched.carryOut(finding, at: now, with: &services)
        }
        watched.noteLength(at: now, with: &services)
    }

    private mutating func plan(_ isRound: Bool, _ maturities: [(maturity: MonotonicInstant, place: Int)]) {
        let now = MonotonicInstant.now
        if checkpoints.isDue(at: now) {
            services.notices.add(.checkpoint, mayBeDropped: true)
            services.live.refresh()
        }
        // This comes before `rest`, which restarts the account: otherwise a stop since the last step would be lost.
        services.record(selfCheck.step(at: now, tick: tick))
        selfCheck.rest(at: now)
        guard isRound else { return schedule.add(maturities, after: now) }
        schedule.planRound(after: now, tick: tick, reach: watchList.threshold, maturities: maturities)
    }

    /// Removes the loops that have ended. Such a loop raises its flag, so it is awake.
    private mutating func forgetEndedLoops(among awake: [WatchedLoop]) {
        for watched in awake where watched.loop.heartbeat.hasEnded { remove(watched.identity.number) }
    }

    /// Removes ended loops that no look finds, because they are paused.
    private mutating func forgetEndedLoops() {
        guard watchList.count > watchLimit else { return }
        forgetEndedLoops(among: watchList.all)
        watchLimit = max(64, watchList.count * 2)
    }

    // MARK: - Another configuration

    mutating func adopt(_ settings: WatchSettings) {
        services.adopt(settings)
        for watched in watchList.all where watched.identity.followsConfiguration {
            watched.nextRule = watched.loop.pool == nil ? settings.rule : settings.rule.forPools
        }
        adoptRules(of: watchList.all)
        // The new tick may be shorter.
        schedule.advance(to: .now + tick)
    }

    private mutating func adoptRules(of loops: [WatchedLoop]) {
        for watched in loops where watched.stall == nil {
            guard let rule = watched.nextRule.take(), rule != watched.policy.rule else { continue }
            watchList.change(watched, to: rule, missed: selfCheck.missed)
        }
    }

    // MARK: - Adding and removing

    mutating func add(_ watched: WatchedLoop) {
        let record = WatchdogLedger.WatchRecord(
            name: watched.identity.name,
            since: watched.identity.since,
            firstTurn: watched.loop.heartbeat.turnCount,
            firstLengths: watched.loop.pool?.turnHistogram ?? TurnHistogram(),
            heartbeat: watched.loop.heartbeat
        )
        let number = watched.identity.number
        forgetEndedLoops()
        services.ledger.update { $0.watches[number] = record }
        watchList.add(watched)
        // Its tick may be shorter than the others'.
        schedule.advance(to: .now + tick)
        if let pausedSince { services.ledger.update { $0.watches[number]?.pausedSince = pausedSince } }
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

    /// Called when the process may be about to end, so that the live record says so.
    func serveExit() { services.live.serveExit() }

    mutating func finish() {
        let all = watchList.all
        for watched in all { release(watched) }
        closeMonitorsPause(at: .now)
        for watched in all { closePause(of: watched, at: .now) }
        watchList = WatchList()
        services.costs.update(at: .now)
    }

    private mutating func release(_ watched: WatchedLoop) {
        let now = MonotonicInstant.now
        // This comes before the watcher is detached, because detaching removes the heartbeat's counts.
        services.ledger.update { [number = watched.identity.number] in $0.endWatch(number, at: now) }
        watched.loop.heartbeat.detach()
        watched.abandon(at: now, with: &services)
    }
}
