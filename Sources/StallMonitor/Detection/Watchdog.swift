import Locking
import RunLoopKit
import StallDetection
import StallDiagnosis
import StallReports
import Synchronization

/// The thread that looks at all watched loops.
///
///     parked ──a loop leaves its rest──> ticking ──a look finds every loop at rest──> parked
///
/// Parked, it waits on its semaphore and costs nothing: without a deadline, unless it has reported that it takes no stacks and this will be
/// over. The first loop that leaves its rest posts the semaphore; later ones see that the watchdog is not parked, and do not. Ticking, it looks
/// once a tick at the loops that are awake. A loop that is found at rest is not looked at again until it raises its wake flag. Findings go to the
/// reporter, so that neither symbols nor disks delay the next look.
final class Watchdog: Sendable {
    let wakeFlags = WakeFlags()
    let semaphore = TickSemaphore()
    private let isParked = Atomic(false)
    /// What other threads have requested: see `Watchdog+Orders.swift`. Nil after `stop`.
    let orders = ForkSafeMutex<[Order]?>([])
    let generation = ForkGeneration.current
    private let createdAt = MonotonicInstant.now

    /// Wakes the watchdog: a wake flag was raised. Called on the loop's thread, as it leaves its rest.
    func wake() {
        guard isParked.load(ordering: .sequentiallyConsistent) else { return }
        if isParked.exchange(false, ordering: .sequentiallyConsistent) { semaphore.signal() }
    }

    /// The body of the thread. Returns after a `stop` order, with all stalls closed.
    func run(_ state: consuming WatchdogState) {
        state.begin(since: createdAt)
        var wasParked = false
        while carryOutOrders(&state, wasParked: wasParked) {
            wasParked = park(state)
            if wasParked {
                if !semaphore.wait(until: state.recovery) { state.recover() }
                isParked.store(false, ordering: .sequentiallyConsistent)
            } else if state.nextLook <= .now || !semaphore.wait(until: state.nextLook) {
                // A signal would be for an order, or from a loop that raised its flag just after the flags were read. Neither is a tick, and
                // however many there are, none puts off a look that is due.
                state.look()
            }
        }
        state.finish()
    }

    /// Parks if every loop is at rest. False if one is busy, or has already raised its flag.
    ///
    /// No departure is lost: the watchdog sets `isParked` before it reads the flags, and a loop raises its flag before it reads `isParked`. So a
    /// loop that leaves its rest in between is seen here, or its signal ends the wait at once.
    private func park(_ state: borrowing WatchdogState) -> Bool {
        state.isAtRest && park { wakeFlags.hasRaised }
    }

    func park(unless hasRaised: () -> Bool) -> Bool {
        isParked.store(true, ordering: .sequentiallyConsistent)
        if !hasRaised() { return true }
        isParked.store(false, ordering: .sequentiallyConsistent)
        return false
    }
}

