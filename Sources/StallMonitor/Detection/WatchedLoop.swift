import RunLoopKit
import StallDetection
import StallDiagnosis
import StallReports

/// One watched loop, as the watchdog holds it. Confined to the watchdog's thread.
struct WatchedLoop {
    let identity: WatchIdentity
    let loop: WatchedThing
    let wakeFlag: WakeFlag
    private(set) var policy: KindsPolicy
    /// Whether the watchdog looks at it: not while it rests and will raise its wake flag.
    var isAwake = false
    /// The stall under way, if there is one, and where the loop stands.
    var stall: Stall?
    /// The latest time for which the loop stood still. A stall is one that lasted.
    var standstill: Standstill?
    /// What is known of the present long turn, and of the row it stands in.
    var busySpan: BusySpanSamples?
    private var lastLook: LoopSample?
    /// How many callouts had begun before the present turn, and by the last look at it.
    private var turnCallouts: (since: MonotonicInstant, before: UInt64, latest: UInt64)?
    /// How long the loop had been busy in the stall that ended at the last look.
    private var busyAtEnd: Duration?
    /// The number of the next long turn to be seen.
    private var nextTurn: UInt64
    /// Looks that count towards no stall.
    var excludedTime: ExcludedTimeMeter
    /// What kept the loop's thread from moving, from outside, and since when.
    var outsideDelay: OutsideDelay?
    /// Its own watch is paused; the monitor may be, too.
    var isPaused = false

    init(
        identity: WatchIdentity,
        loop: WatchedThing,
        rule: StallRule,
        wakeFlag: WakeFlag,
        scopes: [ExpectedSlowness] = []
    ) {
        (self.identity, self.loop, self.wakeFlag) = (identity, loop, wakeFlag)
        excludedTime = ExcludedTimeMeter(scopes)
        policy = KindsPolicy(rule: rule)
        nextTurn = loop.heartbeat.longTurnCount
        loop.heartbeat.keepTurns(longerThan: min(rule.longTurn, rule.congestion ?? rule.longTurn))
    }

    var isAtRest: Bool { policy.isAtRest }

    typealias Stall = (number: Int, category: StallCategory, pulse: LoopHeartbeat.Pulse)

    /// When the loop left its rest, or began another turn since. Nil for a loop at rest, or one that stamps nothing.
    var departure: MonotonicInstant? {
        loop.heartbeat.pulse.isAtRest ? nil : MonotonicInstant(stamp: loop.heartbeat.turnStamp)
    }

    /// The watchdog was parked until `time`, so the loop was at rest.
    mutating func unparked(at time: MonotonicInstant) {
        policy.unparked(at: time)
    }

    /// Looks at the loop, and asks it to stamp its next transition, so that the end of a stall is known exactly.
    mutating func look(
        at time: MonotonicInstant,
        late: Bool,
        excluded: ExcludedTime? = nil
    ) -> (LoopHeartbeat.Pulse, [StallFinding]) {
        let heartbeat = loop.heartbeat
        let (pulse, callouts) = (heartbeat.pulse, heartbeat.calloutCount)
        let standsStill = pulse == lastLook?.pulse && callouts == lastLook?.callouts && !pulse.isAtRest
        // A loop writes its stamps before the word they belong to. Of one that stands still the stamp is asked for already.
        let turnStart = MonotonicInstant(stamp: heartbeat.turnStamp)
        let firstTransition = standsStill ? nil : heartbeat.takeTransitionStamp()
        if !standsStill, !pulse.isAtRest { heartbeat.requestTransitionStamp() }
        var look = LoopSample(
            time: time,
            pulse: pulse,
            turnStart: turnStart,
            firstTransition: firstTransition.flatMap(MonotonicInstant.init(stamp:)),
            late: late,
            excluded: excluded,
            callouts: callouts,
            calloutsAtTurn: heartbeat.calloutsAtTurnStamp
        )
        addTurns(to: &look)
        let busy = policy.busy(at: time)
        let findings = policy.decide(look)
        let isOver = findings.contains(where: \.isOver)
        busyAtEnd = isOver ? busy : nil
        // What is known of a stall that is over is still to be told.
        if !isOver { followBusySpan(look) }
        countCallouts(look, isOver: isOver)
        if standsStill, standstill?.isOf(pulse, callouts) != true {
            standstill = Standstill(pulse: pulse, callouts: callouts, threadIDs: loop.threadIDs, at: time)
        } else if standstill?.isOf(pulse, callouts) == false, findings.isEmpty {
            standstill = nil
        }
        lastLook = look
        return (pulse, findings)
    }

    /// The turn under way first: one that ends meanwhile is then among those that have ended at the next look, if not at this.
    private mutating func addTurns(to look: inout LoopSample) {
        let heartbeat = loop.heartbeat
        if !look.pulse.isAtRest { look.busySince = MonotonicInstant(stamp: heartbeat.busySince) }
        if heartbeat.longTurnCount != nextTurn { (look.turns, nextTurn) = heartbeat.longTurns(from: nextTurn) }
    }

    private mutating func followBusySpan(_ look: LoopSample) {
        let present = look.busySince.flatMap { look.time - $0 > policy.rule.tick ? $0 : nil }
        guard let key = policy.repeated?.row?.start ?? present else { return busySpan = nil }
        if busySpan?.key == key { return }
        busySpan = loop.thread.flatMap {
            BusySpanSamples(key: key, threadID: $0.id, at: look.time, busy: policy.busy(at: look.time))
        }
    }

    /// The stall that was just made out is none.
    mutating func dismiss(_ category: StallCategory, because reason: PauseKind, at time: MonotonicInstant) {
        policy.dismiss(category, because: reason, at: time)
    }

