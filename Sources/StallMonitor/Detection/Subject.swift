import RunLoopKit
import StallReports

/// One watched loop, as the watchdog holds it. Confined to the watchdog's thread.
struct Subject {
    let identity: WatchIdentity
    let loop: any WatchableLoop
    private(set) var policy: StallPolicy
    /// The stall under way, if there is one, and where the loop stands.
    var stall: (number: Int, pulse: LoopHeartbeat.Pulse)?
    /// The latest time for which the loop stood still. A stall is one that lasted.
    var standstill: Standstill?
    /// Looks that count towards no stall.
    var discounts: DiscountMeter
    /// What kept the loop's thread from moving, from outside, and since when.
    var holdUp: HoldUp?
    /// Its own watch is paused; the monitor may be, too.
    var isPaused = false
    private var lastPulse: LoopHeartbeat.Pulse?

    init(identity: WatchIdentity, loop: any WatchableLoop, rule: StallRule, scopes: [ExpectedSlowness] = []) {
        discounts = DiscountMeter(scopes)
        self.identity = identity
        self.loop = loop
        self.policy = StallPolicy(rule: rule)
    }

    var isAtRest: Bool { policy.state == .resting }

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
        discount: Discount? = nil
    ) -> (LoopHeartbeat.Pulse, StallDecision) {
        let heartbeat = loop.heartbeat
        let pulse = heartbeat.pulse
        let standsStill = pulse == lastPulse && !pulse.isAtRest
        // A loop writes its stamps before the word they belong to. Of one that stands still the stamp is asked for already.
        let turnStart = MonotonicInstant(stamp: heartbeat.turnStamp)
        let firstTransition = standsStill ? nil : heartbeat.takeTransitionStamp()
        if !standsStill, !pulse.isAtRest { heartbeat.requestTransitionStamp() }
        let decision = policy.decide(
            Look(
                time: time,
                pulse: pulse,
                turnStart: turnStart,
                firstTransition: firstTransition.flatMap(MonotonicInstant.init(stamp:)),
                late: late,
                discount: discount
            )
        )
        if standsStill, standstill?.pulse != pulse, let id = loop.thread?.id {
            standstill = Standstill(pulse: pulse, threadID: id, at: time)
        }
        lastPulse = pulse
        return (pulse, decision)
    }

    /// The stall that was just made out is none.
    mutating func dismiss(because reason: PauseKind) { policy.dismiss(because: reason) }

    /// So much of the stall under way does not count.
    mutating func exclude(_ time: Duration, because reason: PauseKind) { policy.exclude(time, because: reason) }

    /// Nobody looked until now.
    mutating func resume(at time: MonotonicInstant) {
        policy.resume(at: time)
        (standstill, lastPulse) = (nil, nil)
    }

    /// Ends a stall under way because the loop is no longer watched.
    mutating func abandon(at time: MonotonicInstant) -> StallDecision {
        policy.abandon(at: time)
    }

    /// Whether the loop stands still at `pulse`, and its stack should be looked at again.
    func wantsSample(at time: MonotonicInstant, _ pulse: LoopHeartbeat.Pulse) -> Bool {
        guard let standstill, standstill.pulse == pulse else { return false }
        return standstill.wantsSample(at: time, tick: policy.rule.tick)
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
