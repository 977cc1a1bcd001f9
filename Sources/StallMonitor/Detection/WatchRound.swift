import Glibc
import RunLoopKit
import StackCapture

/// All watched loops and what a look at them does. Confined to the watchdog's thread.
struct WatchRound: ~Copyable {
    /// When to look next.
    private(set) var nextLook: MonotonicInstant = .now
    var subjects: [Subject] = []
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

    init(notices: Mailbox<StallNotice>, ledger: WatchdogLedger, stackSource: StackSource, countsTraced: Bool = false) {
        self.notices = notices
        self.countsTraced = countsTraced
        self.ledger = ledger
        self.stackSource = stackSource
    }

    var isAtRest: Bool { subjects.allSatisfy(\.isAtRest) }

    /// Asks every loop for a signal at its next departure from rest. False when one is busy.
    func requestWakeSignals() -> Bool {
        subjects.allSatisfy { isPaused($0) || $0.loop.heartbeat.requestWakeSignal() }
    }

    /// The parked wait is over. The first look comes a tick later: a loop that wakes often and briefly costs one look a tick.
    mutating func unparked(at time: MonotonicInstant) {
        // A loop that nobody looks at may have been busy all along.
        let departure = subjects.compactMap { isPaused($0) ? nil : $0.departure }.min()
        let (runnable, absences) = vigil.unpark(departure: departure, at: time, tick: tick)
        note(absences)
        for index in subjects.indices { subjects[index].unparked(at: runnable) }
        nextLook = time + tick
    }

    mutating func add(_ subject: Subject) {
        let record = WatchdogLedger.WatchRecord(name: subject.identity.name, since: subject.identity.since)
        ledger.update { [number = subject.identity.number] in $0.watches[number] = record }
        subjects.append(subject)
        if let pausedSince { ledger.update { $0.watches[subject.identity.number]?.pausedSince = pausedSince } }
        notices.add(.checkpoint)
    }

    mutating func remove(_ number: Int) {
        guard let index = subjects.firstIndex(where: { $0.identity.number == number }) else { return }
        release(index)
        closePause(of: number, at: .now)
        subjects.remove(at: index)
    }

    mutating func finish() {
        for index in subjects.indices { release(index) }
        closePauses(at: .now)
        subjects = []
        recordCost()
    }

    /// Looks at every loop once, and tells the reporter what it finds.
    mutating func look() {
        let woken = MonotonicInstant.now
        let oversleep = woken - nextLook
        note(vigil.wake(due: nextLook, at: woken, tick: tick))
        for index in subjects.indices where !isPaused(subjects[index]) {
            // Anew for each: the capture before may have taken its time.
            let now = MonotonicInstant.now
            if let absence = vigil.step(at: now) { note([absence]) }
            let discount = subjects[index].discounts.take(at: now, missed: vigil.missed, because: vigil.reason)
            let late = subjects[index].discounts.lastMissed > subjects[index].policy.rule.tick
            let (pulse, decision) = subjects[index].look(at: now, late: late, discount: discount)
            if subjects[index].policy.dismissal != nil || subjects[index].holdUp != nil { countDismissal(index, pulse) }
            carryOut(decision, on: index, pulse, at: now)
        }
        ledger.update { counts in
            counts.looks += 1
            counts.lateLooks += oversleep > tick ? 1 : 0
        }
        forgetEndedLoops()
        let now = MonotonicInstant.now
        if checkpoints.isDue(at: now) {
            recordCost()
            notices.add(.checkpoint, mayBeDropped: true)
        }
        vigil.rest(at: now)
        nextLook = LookSchedule.next(after: now, tick: tick, maturity: subjects.compactMap(\.policy.maturity).min())
    }

    /// The finest tick asked for.
    private var tick: Duration { subjects.map(\.policy.rule.tick).min() ?? StallRule().tick }

