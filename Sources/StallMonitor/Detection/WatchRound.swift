import Glibc
import RunLoopKit
import StackCapture
import StallReports

/// All watched loops and what a look at them does. Confined to the watchdog's thread.
struct WatchRound: ~Copyable {
    /// When to look next.
    private(set) var nextLook: MonotonicInstant = .now
    private var subjects: [Subject] = []
    private var stalls = 0
    private var checkpoints = CheckpointSchedule(start: .now)
    private let notices: Mailbox<StallNotice>
    private let ledger: WatchdogLedger
    private let stackSource: StackSource
    private let live: LiveBoard

    init(notices: Mailbox<StallNotice>, ledger: WatchdogLedger, stackSource: StackSource, live: LiveBoard) {
        self.live = live
        self.notices = notices
        self.ledger = ledger
        self.stackSource = stackSource
    }

    var isAtRest: Bool { subjects.allSatisfy(\.isAtRest) }

    /// Asks every loop for a signal at its next departure from rest. False when one is busy.
    func requestWakeSignals() -> Bool {
        subjects.allSatisfy { $0.loop.heartbeat.requestWakeSignal() }
    }

    /// The parked wait is over. The first look comes a tick later: a loop that wakes often and briefly costs one look a tick.
    mutating func unparked(at time: MonotonicInstant) {
        for index in subjects.indices { subjects[index].unparked(at: time) }
        nextLook = time + tick
    }

    mutating func add(_ subject: Subject) {
        let record = WatchdogLedger.WatchRecord(name: subject.identity.name, since: subject.identity.since)
        ledger.update { [number = subject.identity.number] in $0.watches[number] = record }
        subjects.append(subject)
        notices.add(.checkpoint)
    }

    mutating func remove(_ number: Int) {
        guard let index = subjects.firstIndex(where: { $0.identity.number == number }) else { return }
        release(index)
        subjects.remove(at: index)
    }

    mutating func finish() {
        for index in subjects.indices { release(index) }
        subjects = []
        recordCost()
    }

    /// Looks at every loop once, and tells the reporter what it finds.
    mutating func look() {
        let oversleep = MonotonicInstant.now - nextLook
        for index in subjects.indices {
            // Anew for each: the capture before may have taken its time.
            let now = MonotonicInstant.now
            let late = oversleep > subjects[index].policy.rule.tick
            let (pulse, decision) = subjects[index].look(at: now, late: late)
            carryOut(decision, on: index, pulse, at: now)
            if let stall = subjects[index].stall, let span = subjects[index].policy.span {
                live.see(stall.number, span, at: now)
            }
        }
        live.note(watched: subjects.count, lastLook: .now)
        ledger.update { counts in
            counts.looks += 1
            counts.lateLooks += oversleep > tick ? 1 : 0
        }
        forgetEndedLoops()
        let now = MonotonicInstant.now
        if checkpoints.isDue(at: now) {
            recordCost()
            notices.add(.checkpoint, mayBeDropped: true)
            live.refresh()
        }
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
            subjects[index].standstill?.noteSample(at: time)
            begin(span, index, pulse, stackSource.stack(of: subjects[index].loop, at: pulse), at: time)
        case .grew(let span):
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
        let observation = StallObservation(
            number: stalls,
            reportID: .make(),
            watch: subject.identity,
            loop: subject.loop,
            rule: subject.policy.rule,
            pulse: pulse,
            span: span,
            detectedAt: time,
            threadID: subject.loop.thread?.id,
            evidence: subject.evidence(at: time, of: pulse),
            stack: stack,
            samples: samples,
            descriptorTarget: stack.captured?.systemCall.flatMap(DescriptorTarget.read)
        )
        live.begin(observation)
        notices.add(.began(observation))
    }

    private mutating func end(_ span: StallSpan, _ index: Int, at time: MonotonicInstant) {
        guard let stall = subjects[index].stall else { return }
        subjects[index].stall = nil
        live.end(stall.number, span)
        notices.add(.ended(stall.number, span, subjects[index].evidence(at: time, of: stall.pulse)))
    }

    private mutating func release(_ index: Int) {
        let now = MonotonicInstant.now
        let heartbeat = subjects[index].loop.heartbeat
        heartbeat.detach()
        if case .ended(let span) = subjects[index].abandon(at: now) { end(span, index, at: now) }
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
