import RunLoopKit
import StallDetection
import StallDiagnosis

/// One watched loop: what the watchdog knows about it, and what a look at it does. Confined to the watchdog's thread.
///
///     look ──> policy ──candidate──> confirm or dismiss ──> begin ──> grow, sample ──> end
///
/// This file reads the heartbeat and applies the policy. Findings are handled in `WatchedLoop+Stalls.swift`; what is known of a
/// stall is kept by `WatchedLoop+Evidence.swift`.
final class WatchedLoop {
    let identity: WatchIdentity
    let loop: WatchedThing
    let wakeFlag: WakeFlag
    /// The lengths of a pool's jobs before the watch. A loop counts its turns from its watch on.
    let lengthsBefore: TurnHistogram
    var policy: StallPolicy
    /// Whether the watchdog looks at it. It does not look while the loop rests and will raise its wake flag.
    var isAwake = false
    /// Since when this watch is paused. The whole monitor may be paused, too.
    var pausedSince: MonotonicInstant?
    /// The rule that replaces the present one once there is no stall: a stall is judged to its end by the rule by which it began.
    var nextRule: StallRule?
    /// The confirmed stall, if there is one.
    var stall: Stall?
    /// The latest time in which the loop did not move.
    var standstill: Standstill?
    /// The present long turn, or the row that it belongs to.
    var busySpan: BusySpan?
    /// What has kept the loop's thread from running from outside, and since when.
    var outsideDelay: OutsideDelay?
    /// Time that counts towards no stall.
    var excludedTime: ExcludedTimeMeter
    private(set) var lastLook: LoopSample?
    /// Whether the latest look found a loop that is run: of one that was never run, nobody would see a stall.
    var hasTurned: Bool { lastLook.map { $0.pulse.rawValue != 0 } ?? false }
    /// The callouts of the present turn; of a turn that was a congested stall, until that was reported.
    var turnCallouts: TurnCallouts?
    /// How long the loop had been busy in the stall that ended at the latest look.
    private(set) var busyAtEnd: Duration?
    /// The number of the next long turn to read.
    private var nextTurn: UInt64

    typealias Stall = (number: Int, category: StallCategory, pulse: LoopHeartbeat.Pulse)

    init(
        identity: WatchIdentity,
        loop: WatchedThing,
        rule: StallRule,
        wakeFlag: WakeFlag,
        scopes: [ExpectedSlowness] = []
    ) {
        (self.identity, self.loop, self.wakeFlag) = (identity, loop, wakeFlag)
        lengthsBefore = loop.pool?.turnHistogram ?? TurnHistogram()
        excludedTime = ExcludedTimeMeter(scopes)
        policy = StallPolicy(rule: rule)
        nextTurn = loop.heartbeat.longTurnCount
        keepLongTurns()
    }

    private func keepLongTurns() {
        let rule = policy.rule
        loop.heartbeat.keepTurns(longerThan: min(rule.longTurn, rule.congestion ?? rule.longTurn))
    }

    var isAtRest: Bool { policy.isAtRest }
    var isPaused: Bool { pausedSince != nil }

    /// When the loop left its rest, or began another turn since. Nil for a loop at rest, or one that writes no stamps.
    var departure: MonotonicInstant? {
        loop.heartbeat.pulse.isAtRest ? nil : MonotonicInstant(stamp: loop.heartbeat.turnStamp)
    }

    /// The same, but of the first long turn that began after `time` and that no look has seen: the loop may have come to rest since.
    func departure(since time: MonotonicInstant) -> MonotonicInstant? {
        guard loop.heartbeat.longTurnCount != nextTurn else { return departure }
        return loop.heartbeat.longTurns(from: nextTurn).turns.map(\.start).first { $0 >= time } ?? departure
    }

    // MARK: - The look

    /// Reads the heartbeat and applies the policy. Also requests a stamp of the loop's next transition, so that the end of a
    /// stall is known exactly.
    ///
    /// - Returns: What the policy found. A candidate must be confirmed or dismissed before the next look.
    func look(at time: MonotonicInstant, late: Bool, excluded: ExcludedTime? = nil) -> [StallFinding] {
        var look = read(at: time, late: late, excluded: excluded)
        let standsStill =
            look.pulse == lastLook?.pulse && look.callouts == lastLook?.callouts && !look.pulse.isAtRest
        // While the loop does not move, its next stamp has already been requested.
        if !standsStill { exchangeStamps(for: &look) }
        addTurns(to: &look)
        let busy = policy.busy(at: time)
        let findings = policy.decide(look)
        let isOver = findings.contains(where: \.isOver)
        busyAtEnd = isOver ? busy : nil
        // A stall that is over still has to be reported with this data.
        if !isOver { followBusySpan(look, isNeeded: !findings.isEmpty) }
        countCallouts(look, isOver: isOver)
        followStandstill(look, standsStill: standsStill, isNeeded: !findings.isEmpty)
        lastLook = look
        return findings
    }

