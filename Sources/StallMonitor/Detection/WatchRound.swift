import Glibc
import RunLoopKit
import StackCapture

/// All watched loops and what a look at them does. Confined to the watchdog's thread.
struct WatchRound: ~Copyable {
    /// When to look next.
    private(set) var nextLook: MonotonicInstant = .now
    private var subjects = Roster()
    /// When the bells were last looked at: a loop whose bell has rung since rested until then.
    private var bellsTaken: MonotonicInstant = .now
    private let bells: BellBoard
    private var stalls = 0
    private var checkpoints = CheckpointSchedule(start: .now)
    private let notices: Mailbox<StallNotice>
    private let ledger: WatchdogLedger
    private let stackSource: StackSource

    init(notices: Mailbox<StallNotice>, ledger: WatchdogLedger, stackSource: StackSource, bells: BellBoard) {
        self.bells = bells
        self.notices = notices
        self.ledger = ledger
        self.stackSource = stackSource
    }

    /// Whether every loop rests and will ring.
    var isAtRest: Bool { subjects.isAtRest }

    /// The parked wait is over. The first look comes a tick later: a loop that wakes often and briefly costs one look a tick.
    mutating func unparked(at time: MonotonicInstant) {
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
        notices.add(.checkpoint)
    }

    mutating func remove(_ number: Int) {
        guard let index = subjects.index(ofNumber: number) else { return }
        release(index)
        bells.putAway(subjects.remove(at: index).bell)
    }

    mutating func finish() {
        for index in subjects.subjects.indices { release(index) }
        subjects = Roster()
        recordCost()
    }

    /// Looks at every loop that is awake, and tells the reporter what it finds.
    mutating func look() {
        let oversleep = MonotonicInstant.now - nextLook
        wakeThoseThatRang()
        let awake = subjects.awakeIndices
        for index in awake {
            // Anew for each: the capture before may have taken its time.
            let now = MonotonicInstant.now
            let late = oversleep > subjects[index].policy.rule.tick
            let (pulse, findings) = subjects[index].look(at: now, late: late)
            if findings.isEmpty, subjects[index].wantsSample(at: now, pulse) { sample(index, pulse, at: now) }
            for finding in findings { carryOut(finding, on: index, pulse, at: now) }
        }
        ledger.update { counts in
            counts.looks += 1
            counts.visits += awake.count
            counts.lateLooks += oversleep > tick ? 1 : 0
        }
        let maturity = awake.compactMap { subjects[$0].policy.maturity }.min()
        forgetEndedLoops(among: awake)
        subjects.letSleep()
        let now = MonotonicInstant.now
        if checkpoints.isDue(at: now) {
            recordCost()
            notices.add(.checkpoint, mayBeDropped: true)
        }
        nextLook = LookSchedule.next(after: now, tick: tick, maturity: maturity)
    }

    private mutating func wakeThoseThatRang() {
        let now = MonotonicInstant.now
        for place in bells.takeRung() { subjects.wake(place, restedUntil: bellsTaken) }
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
            subjects[index].noteSample(at: time)
            let stack = pulse.isAtRest ? .raced : stackSource.stack(of: subjects[index].loop, at: pulse)
            begin(category, span, index, pulse, stack, at: time)
        case .grew(let span):
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
        let stack = stackSource.stack(of: subjects[index].loop, at: pulse)
        ledger.update { $0.count(stack) }
        guard let captured = stack.captured.map({ StackSample(time: time, stack: $0) }) else { return }
        if let stall = subjects[index].stall {
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
        notices.add(
            .began(
                StallObservation(
                    number: stalls,
                    watch: subject.identity,
                    loop: subject.loop,
                    category: category,
                    rule: subject.policy.rule,
                    pulse: pulse,
                    span: span,
                    detectedAt: time,
                    threadID: subject.loop.thread?.id,
                    evidence: subject.evidence(category, at: time, of: pulse),
                    stack: stack,
                    samples: samples,
                    descriptorTarget: stack.captured?.systemCall.flatMap(DescriptorTarget.read),
                    busy: subject.busyTime(category, span, hasEnded: false)
                )
            )
        )
    }

    private mutating func end(_ span: StallSpan, _ index: Int, at time: MonotonicInstant) {
        guard let stall = subjects[index].stall else { return }
        tellBusyTime(span, index, hasEnded: true)
        subjects[index].stall = nil
        notices.add(.ended(stall.number, span, subjects[index].evidence(stall.category, at: time, of: stall.pulse)))
    }

    private mutating func release(_ index: Int) {
        let now = MonotonicInstant.now
        let heartbeat = subjects[index].loop.heartbeat
        // What is counted of the loop is its watcher's: before it goes.
        ledger.update { [number = subjects[index].identity.number] in $0.endWatch(number, at: now) }
        heartbeat.detach()
        for finding in subjects[index].abandon(at: now) {
            if case .ended(let span) = finding.decision { end(span, index, at: now) }
        }
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
