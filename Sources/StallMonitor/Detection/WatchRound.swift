import Glibc
import RunLoopKit
import StackCapture
import StallReports

/// All watched loops and what a look at them does. Confined to the watchdog's thread.
struct WatchRound: ~Copyable {
    /// When to look next.
    private(set) var nextLook: MonotonicInstant = .now
    var subjects = Roster()
    /// When the bells were last looked at: a loop whose bell has rung since rested until then.
    private var bellsTaken: MonotonicInstant = .now
    private let bells: BellBoard
    private var stalls = 0
    private var checkpoints = CheckpointSchedule(start: .now)
    let notices: Mailbox<StallNotice>
    let ledger: WatchdogLedger
    private let stackSource: StackSource
    private var vigil = Vigil(at: .now)
    let countsTraced: Bool
    /// Since when the whole monitor is paused, and each watch that is.
    var pausedSince: MonotonicInstant?
    var watchesPausedSince: [Int: MonotonicInstant] = [:]
    private var supply: SupplyMeter
    private var costs: CostGuard
    private let live: LiveBoard

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
        self.live = live
        self.bells = bells
        self.notices = notices
        self.countsTraced = countsTraced
        self.ledger = ledger
        self.stackSource = stackSource
    }

    /// Whether every loop rests and will ring.
    var isAtRest: Bool { subjects.isAtRest }

    /// The parked wait is over. The first look comes a tick later: a loop that wakes often and briefly costs one look a tick.
    mutating func unparked(at time: MonotonicInstant) {
        let (places, missed) = (bells.takeRung(), vigil.missed)
        // A loop that nobody looks at may have been busy all along.
        let departure = places.compactMap { subjects.subject(at: $0) }.filter { !isPaused($0) }.compactMap(\.departure)
            .min()
        let (runnable, absences) = vigil.unpark(departure: departure, at: time, tick: tick)
        note(absences)
        for place in places { subjects.wake(place, restedUntil: runnable, missed: missed) }
        bellsTaken = time
        nextLook = time + tick
    }

    mutating func add(_ subject: Subject) {
        let record = WatchdogLedger.WatchRecord(
            name: subject.identity.name,
            since: subject.identity.since,
            heartbeat: subject.loop.heartbeat
        )
        ledger.update { [number = subject.identity.number] in $0.watches[number] = record }
        subjects.add(subject)
        if let pausedSince { ledger.update { $0.watches[subject.identity.number]?.pausedSince = pausedSince } }
        notices.add(.checkpoint)
    }

    mutating func remove(_ number: Int) {
        guard let index = subjects.index(ofNumber: number) else { return }
        release(index)
        closePause(of: number, at: .now)
        bells.putAway(subjects.remove(at: index).bell)
    }

    mutating func finish() {
        for index in subjects.subjects.indices { release(index) }
        closePauses(at: .now)
        subjects = Roster()
        recordCost()
    }

    /// What the watchdog has missed so far.
    var missed: Duration { vigil.missed }

    /// Looks at every loop that is awake, and tells the reporter what it finds.
    mutating func look() {
        let woken = MonotonicInstant.now
        let oversleep = woken - nextLook
        costs.update(at: woken)
        wakeThoseThatRang()
        note(vigil.wake(due: nextLook, at: woken, tick: tick))
        let awake = subjects.awakeIndices.filter { !isPaused(subjects[$0]) }
        for index in awake {
            // Anew for each: the capture before may have taken its time.
            let now = MonotonicInstant.now
            if let absence = vigil.step(at: now) { note([absence]) }
            let discount = subjects[index].discounts.take(at: now, missed: vigil.missed, because: vigil.reason)
            let late = subjects[index].discounts.lastMissed > subjects[index].policy.rule.tick
            let (pulse, findings) = subjects[index].look(at: now, late: late, discount: discount)
            if subjects[index].standstill?.wantsSupply == true {
                subjects[index].standstill?.supply = supply.reading(at: now)
            }
            if subjects[index].policy.dismissal != nil || subjects[index].holdUp != nil { countDismissal(index, pulse) }
            if findings.isEmpty, subjects[index].wantsSample(at: now, pulse) { sample(index, pulse, at: now) }
            for finding in findings { carryOut(finding, on: index, pulse, at: now) }
            if let stall = subjects[index].stall, let span = subjects[index].policy.span(of: stall.category, at: now) {
                live.see(stall.number, span, at: now)
            }
        }
        live.note(watched: subjects.subjects.count, lastLook: .now)
        ledger.update { counts in
            counts.looks += 1
            counts.visits += awake.count
            counts.lateLooks += oversleep > tick ? 1 : 0
        }
        let maturity = awake.compactMap { subjects[$0].policy.maturity }.min()
        forgetEndedLoops(among: awake)
        subjects.letSleep { $0.isPaused || pausedSince != nil }
        let now = MonotonicInstant.now
        if checkpoints.isDue(at: now) {
            recordCost()
            notices.add(.checkpoint, mayBeDropped: true)
            live.refresh()
        }
        vigil.rest(at: now)
        nextLook = LookSchedule.next(after: now, tick: tick, maturity: maturity)
    }

    private mutating func wakeThoseThatRang() {
        let now = MonotonicInstant.now
        for place in bells.takeRung() { subjects.wake(place, restedUntil: bellsTaken, missed: vigil.missed) }
        bellsTaken = now
    }

    /// The finest tick asked for.
    private var tick: Duration { subjects.tick }

    private mutating func carryOut(
        _ finding: StallFinding,
        on index: Int,
        _ pulse: LoopHeartbeat.Pulse,
        at time: MonotonicInstant
    ) {
        let category = finding.category
        switch finding.decision {
        case .none: break
        case .began(let span):
            if dismisses(category, index, span, pulse, at: time) { return }
            subjects[index].noteSample(at: time)
            let (source, loop) = (stackSource, subjects[index].loop)
            let stack = pulse.isAtRest ? .raced : costs.detection(at: time) { source.stack(of: loop, at: pulse) }
            if category == .blocked, dismissesWait(index, stack, at: time) { return }
            begin(category, span, index, pulse, stack, at: time)
        case .grew(let span):
            excludeHoldUp(index, at: time)
            if subjects[index].wantsSample(at: time, pulse) { sample(index, pulse, at: time) }
            guard let stall = subjects[index].stall else { return }
            tellBusyTime(span, index, hasEnded: false)
            notices.add(.grew(stall.number, span), mayBeDropped: true)
        case .ended(let span):
            end(span, index, at: time)
        case .passed(let span, let pulse):
            begin(category, span, index, pulse, .raced, at: time)
            end(span, index, at: time)
        }
    }

    private func tellBusyTime(_ span: StallSpan, _ index: Int, hasEnded: Bool) {
        guard let stall = subjects[index].stall else { return }
        let busy = subjects[index].busyTime(stall.category, span, hasEnded: hasEnded)
        if let busy { notices.add(.counted(stall.number, busy)) }
    }

    /// Looks at what the thread is at. A capture that fails is left out: the next one may not.
    private mutating func sample(_ index: Int, _ pulse: LoopHeartbeat.Pulse, at time: MonotonicInstant) {
        subjects[index].noteSample(at: time)
        let (source, loop) = (stackSource, subjects[index].loop)
        guard let stack = costs.sample(at: time, { source.stack(of: loop, at: pulse) }) else { return }
        ledger.update { $0.count(stack) }
        let threadID = subjects[index].loop.thread?.id
        guard
            var captured = stack.captured.map({
                StackSample(time: time, stack: $0, site: stackSource.waitSite(of: $0, threadID: threadID))
            })
        else { return }
        if let stall = subjects[index].stall {
            if subjects[index].standstill?.lockIsKnown == false { captured.lock = lock(index, pulse, stack) }
            notices.add(.sampled(stall.number, captured), mayBeDropped: true)
        } else {
            subjects[index].keep(captured, at: pulse)
        }
    }

    private mutating func begin(
        _ category: StallCategory,
        _ span: StallSpan,
        _ index: Int,
        _ pulse: LoopHeartbeat.Pulse,
        _ stack: StackOutcome,
        at time: MonotonicInstant
    ) {
        stalls += 1
        subjects[index].stall = (stalls, category, pulse)
        let samples = subjects[index].takeSamples(category, from: span.earliestStart, at: pulse)
        let subject = subjects[index]
        ledger.update { $0.count(stack) }
        let lock = lock(index, pulse, stack)
        let observation = StallObservation(
            number: stalls,
            reportID: .make(),
            watch: subject.identity,
            loop: subject.loop,
            category: category,
            rule: subject.policy.rule,
            pulse: pulse,
            span: span,
            detectedAt: time,
            threadID: subject.loop.thread?.id,
            evidence: evidence(of: (stalls, category, pulse), index, span, at: time),
            stack: stack,
            samples: samples,
            busy: subject.busyTime(category, span, hasEnded: false),
            site: stack.captured.flatMap { stackSource.waitSite(of: $0, threadID: subject.loop.thread?.id) },
            others: stack.captured.flatMap { _ in
                stackSource.otherThreads(than: subject.loop.thread?.id, within: subject.policy.rule.tick)
            },
            lock: lock,
            watchdogCPU: subject.standstill?.watchdogCPU
        )
        live.begin(observation)
        notices.add(.began(observation))
    }

    /// Whom the loop's thread waits for.
    private mutating func lock(_ index: Int, _ pulse: LoopHeartbeat.Pulse, _ stack: StackOutcome) -> LockFinding? {
        guard let found = stackSource.lock(holding: subjects[index].loop, at: pulse, stack) else { return nil }
        ledger.update { $0.count(found.costs) }
        subjects[index].standstill?.lockIsKnown = true
        return found
    }

    private mutating func end(_ span: StallSpan, _ index: Int, at time: MonotonicInstant) {
        guard let stall = subjects[index].stall else { return }
        tellBusyTime(span, index, hasEnded: true)
        subjects[index].stall = nil
        live.end(stall.number, span)
        notices.add(.ended(stall.number, span, evidence(of: stall, index, span, at: time)))
    }

    /// Closes a stall under way because nobody will look at the loop. One whose loop has ended is over; of the others nobody knows.
    mutating func abandon(_ index: Int, at time: MonotonicInstant) {
        let findings = subjects[index].abandon(at: time)
        countDismissal(index, nil)
        for finding in findings {
            guard case .ended(let span) = finding.decision else { continue }
            guard !subjects[index].loop.heartbeat.hasEnded else { return end(span, index, at: time) }
            guard let stall = subjects[index].stall else { return }
            tellBusyTime(span, index, hasEnded: true)
            subjects[index].stall = nil
            live.end(stall.number, span)
            notices.add(.abandoned(stall.number, span, evidence(of: stall, index, span, at: time)))
        }
    }

    private mutating func evidence(
        of stall: Subject.Stall,
        _ index: Int,
        _ span: StallSpan,
        at time: MonotonicInstant
    ) -> EvidenceWindow? {
        let subject = subjects[index]
        var window = subject.evidence(stall.category, at: time, of: stall.pulse)?.leavingOut(span.unproven)
        if window != nil, let id = subject.loop.thread?.id {
            window?.supply = supply.window(since: subject.standstill?.supply, threadID: id, at: time)
        }
        return window
    }

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

    private func recordCost() {
        var time = timespec()
        unsafe clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
        let cpu = UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec)
        ledger.update { $0.cpuNanoseconds = cpu }
    }
}

/// When the run record is brought up to date: soon after the start, then at growing distances, half a minute at most.
struct CheckpointSchedule {
    private var next: MonotonicInstant
    private var distance: Duration = .milliseconds(500)

    init(start: MonotonicInstant) {
        next = start + distance
    }

    mutating func isDue(at time: MonotonicInstant) -> Bool {
        guard time >= next else { return false }
        distance = min(distance * 2, .seconds(30))
        next = time + distance
        return true
    }
}
