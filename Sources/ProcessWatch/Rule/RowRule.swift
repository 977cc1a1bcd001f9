import RunLoopKit
import StallDetection

/// Decides whether a loop of another process has long turns again and again, from what is proven of its turns. Pure.
///
/// A monitor inside the process knows each turn's beginning and end. From outside only the looks are known: a turn counts from the first look
/// that found it to the last one, so it counts as shorter than it is, and the pause between two turns as longer. The same rule therefore finds
/// fewer rows here, and invents none.
struct RowRule: Sendable {
    private var policy: RepetitionPolicy
    private let slack: Duration
    /// When the present row began: as the policy knows it, and at the earliest.
    private var bounds: (start: MonotonicInstant, earliest: MonotonicInstant)?
    /// The last long turn was over then at the latest.
    private var latestEnd = MonotonicInstant(nanoseconds: 0)

    /// A turn, as far as it is proven.
    struct Turn: Hashable, Sendable {
        /// It did not begin earlier.
        var earliest: MonotonicInstant
        /// It had begun and was not over.
        var proven: ClosedRange<MonotonicInstant>
    }

    /// The stall that a row of long turns is.
    struct Row: Hashable, Sendable {
        var times: StallSpan
        /// The number of its turns, the sum of their proven lengths, and the longest of these.
        var turns: Int
        var total: Duration
        var longest: Duration
    }

    enum Order: Hashable, Sendable {
        case began(Row)
        case grew(Row)
        case ended(Row)
    }

    /// - Returns: nil where the rule does not look for such stalls.
    init?(_ rule: StallRule) {
        guard let policy = RepetitionPolicy(rule: rule) else { return nil }
        self.policy = policy
        slack = rule.tick / 25
    }

    /// Whether there was a long turn, so that samples of the next ones are wanted.
    var hasRow: Bool { policy.row != nil }

    /// - Parameters:
    ///   - ended: the turn that has ended since the last look, if it is proven.
    ///   - present: the same for the present one.
    ///   - isLate: the watcher may have been stopped: what it missed does not count.
    ///   - isStalled: the loop is stalled in one turn. Its time is not counted twice.
    mutating func look(
        at time: MonotonicInstant,
        ended: Turn? = nil,
        present: Turn? = nil,
        isLate: Bool = false,
        isStalled: Bool = false
    ) -> Order? {
        var sample = LoopSample(time: time, pulse: .init(phase: .waiting, modeIndex: 0, turn: 0), late: isLate)
        // Looks are a little late, or early.
        sample.busySince = present.map { $0.proven.lowerBound + (.zero - slack) }
        sample.turns =
            ended.map { turn in
                [BusyTurn(start: turn.proven.lowerBound + (.zero - slack), end: turn.proven.upperBound + slack)]
            } ?? []
        let decision = policy.decide(sample, taken: isStalled ? time : nil)
        var order: Order?
        switch decision {
        case .candidate:
            policy.confirm()
            order = row(sample, time).map(Order.began)
        case .grew: order = row(sample, time).map(Order.grew)
        case .ended: order = lastRow.map(Order.ended)
        case .none, .passed: break
        }
        note(ended, time)
        return order
    }

    /// The loop is no longer watched.
    mutating func abandon() -> Row? {
        if case .ended = policy.abandon() { lastRow } else { nil }
    }

    private var lastRow: Row? { policy.lastRow.map { Row($0, bounds, endedBy: latestEnd, slack) } }

    private func row(_ sample: LoopSample, _ time: MonotonicInstant) -> Row? {
        policy.wholeRow.map { row in Row(row.including(policy.turnUnderWay(sample)), bounds, endedBy: time, slack) }
    }

    private mutating func note(_ ended: Turn?, _ time: MonotonicInstant) {
        guard let row = policy.row, let ended else { return }
        if bounds?.start != row.start { bounds = (row.start, ended.earliest) }
        if row.last.end >= ended.proven.upperBound { latestEnd = time }
    }
}

extension RowRule.Row {
    fileprivate init(
        _ row: RepetitionPolicy.Row,
        _ bounds: (start: MonotonicInstant, earliest: MonotonicInstant)?,
        endedBy end: MonotonicInstant,
        _ slack: Duration
    ) {
        // The policy gets turns with a slack at both ends.
        let start = row.start + slack
        let earliest = bounds.flatMap { $0.start == row.start ? $0.earliest : nil } ?? start
        let proven = max(start, row.last.end + (.zero - slack))
        times = StallSpan(
            earliestStart: min(earliest, start),
            latestStart: start,
            earliestEnd: proven,
            latestEnd: max(proven, end)
        )
        (turns, total, longest) = (row.count, row.total, row.longest)
    }
}
