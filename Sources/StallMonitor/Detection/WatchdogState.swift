import RunLoopKit
import StackCapture
import StallDetection
import StallDiagnosis
import StallReports

/// All watched loops and what a look at them does. Confined to the watchdog's thread.
struct WatchdogState: ~Copyable {
    /// When to look next.
    var nextLook: MonotonicInstant { schedule.next }
    private var schedule = LookSchedule(first: .now)
    var watchList = WatchList()
    /// When the wake flags were last read: a loop whose flag was raised since then rested until then.
    private var flagsTaken: MonotonicInstant = .now
    /// What had been missed by then.
    private var missedAtFlags = Duration.zero
    private let wakeFlags: WakeFlags
    var stalls = 0
    private var checkpoints = CheckpointSchedule(start: .now)
    let notices: Mailbox<StallNotice>
    let ledger: WatchdogLedger
    let stackSource: StackSource
    private var selfCheck: SelfCheck
    let countsTraced: Bool
    /// Since when the whole monitor is paused, and each watch that is.
    var pausedSince: MonotonicInstant?
    var watchesPausedSince: [Int: MonotonicInstant] = [:]
    var supply: SupplyMeter
    var costs: CostGuard
    let live: LiveBoard
    let crash = CrashWatch()
    /// The process ends by a crash: what is not told of by now is no stall, and what is grows no longer.
    var isCrashing = false
    /// Nil: no stall ends the process.
    var lastResort: LastResort?

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
        self.lastResort = lastResort
        self.costs = costs ?? CostGuard(limits: .init(), meter: CostMeter(), notices: notices, ledger: ledger)
        self.supply = SupplyMeter(location: supply)
        selfCheck = SelfCheck(at: .now, supply)
        self.live = live
        self.wakeFlags = wakeFlags
        self.notices = notices
        self.countsTraced = countsTraced
        self.ledger = ledger
        self.stackSource = stackSource
    }

    /// On the watchdog's thread, which was made for it after `time`.
    mutating func begin(since time: MonotonicInstant) { selfCheck.begin(since: time) }

    /// Whether every loop rests and will raise its flag.
    var isAtRest: Bool { watchList.isAtRest }

    /// The parked wait is over. The first look comes a tick later: a loop that wakes often and briefly costs one look a tick.
    ///
    /// - Parameter since: when another loop began to count, by an order that is still to be carried out.
    /// - Returns: what had been missed before.
    mutating func unparked(at time: MonotonicInstant, since: MonotonicInstant?) -> Duration {
        let (places, missed) = (wakeFlags.takeRaised(), selfCheck.missed)
        // A loop that nobody looks at may have been busy all along.
        let departures = places.compactMap { watchList.watched(at: $0) }.filter { !isPaused($0) }.compactMap(
            \.departure
        )
        let first = (departures + [since].compactMap { $0 }).min()
        let (runnable, absences) = selfCheck.unpark(departure: first, at: time, tick: tick)
        note(absences)
        for place in places { watchList.wake(place, restedUntil: runnable, missed: missed) }
        (flagsTaken, missedAtFlags) = (time, selfCheck.missed)
        schedule = LookSchedule(first: time + tick)
        return missed
    }

    /// Not parked. A loop begins to count, by an order given at `since`: the process may have been stopped since then, or since the
    /// next look was due.
    ///
    /// - Returns: what had been missed before.
    mutating func catchUp(since: MonotonicInstant?) -> Duration {
        let missed = selfCheck.missed
        if let since { note(selfCheck.wake(due: min(since, nextLook), at: .now, tick: tick)) }
        return missed
    }

    mutating func add(_ watched: WatchedLoop) {
        let record = WatchdogLedger.WatchRecord(
            name: watched.identity.name,
            since: watched.identity.since,
            firstTurn: watched.loop.heartbeat.turnCount,
            heartbeat: watched.loop.heartbeat
        )
        ledger.update { [number = watched.identity.number] in $0.watches[number] = record }
        watchList.add(watched)
        // Its tick may be finer than those before.
        schedule.advance(to: .now + tick)
        if let pausedSince { ledger.update { $0.watches[watched.identity.number]?.pausedSince = pausedSince } }
        live.note(watched: watchList.loops.count)
        notices.add(.checkpoint)
    }

    mutating func remove(_ number: Int) {
        guard let index = watchList.index(ofNumber: number) else { return }
        release(index)
        closePause(of: number, at: .now)
        wakeFlags.remove(watchList.remove(at: index).wakeFlag)
        live.note(watched: watchList.loops.count)
        notices.add(.checkpoint)
    }

    /// Looks at what stands, so that an end that came before is told before `done` is called.
    mutating func settle(_ done: @escaping @Sendable () -> Void) {
        for index in watchList.loops.indices where watchList[index].stall != nil { look(at: index) }
        notices.add(.settled(done))
    }

    mutating func finish() {
        for index in watchList.loops.indices { release(index) }
        closePauses(at: .now)
        watchList = WatchList()
        costs.update(at: .now)
    }

    /// What the watchdog has missed so far.
    var missed: Duration { selfCheck.missed }

    /// Looks at every loop that is awake, or between two ticks at those alone that reach their threshold; tells the reporter what it
    /// finds.
    mutating func look() {
        let (woken, due) = (MonotonicInstant.now, nextLook)
        costs.update(at: woken)
        wakeRaised()
        note(selfCheck.wake(due: due, at: woken, tick: tick))
        missedAtFlags = selfCheck.missed
        let isRound = schedule.isRound(at: woken)
        let dueIndices = schedule.takeDue(at: woken).compactMap(watchList.index(ofPlace:))
        let visited = (isRound ? watchList.awakeIndices : dueIndices).filter { !isPaused(watchList[$0]) }
        if isCrashing || visited.contains(where: { watchList[$0].stall != nil }) { noticeCrash() }
        guard !isCrashing else { return schedule = LookSchedule(first: woken + tick) }
        for index in visited { look(at: index) }
        live.note(watched: watchList.loops.count, lastLook: .now)
        ledger.update { counts in
            counts.looks += 1
            counts.visits += visited.count
            counts.lateLooks += woken - due > tick ? 1 : 0
        }
        let maturities = visited.compactMap { index in
            watchList[index].policy.maturity.map { (maturity: $0, place: watchList[index].wakeFlag.place) }
        }
        forgetEndedLoops(among: visited)
        if isRound { watchList.letSleep { $0.isPaused || pausedSince != nil } }
        plan(isRound, maturities)
    }

    private mutating func plan(_ isRound: Bool, _ maturities: [(maturity: MonotonicInstant, place: Int)]) {
        let now = MonotonicInstant.now
        if checkpoints.isDue(at: now) {
            notices.add(.checkpoint, mayBeDropped: true)
            live.refresh()
        }
        // `rest` forgets: a stop since the last step must be told before.
        note(selfCheck.step(at: now, tick: tick))
        selfCheck.rest(at: now)
        guard isRound else { return schedule.add(maturities, after: now) }
        schedule.planRound(after: now, tick: tick, reach: watchList.threshold, maturities: maturities)
    }

    private mutating func look(at index: Int) {
        // Anew for each: the capture before may have taken its time.
        let now = MonotonicInstant.now
        note(selfCheck.step(at: now, tick: tick))
        let excluded = watchList[index].excludedTime.take(at: now, missed: selfCheck.missed, because: selfCheck.reason)
        let late = watchList[index].excludedTime.lastMissed > watchList[index].policy.rule.tick
        let (pulse, findings) = watchList[index].look(at: now, late: late, excluded: excluded)
        if watchList[index].standstill?.wantsSupply == true {
            watchList[index].standstill?.supply = supply.reading(at: now)
        }
        if watchList[index].policy.dismissal != nil || watchList[index].outsideDelay != nil {
            countDismissal(index, pulse)
        }
        if watchList[index].outsideDelay != nil { followOutsideDelay(index, at: now) }
        if findings.isEmpty, watchList[index].wantsSample(at: now, pulse) { sample(index, pulse, at: now) }
        for finding in findings { carryOut(finding, on: index, pulse, at: now) }
        if let stall = watchList[index].stall, let span = watchList[index].policy.span(of: stall.category, at: now) {
            live.see(stall.number, span, at: now)
            if lastResort != nil, stall.category == .blocked { considerLastResort(stall.number, span, index, at: now) }
        }
    }

    private mutating func wakeRaised() {
        let now = MonotonicInstant.now
        for place in wakeFlags.takeRaised() { watchList.wake(place, restedUntil: flagsTaken, missed: missedAtFlags) }
        flagsTaken = now
    }

    /// The finest tick asked for.
    private var tick: Duration { watchList.tick }

    private mutating func release(_ index: Int) {
        let now = MonotonicInstant.now
        let heartbeat = watchList[index].loop.heartbeat
        // What is counted of the loop is its watcher's: before it goes.
        ledger.update { [number = watchList[index].identity.number] in $0.endWatch(number, at: now) }
        heartbeat.detach()
        abandon(index, at: now)
    }

    /// A loop that ends raises its flag, and so is awake.
    private mutating func forgetEndedLoops(among awake: [Int]) {
        let ended = awake.filter { watchList[$0].loop.heartbeat.hasEnded }.map { watchList[$0].identity.number }
        for number in ended { remove(number) }
    }
}
