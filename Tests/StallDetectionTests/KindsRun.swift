import RunLoopKit

@testable import StallDetection

/// The rules for all kinds, driven through a loop's life in milliseconds, as the watchdog does: a look each tick,
/// none while the loop rests and nothing is open.
struct KindsRun {
    enum Step {
        /// One turn with callouts of these lengths.
        case turn([Int])
        case rest(Int)

        static func turns(_ count: Int, of length: Int, pause: Int) -> [Step] {
            (0..<count).flatMap { _ in [Step.turn([length]), .rest(pause)] }
        }
    }

    struct Stall: Equatable {
        var category: StallCategory
        var from: Int
        var to: Int
        var hasEnded = false
        /// When it was reported.
        var told: Int
    }

    private(set) var stalls: [Stall] = []
    /// Decisions that broke the order began, grew…, ended.
    private(set) var disorder = 0
    /// The latest end that an open stall had at a look.
    private(set) var latestOpenEnd = 0
    private var policy: StallPolicy
    private var open: StallCategory?
    static let start = MonotonicInstant(nanoseconds: 1_000_000_000_000)

    /// - Parameters:
    ///   - offset: of the first look, in milliseconds.
    ///   - late: looks at these times are late.
    init(_ steps: [Step], rule: StallRule = StallRule(), offset: Int = 50, late: Set<Int> = []) {
        policy = StallPolicy(rule: rule)
        let life = Life(steps)
        var previous = -1
        for time in stride(from: offset, through: life.end + 1_000, by: Int(rule.tick / .milliseconds(1))) {
            let look = life.look(at: time, after: previous, rule, late: late.contains(time))
            if look.pulse.isAtRest, policy.isAtRest, look.turns.isEmpty, look.firstTransition == nil {
                previous = time
                continue
            }
            for finding in policy.decideAndConfirm(look) { take(finding, at: time) }
            if let open, let span = policy.span(of: open, at: Self.start + .milliseconds(time)) {
                latestOpenEnd = max(latestOpenEnd, Int((span.latestEnd - Self.start) / .milliseconds(1)))
            }
            previous = time
        }
    }

    var haveAllEnded: Bool { stalls.allSatisfy(\.hasEnded) }
    var summary: [String] { stalls.map { "\($0.category) \($0.from)–\($0.to)" } }

    private mutating func take(_ finding: StallFinding, at time: Int) {
        switch finding.decision {
        case .none: disorder += 1
        case .candidate(let span):
            disorder += open == nil ? 0 : 1
            open = finding.category
            stalls.append(Self.stall(finding.category, span, told: time))
        case .grew(let span):
            disorder += open == finding.category ? 0 : 1
            stalls[stalls.count - 1].to = Self.stall(finding.category, span, told: time).to
        case .ended(let span):
            disorder += open == finding.category ? 0 : 1
            open = nil
            let told = stalls[stalls.count - 1].told
            stalls[stalls.count - 1] = Self.stall(finding.category, span, told: told)
            stalls[stalls.count - 1].hasEnded = true
        case .passed(let span, _):
            disorder += open == nil ? 0 : 1
            stalls.append(Self.stall(finding.category, span, told: time))
            stalls[stalls.count - 1].hasEnded = true
        }
    }

    private static func stall(_ category: StallCategory, _ span: StallSpan, told: Int) -> Stall {
        func milliseconds(_ time: MonotonicInstant) -> Int { Int((time - start) / .milliseconds(1)) }
        return Stall(
            category: category,
            from: milliseconds(span.earliestStart),
            to: milliseconds(span.latestEnd),
            told: told
        )
    }

    /// What a loop with this life would have published.
    private struct Life {
        /// For each turn the beginnings of its callouts, and its end.
        var turns: [(callouts: [Int], end: Int)] = []
        var end = 0

        init(_ steps: [Step]) {
            for step in steps {
                switch step {
                case .rest(let length): end += length
                case .turn(let callouts):
                    var beginnings: [Int] = []
                    for length in callouts {
                        beginnings.append(end)
                        end += length
                    }
                    turns.append((beginnings, end))
                }
            }
        }

        func look(at time: Int, after previous: Int, _ rule: StallRule, late: Bool) -> LoopSample {
            let begun = turns.prefix { $0.callouts[0] <= time }
            let present = begun.last.flatMap { $0.end > time ? $0 : nil }
            let moments = turns.flatMap { $0.callouts + [$0.end] }
            let callouts = begun.flatMap(\.callouts).filter { $0 <= time }.count
            let before = begun.dropLast().map(\.callouts.count).reduce(0, +)
            return LoopSample(
                time: Self.instant(time),
                pulse: .init(
                    phase: present == nil ? .waiting : .beforeSources,
                    modeIndex: 0,
                    turn: UInt64(begun.count)
                ),
                turnStart: begun.last.map { Self.instant($0.callouts[0]) },
                firstTransition: moments.first { $0 > previous && $0 <= time }.map(Self.instant),
                late: late,
                callouts: UInt64(callouts),
                calloutsAtTurn: UInt64(before),
                busySince: present.map { Self.instant($0.callouts[0]) },
                turns: begun.filter { $0.end > previous && $0.end <= time }
                    .map { BusyTurn(start: Self.instant($0.callouts[0]), end: Self.instant($0.end)) }
                    .filter { $0.end - $0.start > rule.longTurn }
            )
        }

        private static func instant(_ time: Int) -> MonotonicInstant { KindsRun.start + .milliseconds(time) }
    }
}

extension StallPolicy {
    /// As the watchdog does if nothing dismisses a candidate.
    mutating func decideAndConfirm(_ look: LoopSample) -> [StallFinding] {
        let findings = decide(look)
        for finding in findings { if case .candidate = finding.decision { confirm(finding.category) } }
        return findings
    }
}