/// The watchdog's data: all watched loops, and the looks at them. Confined to the watchdog's thread.
struct WatchdogState: ~Copyable {
    /// When to look next.
    var nextLook: MonotonicInstant { schedule.next }
    private var schedule = LookSchedule(first: .now)
    var watchList = WatchList()
    /// When there are more watches than this, those of ended loops are removed, also if they are paused.
    var watchLimit = 64
    let wakeFlags: WakeFlags
    /// When the wake flags were last read. A loop whose flag was raised since then rested until then.
    private var flagsTaken: MonotonicInstant = .now
    /// How much time had been missed when the flags were last read.
    private var missedAtFlags = Duration.zero
    private var checkpoints = CheckpointSchedule(start: .now)
    private var selfCheck: SelfCheck
    /// The rule of the latest configuration. Nil while there was only the first one, with whose rule the loops are added.
    var latestRule: StallRule?
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
        supply: SupplyLocation = .init()
    ) {
        self.wakeFlags = wakeFlags
        selfCheck = SelfCheck(at: .now, supply)
        services = WatchServices(
            notices: notices,
            ledger: ledger,
            live: live,
            stackSource: stackSource,
            costs: costs ?? CostGuard(limits: .init(), meter: CostMeter(), notices: notices, ledger: ledger),
            supply: SupplyMeter(location: supply)
        )
    }

    /// Called on the watchdog's thread, which was started after `time`.
    mutating func begin(since time: MonotonicInstant) { selfCheck.begin(since: time) }

    /// When to call ``recover()`` if the watchdog is parked until then. Nil if there is no need.
    var recovery: MonotonicInstant? { services.costs.recovery }

    /// Reports that captures are permitted again. Otherwise the next look does, which an idle process may never see.
    mutating func recover() { services.costs.update(at: .now) }

    /// Whether every loop is at rest and will raise its flag.
    var isAtRest: Bool { watchList.isAtRest }

    /// How much time the watchdog has missed so far.
    var missed: Duration { selfCheck.missed }

    /// The shortest tick of all loops.
    private var tick: Duration { watchList.tick }

    /// Brings the next look forward to a tick from now, because the tick may have become shorter.
    mutating func lookWithinTick() { schedule.advance(to: .now + tick) }

    // MARK: - Waking

    /// Ends the parked wait. The first look follows a tick later, so a loop that often wakes briefly costs one look per tick.
    ///
    /// - Parameter since: When another loop began to count, by an order that is still to be carried out.
    /// - Returns: How much time had been missed before.
    mutating func unparked(at time: MonotonicInstant, since: MonotonicInstant?) -> Duration {
        let (woken, missed) = (wakeFlags.takeRaised().compactMap(watchList.loop(place:)), selfCheck.missed)
        // A paused loop may have been busy all the time.
        let departures = woken.filter { !isPaused($0) }.compactMap { $0.departure(since: selfCheck.mark) }
        let first = (departures + [since].compactMap { $0 }).min()
        let (runnable, absences) = selfCheck.unpark(departure: first, at: time, tick: tick)
        note(absences)
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
        if let since { note(selfCheck.wake(due: min(since, nextLook), at: .now, tick: tick)) }
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
        note(selfCheck.wake(due: due, at: woken, tick: tick))
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
        let candidates = seen.compactMap { watched in
            watched.policy.maturity.map { LookSchedule.Candidate(maturity: $0, place: watched.wakeFlag.place) }
        }
        forgetEndedLoops(among: seen)
        if isRound { watchList.letSleep(allArePaused: pausedSince != nil) }
        plan(isRound, candidates)
    }

    mutating func look(at watched: WatchedLoop) {
        // Reads the clock again for each loop: the captures for the one before may have taken a while.
        let now = MonotonicInstant.now
        let hadTurned = watched.hasTurned
        let findings = findings(of: watched, at: now)
        // From now on it counts as watched, also for those who read the record of a live process.
        if !hadTurned, watched.hasTurned { services.notices.add(.checkpoint, mayBeDropped: true) }
        watched.follow(findings, at: now, with: &services)
        for finding in findings {
            if case .candidate = finding.decision {
                let wasCrashing = isCrashing
                noticeCrash()
                // The end of a crash closes all stalls and starts the count again: what was found before does not count.
                if isCrashing || wasCrashing { continue }
            }
            watched.carryOut(finding, at: now, with: &services)
        }
        watched.noteLength(at: now, with: &services)
    }

    /// Looks at a stalled loop before its stall is closed unfinished: one that has ended since the latest look is closed as ended. Takes no
    /// stacks.
    mutating func lookForEnd(of watched: WatchedLoop) {
        guard watched.stall != nil, !isCrashing, !watched.loop.heartbeat.hasEnded else { return }
        let now = MonotonicInstant.now
        for finding in findings(of: watched, at: now) where finding.isOver {
            watched.carryOut(finding, at: now, with: &services)
        }
    }

    private mutating func findings(of watched: WatchedLoop, at time: MonotonicInstant) -> [StallFinding] {
        checkForStop(at: time)
        let excluded = watched.excludedTime.take(at: time, missed: selfCheck.missed, because: selfCheck.reason)
        let late = watched.excludedTime.lastMissed > watched.policy.rule.tick
        return watched.look(at: time, late: late, excluded: excluded)
    }

    /// Checks whether the process was stopped since the previous check, in the middle of a look.
    private mutating func checkForStop(at time: MonotonicInstant) {
        let captured = services.takeCaptured()
        note(selfCheck.step(at: time, tick: tick, captured: captured))
    }

    /// Records times in which the process was stopped. They use up no limit of a scope.
    private mutating func note(_ absences: [Absence]) {
        services.record(absences)
        // Monotonic time, by which limits are kept, is stopped with the machine.
        let stops = absences.filter { ![.suspended, .clockStep].contains($0.kind) }
        guard !stops.isEmpty else { return }
        let scopes = watchList.all.flatMap(\.excludedTime.scopes)
        // Most scopes belong to many loops.
        let distinct = Dictionary(scopes.map { (ObjectIdentifier($0), $0) }) { first, _ in first }
        for stop in stops { for scope in distinct.values { scope.extend(by: stop.length) } }
    }

    private mutating func plan(_ isRound: Bool, _ candidates: [LookSchedule.Candidate]) {
        let now = MonotonicInstant.now
        if checkpoints.isDue(at: now) {
            services.notices.add(.checkpoint, mayBeDropped: true)
            services.live.refresh()
        }
        // This comes before `rest`, which restarts the account: otherwise a stop since the last step would be lost.
        checkForStop(at: now)
        selfCheck.rest(at: now)
        guard isRound else { return schedule.add(candidates, after: now) }
        schedule.planRound(after: now, tick: tick, reach: watchList.threshold, candidates: candidates)
    }

    /// Called when the process may be about to end, so that the live record says so.
    func serveExit() { services.live.serveExit() }
}