    private mutating func carryOut(
        _ decision: StallDecision,
        on index: Int,
        _ pulse: LoopHeartbeat.Pulse,
        at time: MonotonicInstant
    ) {
        switch decision {
        case .none:
            if subjects[index].wantsSample(at: time, pulse) { sample(index, pulse, at: time) }
        case .began(let span):
            if dismisses(index, span, pulse, at: time) { return }
            subjects[index].standstill?.noteSample(at: time)
            let stack = stackSource.stack(of: subjects[index].loop, at: pulse)
            if dismissesWait(index, stack) { return }
            begin(span, index, pulse, stack, at: time)
        case .grew(let span):
            excludeHoldUp(index, at: time)
            if subjects[index].wantsSample(at: time, pulse) { sample(index, pulse, at: time) }
            if let stall = subjects[index].stall { notices.add(.grew(stall.number, span), mayBeDropped: true) }
        case .ended(let span):
            end(span, index, at: time)
        case .passed(let span, let pulse):
            begin(span, index, pulse, .raced, at: time)
            end(span, index, at: time)
        }
    }

    /// Looks at what the thread is at. A capture that fails is left out: the next one may not.
    private mutating func sample(_ index: Int, _ pulse: LoopHeartbeat.Pulse, at time: MonotonicInstant) {
        subjects[index].standstill?.noteSample(at: time)
        let stack = stackSource.stack(of: subjects[index].loop, at: pulse)
        ledger.update { $0.count(stack) }
        guard let captured = stack.captured.map({ StackSample(time: time, stack: $0) }) else { return }
        if let stall = subjects[index].stall {
            notices.add(.sampled(stall.number, captured), mayBeDropped: true)
        } else {
            subjects[index].standstill?.keep(captured)
        }
    }

    private mutating func begin(
        _ span: StallSpan,
        _ index: Int,
        _ pulse: LoopHeartbeat.Pulse,
        _ stack: StackOutcome,
        at time: MonotonicInstant
    ) {
        stalls += 1
        subjects[index].stall = (stalls, pulse)
        let samples = subjects[index].takeSamples(at: pulse)
        let subject = subjects[index]
        ledger.update { $0.count(stack) }
        notices.add(
            .began(
                StallObservation(
                    number: stalls,
                    watch: subject.identity,
                    loop: subject.loop,
                    rule: subject.policy.rule,
                    pulse: pulse,
                    span: span,
                    detectedAt: time,
                    threadID: subject.loop.thread?.id,
                    evidence: subject.evidence(at: time, of: pulse)?.leavingOut(span.unproven),
                    stack: stack,
                    samples: samples,
                    descriptorTarget: stack.captured?.systemCall.flatMap(DescriptorTarget.read)
                )
            )
        )
    }

    private mutating func end(_ span: StallSpan, _ index: Int, at time: MonotonicInstant) {
        guard let stall = subjects[index].stall else { return }
        subjects[index].stall = nil
        let evidence = subjects[index].evidence(at: time, of: stall.pulse)?.leavingOut(span.unproven)
        notices.add(.ended(stall.number, span, evidence))
    }

    /// Closes a stall under way because nobody will look at the loop. One whose loop has ended is over; of the others nobody knows.
    mutating func abandon(_ index: Int, at time: MonotonicInstant) {
        let decision = subjects[index].abandon(at: time)
        countDismissal(index, nil)
        guard case .ended(let span) = decision else { return }
        guard !subjects[index].loop.heartbeat.hasEnded else { return end(span, index, at: time) }
        guard let stall = subjects[index].stall else { return }
        subjects[index].stall = nil
        let evidence = subjects[index].evidence(at: time, of: stall.pulse)?.leavingOut(span.unproven)
        notices.add(.abandoned(stall.number, span, evidence))
    }

    private mutating func release(_ index: Int) {
        let now = MonotonicInstant.now
        let heartbeat = subjects[index].loop.heartbeat
        heartbeat.detach()
        abandon(index, at: now)
        let (number, turns) = (subjects[index].identity.number, heartbeat.pulse.turn)
        ledger.update { $0.endWatch(number, turns: turns, at: now) }
    }

    private mutating func forgetEndedLoops() {
        guard subjects.contains(where: { $0.loop.heartbeat.hasEnded }) else { return }
        for number in subjects.filter({ $0.loop.heartbeat.hasEnded }).map(\.identity.number) { remove(number) }
    }

    private func recordCost() {
        var time = timespec()
        unsafe clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
        let cpu = UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec)
        let turns = subjects.map { ($0.identity.number, $0.loop.heartbeat.pulse.turn) }
        ledger.update { counts in
            counts.cpuNanoseconds = cpu
            for (number, turns) in turns { counts.watches[number]?.turns = turns }
        }
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
