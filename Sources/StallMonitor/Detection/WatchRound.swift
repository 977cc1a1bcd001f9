import RunLoopKit
import StackCapture
import StallReports

/// All watched loops and what a look at them does. Confined to the watchdog's thread.
struct WatchRound: ~Copyable {
    /// When to look next.
    var nextLook: MonotonicInstant { schedule.next }
    private var schedule = LookSchedule(first: .now)
    var subjects = Roster()
    /// When the bells were last looked at: a loop whose bell has rung since rested until then.
    private var bellsTaken: MonotonicInstant = .now
    /// What had been missed by then.
    private var missedAtBells = Duration.zero
    private let bells: BellBoard
    var stalls = 0
    private var checkpoints = CheckpointSchedule(start: .now)
    let notices: Mailbox<StallNotice>
    let ledger: WatchdogLedger
    let stackSource: StackSource
    private var vigil: Vigil
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

    init(
        notices: Mailbox<StallNotice>,
        ledger: WatchdogLedger,
        stackSource: StackSource,
        bells: BellBoard,
        costs: CostGuard? = nil,
        live: LiveBoard = LiveBoard(),
        countsTraced: Bool = false,
        supply: SupplyLocation = .init()
    ) {
        self.costs = costs ?? CostGuard(limits: .init(), meter: CostMeter(), notices: notices, ledger: ledger)
        self.supply = SupplyMeter(location: supply)
        vigil = Vigil(at: .now, supply)
        self.live = live
        self.bells = bells
        self.notices = notices
        self.countsTraced = countsTraced
        self.ledger = ledger
        self.stackSource = stackSource
    }

    /// On the watchdog's thread, which was made for it after `time`.
    mutating func begin(since time: MonotonicInstant) { vigil.begin(since: time) }

    /// Whether every loop rests and will ring.
    var isAtRest: Bool { subjects.isAtRest }

    /// The parked wait is over. The first look comes a tick later: a loop that wakes often and briefly costs one look a tick.
    ///
    /// - Parameter since: when another loop began to count, by an order that is still to be carried out.
    /// - Returns: what had been missed before.
    mutating func unparked(at time: MonotonicInstant, since: MonotonicInstant?) -> Duration {
        let (places, missed) = (bells.takeRung(), vigil.missed)
        // A loop that nobody looks at may have been busy all along.
        let departures = places.compactMap { subjects.subject(at: $0) }.filter { !isPaused($0) }.compactMap(\.departure)
        let first = (departures + [since].compactMap { $0 }).min()
        let (runnable, absences) = vigil.unpark(departure: first, at: time, tick: tick)
        note(absences)
        for place in places { subjects.wake(place, restedUntil: runnable, missed: missed) }
        (bellsTaken, missedAtBells) = (time, vigil.missed)
        schedule = LookSchedule(first: time + tick)
        return missed
    }

    /// Not parked. A loop begins to count, by an order given at `since`: the process may have been stopped since then, or since the
    /// next look was due.
    ///
    /// - Returns: what had been missed before.
    mutating func catchUp(since: MonotonicInstant?) -> Duration {
        let missed = vigil.missed
        if let since { note(vigil.wake(due: min(since, nextLook), at: .now, tick: tick)) }
        return missed
    }

    mutating func add(_ subject: Subject) {
        let record = WatchdogLedger.WatchRecord(
            name: subject.identity.name,
            since: subject.identity.since,
            firstTurn: subject.loop.heartbeat.pulse.turn,
            heartbeat: subject.loop.heartbeat
        )
        ledger.update { [number = subject.identity.number] in $0.watches[number] = record }
        subjects.add(subject)
        // Its tick may be finer than those before.
        schedule.advance(to: .now + tick)
        if let pausedSince { ledger.update { $0.watches[subject.identity.number]?.pausedSince = pausedSince } }
        live.note(watched: subjects.subjects.count)
        notices.add(.checkpoint)
    }

    mutating func remove(_ number: Int) {
        guard let index = subjects.index(ofNumber: number) else { return }
        release(index)
        closePause(of: number, at: .now)
        bells.putAway(subjects.remove(at: index).bell)
        live.note(watched: subjects.subjects.count)
        notices.add(.checkpoint)
    }

