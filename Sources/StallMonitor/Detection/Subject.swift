import RunLoopKit

/// One watched loop, as the watchdog holds it. Confined to the watchdog's thread.
struct Subject {
    let identity: WatchIdentity
    let loop: any WatchableLoop
    private(set) var policy: StallPolicy
    /// The number of the stall under way, if there is one.
    var stall: Int?
    private var lastPulse: LoopHeartbeat.Pulse?
    private var baseline: Baseline?

    /// What the kernel said of the thread when the loop had first stood still for a whole tick. A stall's cause is read off
    /// the difference to it.
    private struct Baseline {
        var pulse: LoopHeartbeat.Pulse
        var time: MonotonicInstant
        var evidence: ThreadEvidence
    }

    init(identity: WatchIdentity, loop: any WatchableLoop, rule: StallRule) {
        self.identity = identity
        self.loop = loop
        self.policy = StallPolicy(rule: rule)
    }

    var isAtRest: Bool { policy.state == .resting }

    /// The watchdog was parked until `time`, so the loop was at rest.
    mutating func unparked(at time: MonotonicInstant) {
        policy.unparked(at: time)
    }

    /// Looks at the loop, and asks it to stamp its next transition, so that the end of a stall is known exactly.
    mutating func look(at time: MonotonicInstant, late: Bool) -> (LoopHeartbeat.Pulse, StallDecision) {
        let heartbeat = loop.heartbeat
        let pulse = heartbeat.pulse
        let stoodStill = pulse == lastPulse && !pulse.isAtRest
        // A loop writes its stamps before the word they belong to.
        let decision = policy.decide(
            Look(
                time: time,
                pulse: pulse,
                turnStart: MonotonicInstant(stamp: heartbeat.turnStamp),
                firstTransition: stoodStill
                    ? nil : heartbeat.takeTransitionStamp().flatMap(MonotonicInstant.init(stamp:)),
                late: late
            )
        )
        if stoodStill { keepBaseline(pulse, at: time) }
        if !pulse.isAtRest { heartbeat.requestTransitionStamp() }
        lastPulse = pulse
        return (pulse, decision)
    }

    /// Ends a stall under way because the loop is no longer watched.
    mutating func abandon(at time: MonotonicInstant) -> StallDecision {
        policy.abandon(at: time)
    }

    /// The kernel's account of the latest stall, until now.
    func evidence(at time: MonotonicInstant) -> EvidenceWindow? {
        guard let baseline, let id = loop.thread?.id, let now = ThreadEvidence.read(threadID: id) else { return nil }
        return EvidenceWindow(length: time - baseline.time, before: baseline.evidence, after: now)
    }

    private mutating func keepBaseline(_ pulse: LoopHeartbeat.Pulse, at time: MonotonicInstant) {
        guard baseline?.pulse != pulse, let id = loop.thread?.id else { return }
        baseline = ThreadEvidence.read(threadID: id).map { Baseline(pulse: pulse, time: time, evidence: $0) }
    }
}

extension MonotonicInstant {
    /// A loop's stamp; 0 stands for none.
    fileprivate init?(stamp: UInt64) {
        guard stamp != 0 else { return nil }
        self.init(nanoseconds: stamp)
    }
}