    private func read(at time: MonotonicInstant, late: Bool, excluded: ExcludedTime?) -> LoopSample {
        let heartbeat = loop.heartbeat
        let (pulse, callouts) = (heartbeat.pulse, heartbeat.calloutCount)
        return LoopSample(
            time: time,
            pulse: pulse,
            turnStart: MonotonicInstant(stamp: heartbeat.turnStamp),
            late: late,
            excluded: excluded,
            callouts: callouts,
            calloutsAtTurn: heartbeat.calloutsAtTurnStamp
        )
    }

    /// Takes the stamp of the first transition since the previous look, and requests the next one.
    private func exchangeStamps(for look: inout LoopSample) {
        // A loop writes a stamp before the word that it belongs to.
        look.firstTransition = loop.heartbeat.takeTransitionStamp().flatMap(MonotonicInstant.init(stamp:))
        if !look.pulse.isAtRest { loop.heartbeat.requestTransitionStamp() }
    }

    /// The present turn is read first: if it ends meanwhile, it is among the ended turns now or at the next look.
    private func addTurns(to look: inout LoopSample) {
        let heartbeat = loop.heartbeat
        if !look.pulse.isAtRest { look.busySince = MonotonicInstant(stamp: heartbeat.busySince) }
        if heartbeat.longTurnCount != nextTurn { (look.turns, nextTurn) = heartbeat.longTurns(from: nextTurn) }
    }

    /// - Parameter isNeeded: Whether findings of this look are about the busy span.
    private func followBusySpan(_ look: LoopSample, isNeeded: Bool) {
        let present = look.busySince.flatMap { look.time - $0 > policy.rule.tick ? $0 : nil }
        guard let key = policy.repeated?.row?.start ?? present else { return busySpan = nil }
        if busySpan?.key == key {
            if stall == nil, !isNeeded { busySpan?.leaveOutScopes(look, busy: policy.busy(at: look.time)) }
            return
        }
        busySpan = loop.thread.flatMap {
            BusySpan(key: key, threadID: $0.id, at: look.time, busy: policy.busy(at: look.time))
        }
    }

    /// - Parameter isNeeded: Whether findings of this look are about the former standstill.
    private func followStandstill(_ look: LoopSample, standsStill: Bool, isNeeded: Bool) {
        if standstill?.isOf(look.pulse, look.callouts) == true {
            if stall == nil, !isNeeded { leaveOutScopes(look) }
            return
        }
        if standsStill {
            standstill = Standstill(look, threadIDs: loop.threadIDs)
        } else if !isNeeded {
            standstill = nil
        }
    }

    /// What the thread does in a time that a scope covers is not what stalls the loop after that. But if much of the stall was before the scope, the
    /// counts and samples from then are not given up.
    private func leaveOutScopes(_ look: LoopSample) {
        guard case .candidate(let segment) = policy.blocked.state,
            segment.proven(at: look.time) < policy.rule.threshold / 2
        else { return }
        standstill?.leaveOutScopes(look, excluded: segment.excluded.total, threadIDs: loop.threadIDs)
    }

    private func countCallouts(_ look: LoopSample, isOver: Bool) {
        let goesOn = turnCallouts?.since == look.busySince
        // A loop at rest has begun no callout since its turn ended.
        let hasJustEnded = isOver && look.pulse.isAtRest
        if turnCallouts != nil, goesOn || hasJustEnded {
            turnCallouts?.latest = look.callouts
        } else if !isOver {
            turnCallouts = look.busySince.map { since in
                TurnCallouts(since: since, before: look.calloutsAtTurn, latest: look.callouts)
            }
        }
        // Otherwise the next turn has begun: the count of the former one stays as the look before found it.
    }

    // MARK: - Starting again

    /// Starts again after a time in which nothing was looked at.
    func resume(at time: MonotonicInstant) {
        policy.resume(at: time)
        excludedTime.ignoreCovered(before: time)
        (standstill, busySpan, lastLook) = (nil, nil, nil)
        nextTurn = loop.heartbeat.longTurnCount
    }

    /// Changes the rule. What the loop did before is not judged by it.
    func adopt(_ rule: StallRule, at time: MonotonicInstant) {
        policy = StallPolicy(rule: rule)
        keepLongTurns()
        resume(at: time)
    }

    /// Closes the stall, because the loop is no longer watched.
    func close(at time: MonotonicInstant) -> [StallFinding] {
        busyAtEnd = policy.busy(at: time)
        return policy.abandon(at: time)
    }
}

/// How many callouts had begun when a turn began, and by the latest look at it.
struct TurnCallouts: Hashable, Sendable {
    /// When the turn began: identifies it.
    let since: MonotonicInstant
    let before: UInt64
    var latest: UInt64

    /// How many the turn has begun. Nil for a loop that counts none.
    var number: UInt64? { latest > 0 ? latest &- before : nil }
}

extension MonotonicInstant {
    /// Converts a loop's stamp. 0 means that there is none.
    fileprivate init?(stamp: UInt64) {
        guard stamp != 0 else { return nil }
        self.init(nanoseconds: stamp)
    }
}