    mutating func finish() {
        for index in subjects.subjects.indices { release(index) }
        closePauses(at: .now)
        subjects = Roster()
        costs.update(at: .now)
    }

    /// What the watchdog has missed so far.
    var missed: Duration { vigil.missed }

    /// Looks at every loop that is awake, or between two ticks at those alone that reach their threshold; tells the reporter what it
    /// finds.
    mutating func look() {
        let (woken, due) = (MonotonicInstant.now, nextLook)
        costs.update(at: woken)
        wakeThoseThatRang()
        note(vigil.wake(due: due, at: woken, tick: tick))
        missedAtBells = vigil.missed
        let isRound = schedule.isRound(at: woken)
        let dueIndices = schedule.takeDue(at: woken).compactMap(subjects.index(ofPlace:))
        let visited = (isRound ? subjects.awakeIndices : dueIndices).filter { !isPaused(subjects[$0]) }
        if isCrashing || visited.contains(where: { subjects[$0].stall != nil }) { noticeCrash() }
        guard !isCrashing else { return schedule = LookSchedule(first: woken + tick) }
        for index in visited { look(at: index) }
        live.note(watched: subjects.subjects.count, lastLook: .now)
        ledger.update { counts in
            counts.looks += 1
            counts.visits += visited.count
            counts.lateLooks += woken - due > tick ? 1 : 0
        }
        let maturities = visited.compactMap { index in
            subjects[index].policy.maturity.map { (maturity: $0, place: subjects[index].bell.place) }
        }
        forgetEndedLoops(among: visited)
        if isRound { subjects.letSleep { $0.isPaused || pausedSince != nil } }
        plan(isRound, maturities)
    }

    private mutating func plan(_ isRound: Bool, _ maturities: [(maturity: MonotonicInstant, place: Int)]) {
        let now = MonotonicInstant.now
        if checkpoints.isDue(at: now) {
            notices.add(.checkpoint, mayBeDropped: true)
            live.refresh()
        }
        // `rest` forgets: a stop since the last step must be told before.
        note(vigil.step(at: now, tick: tick))
        vigil.rest(at: now)
        guard isRound else { return schedule.add(maturities, after: now) }
        schedule.planRound(after: now, tick: tick, reach: subjects.threshold, maturities: maturities)
    }

    private mutating func look(at index: Int) {
        // Anew for each: the capture before may have taken its time.
        let now = MonotonicInstant.now
        note(vigil.step(at: now, tick: tick))
        let discount = subjects[index].discounts.take(at: now, missed: vigil.missed, because: vigil.reason)
        let late = subjects[index].discounts.lastMissed > subjects[index].policy.rule.tick
        let (pulse, findings) = subjects[index].look(at: now, late: late, discount: discount)
        if subjects[index].standstill?.wantsSupply == true {
            subjects[index].standstill?.supply = supply.reading(at: now)
        }
        if subjects[index].policy.dismissal != nil || subjects[index].holdUp != nil { countDismissal(index, pulse) }
        if subjects[index].holdUp != nil { followHoldUp(index, at: now) }
        if findings.isEmpty, subjects[index].wantsSample(at: now, pulse) { sample(index, pulse, at: now) }
        for finding in findings { carryOut(finding, on: index, pulse, at: now) }
        if let stall = subjects[index].stall, let span = subjects[index].policy.span(of: stall.category, at: now) {
            live.see(stall.number, span, at: now)
        }
    }

    private mutating func wakeThoseThatRang() {
        let now = MonotonicInstant.now
        for place in bells.takeRung() { subjects.wake(place, restedUntil: bellsTaken, missed: missedAtBells) }
        bellsTaken = now
    }

    /// The finest tick asked for.
    private var tick: Duration { subjects.tick }

    private mutating func release(_ index: Int) {
        let now = MonotonicInstant.now
        let heartbeat = subjects[index].loop.heartbeat
        // What is counted of the loop is its watcher's: before it goes.
        ledger.update { [number = subjects[index].identity.number] in $0.endWatch(number, at: now) }
        heartbeat.detach()
        abandon(index, at: now)
    }

    /// A loop that ends rings, and so is awake.
    private mutating func forgetEndedLoops(among awake: [Int]) {
        let ended = awake.filter { subjects[$0].loop.heartbeat.hasEnded }.map { subjects[$0].identity.number }
        for number in ended { remove(number) }
    }
}
