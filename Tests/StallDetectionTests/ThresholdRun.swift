import RunLoopKit

@testable import StallDetection

/// Loops with one turn each, and the watchdog that looks at them, on a clock in microseconds: parked until the first
/// departure from rest, then a look whenever the schedule says, plus the machine's delay.
struct ThresholdRun {
    /// A loop leaves its rest, begins a turn, has short callouts, then the one that matters, then short ones again,
    /// and rests.
    struct Life {
        var departure: Int
        /// From the departure from rest to the turn's own beginning.
        var toTurn = 5
        /// The lengths of the callouts before it and after it.
        var before: [Int] = []
        var length: Int
        var after: [Int] = []

        /// When the callout that matters begins and ends.
        var standing: ClosedRange<Int> {
            let start = departure + toTurn + before.reduce(0, +)
            return start...start + length
        }
    }

    struct Told: Equatable {
        var category: StallCategory
        /// When it was first reported.
        var at: Int
        /// Reported only after its end.
        var passed: Bool
    }

    /// By loop.
    private(set) var told: [[Told]]
    private(set) var looks = 0
    private(set) var end = 0
    private var loops: [WatchedLife]
    private let lateness: Int

    /// - Parameters:
    ///   - firstRound: when all loops are looked at first. Nil: the watchdog is parked until the first departure.
    init(_ lives: [Life], firstRound: Int? = nil, lateness: Int = 60, rule: StallRule = StallRule()) {
        loops = lives.map { WatchedLife($0, rule) }
        told = lives.map { _ in [] }
        self.lateness = lateness
        let parkedUntil = (lives.map(\.departure).min() ?? 0) + lateness
        if firstRound == nil {
            for index in loops.indices { loops[index].policy.unparked(at: instant(parkedUntil)) }
        }
        var schedule = LookSchedule(
            first: instant(firstRound ?? parkedUntil + Int(rule.tick / .microseconds(1)))
        )
        let last = lives.map { $0.standing.upperBound + $0.after.reduce(0, +) }.max() ?? 0
        while end < last + 200_000 { look(&schedule, rule) }
    }

    private mutating func look(_ schedule: inout LookSchedule, _ rule: StallRule) {
        let time = Int((schedule.next - Self.start) / .microseconds(1)) + lateness
        (looks, end) = (looks + 1, time)
        let isRound = schedule.isRound(at: instant(time))
        let due = schedule.takeDue(at: instant(time))
        let visited = isRound ? Array(loops.indices) : due
        for index in visited {
            for finding in loops[index].look(at: time) { take(finding, index, at: time) }
        }
        let candidates = visited.compactMap { index in
            loops[index].policy.maturity.map { LookSchedule.Candidate(maturity: $0, place: index) }
        }
        guard isRound else { return schedule.add(candidates, after: instant(time)) }
        schedule.planRound(after: instant(time), tick: rule.tick, reach: rule.threshold, candidates: candidates)
    }

    private mutating func take(_ finding: StallFinding, _ index: Int, at time: Int) {
        switch finding.decision {
        case .candidate: told[index].append(.init(category: finding.category, at: time, passed: false))
        case .passed: told[index].append(.init(category: finding.category, at: time, passed: true))
        case .none, .grew, .ended: break
        }
    }

    static let start = MonotonicInstant(nanoseconds: 1_000_000_000_000)
    private func instant(_ time: Int) -> MonotonicInstant { Self.start + .microseconds(time) }
}

/// What a loop with this life publishes, and the decisions about it.
private struct WatchedLife {
    var policy: StallPolicy
    private let rule: StallRule
    private var moments: [(time: Int, pulse: LoopHeartbeat.Pulse, callouts: UInt64)] = []
    private let life: ThresholdRun.Life
    private var lastLook = -1
    /// Whether the loop was asked to stamp its next transition.
    private var wantsStamp = false

    init(_ life: ThresholdRun.Life, _ rule: StallRule) {
        (self.life, self.rule) = (life, rule)
        policy = StallPolicy(rule: rule)
        var time = life.departure
        moments.append((-1_000_000, .init(phase: .waiting, modeIndex: 0, turn: 1), 0))
        moments.append((time, .init(phase: .afterWaiting, modeIndex: 0, turn: 2), 0))
        time += life.toTurn
        let working = LoopHeartbeat.Pulse(phase: .beforeSources, modeIndex: 0, turn: 3)
        for (number, length) in (life.before + [life.length] + life.after).enumerated() {
            moments.append((time, working, UInt64(number + 1)))
            time += length
        }
        moments.append((time, .init(phase: .waiting, modeIndex: 0, turn: 3), moments[moments.count - 1].callouts))
    }

    mutating func look(at time: Int) -> [StallFinding] {
        let present = moments.last { $0.time <= time } ?? moments[0]
        let moved = moments.first { $0.time > lastLook && $0.time <= time }
        let end = moments[moments.count - 1].time
        let hasLeft = time >= life.departure
        let turnBegan = time >= life.departure + life.toTurn
        let look = LoopSample(
            time: Self.instant(time),
            pulse: present.pulse,
            turnStart: hasLeft ? Self.instant(life.departure + (turnBegan ? life.toTurn : 0)) : nil,
            firstTransition: wantsStamp ? moved.map { Self.instant($0.time) } : nil,
            callouts: present.callouts,
            calloutsAtTurn: 0,
            busySince: present.pulse.isAtRest ? nil : Self.instant(life.departure),
            turns: [BusyTurn(start: Self.instant(life.departure), end: Self.instant(end))].filter {
                end > lastLook && end <= time && $0.end - $0.start > rule.longTurn
            }
        )
        (lastLook, wantsStamp) = (time, !present.pulse.isAtRest)
        if present.pulse.isAtRest, policy.isAtRest, look.turns.isEmpty, moved == nil { return [] }
        return policy.decideAndConfirm(look)
    }

    private static func instant(_ time: Int) -> MonotonicInstant { ThresholdRun.start + .microseconds(time) }
}