    /// So much of what is under way, a stall or not yet one, does not count.
    mutating func exclude(_ time: Duration, because reason: PauseKind) { policy.exclude(time, because: reason) }

    /// Nobody looked until now.
    mutating func resume(at time: MonotonicInstant) {
        policy.resume(at: time)
        (standstill, busySpan, lastLook) = (nil, nil, nil)
        nextTurn = loop.heartbeat.longTurnCount
    }

    /// Ends a stall under way because the loop is no longer watched.
    mutating func abandon(at time: MonotonicInstant) -> [StallFinding] {
        busyAtEnd = policy.busy(at: time)
        return policy.abandon(at: time)
    }

    /// Where the loop stands still at `pulse`, or is at work.
    func place(at pulse: LoopHeartbeat.Pulse) -> LoopPlace {
        // One of an earlier callout is kept as long as a stall is told of.
        guard let standstill, let lastLook, standstill.isOf(pulse, lastLook.callouts) else {
            return LoopPlace(pulse: pulse, since: lastLook?.busySince)
        }
        return LoopPlace(pulse: pulse, callouts: standstill.callouts, since: standstill.since)
    }

    /// Whether the loop stands still at `pulse`, and its stack should be looked at again.
    func wantsSample(at time: MonotonicInstant, _ pulse: LoopHeartbeat.Pulse) -> Bool {
        if let standstill, standstill.pulse == pulse {
            return standstill.wantsSample(at: time, tick: policy.rule.tick)
        }
        return wantsSampleOfCourse(at: time)
    }

    /// In the busy times alone, and only once there is more to it than one turn of somewhat more than a tick.
    private func wantsSampleOfCourse(at time: MonotonicInstant) -> Bool {
        guard let busySpan, let since = lastLook?.busySince else { return false }
        let length = time - since
        guard length > policy.rule.tick, policy.hasRow || length > policy.rule.tick * 2 else { return false }
        return busySpan.wantsSample(at: time, tick: policy.rule.tick)
    }

    /// For how long a stack that is taken now stands.
    func timeSinceSample(at time: MonotonicInstant) -> Duration {
        standstill.map { max(policy.rule.tick, time - ($0.lastSample ?? $0.since)) } ?? policy.rule.tick
    }

    /// A stack is about to be taken.
    mutating func noteSample(at time: MonotonicInstant) {
        standstill?.noteSample(at: time)
        busySpan?.noteSample(at: time)
    }

    /// Keeps a sample until a stall is proven.
    mutating func keep(_ sample: StackSample, at pulse: LoopHeartbeat.Pulse) {
        if standstill?.pulse == pulse { standstill?.keep(sample) }
        busySpan?.keep(sample)
    }

    /// What was sampled of a stall of such a kind until now.
    mutating func takeSamples(_ category: StallCategory, from start: MonotonicInstant, at pulse: LoopHeartbeat.Pulse)
        -> [StackSample]
    {
        if category == .blocked { return takeSamples(at: pulse) }
        return busySpan?.samples.filter { $0.time >= start } ?? []
    }

    /// The kernel's account of a stall of such a kind.
    func evidence(_ category: StallCategory, at time: MonotonicInstant, of pulse: LoopHeartbeat.Pulse)
        -> EvidenceWindow?
    {
        if category == .blocked { return evidence(at: time, of: pulse) }
        guard let id = loop.thread?.id else { return nil }
        return busySpan?.evidence(threadID: id, busy: busyAtEnd ?? policy.busy(at: time))
    }

    /// What a stall of such a kind, of that length, is made of. Nil for one that is a single standstill.
    func busyTime(_ category: StallCategory, _ span: StallSpan, hasEnded: Bool) -> StallReport.BusyTime? {
        switch category {
        case .blocked: return nil
        case .congested:
            let length = span.length.nanoseconds
            return .init(turns: 1, totalNs: length, longestNs: length, callouts: calloutsOfTurn)
        case .repeated:
            let last = hasEnded ? policy.repeated?.lastRow : nil
            guard let row = last ?? policy.present(at: lastLook) else { return nil }
            return .init(turns: row.count, totalNs: row.total.nanoseconds, longestNs: row.longest.nanoseconds)
        }
    }

    /// Nil for a loop that counts none.
    private var calloutsOfTurn: UInt64? {
        guard let turnCallouts, turnCallouts.latest > 0 else { return nil }
        return turnCallouts.latest &- turnCallouts.before
    }

    private mutating func countCallouts(_ look: LoopSample, isOver: Bool) {
        if let since = turnCallouts?.since, since == look.busySince || (isOver && look.pulse.isAtRest) {
            turnCallouts?.latest = look.callouts
        } else if !isOver {
            turnCallouts = look.busySince.map { ($0, look.calloutsAtTurn, look.callouts) }
        }
    }

    /// What was sampled while the loop stood at `pulse`; from now on it is the stall's.
    mutating func takeSamples(at pulse: LoopHeartbeat.Pulse) -> [StackSample] {
        standstill?.pulse == pulse ? standstill?.takeSamples() ?? [] : []
    }

    /// The kernel's account since the loop stood at `pulse`, until now.
    func evidence(at time: MonotonicInstant, of pulse: LoopHeartbeat.Pulse) -> EvidenceWindow? {
        guard let standstill, standstill.pulse == pulse, let id = loop.thread?.id else { return nil }
        return standstill.evidence(threadID: id, at: time)
    }
}

extension MonotonicInstant {
    /// A loop's stamp; 0 stands for none.
    fileprivate init?(stamp: UInt64) {
        guard stamp != 0 else { return nil }
        self.init(nanoseconds: stamp)
    }
}
