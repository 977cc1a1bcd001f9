import RunLoopKit
import StallDetection
import Testing

@testable import ProcessWatch

@Suite("The rule for long turns in a row, from outside")
struct RowRuleTests {
    private static let start = MonotonicInstant(nanoseconds: 1_000_000_000)

    private static func time(_ milliseconds: Int) -> MonotonicInstant { start + .milliseconds(milliseconds) }

    /// Turns of one length with pauses of one length, looked at each 50 ms as a watcher does whose breakpoints are hit at each beginning.
    ///
    /// - Returns: what was decided, and when.
    private func play(
        turns count: Int,
        of length: Int,
        pause: Int,
        phase: Int = 0,
        lateAt late: Int? = nil,
        stalledAt stalled: Int? = nil
    ) -> [(order: RowRule.Order, at: Int)] {
        guard var rule = RowRule(StallRule()) else { return [] }
        let starts = (0..<count).map { 1_000 + $0 * (length + pause) }
        var orders: [(RowRule.Order, Int)] = []
        // The turn that was seen, since which look, and when it was last seen to go on.
        var seen: (start: Int, since: Int, last: Int)?
        for now in stride(from: phase, to: 1_000 + count * (length + pause) + 1_000, by: 50) {
            let turn = starts.last { $0 <= now && now < $0 + length }
            var ended: RowRule.Turn?
            if let before = seen, before.start != turn {
                if before.last > before.since { ended = Self.turn(before.start, before.since...before.last) }
                seen = nil
            }
            if let turn { seen = (turn, seen?.since ?? now, now) }
            let present = seen.flatMap { $0.last > $0.since ? Self.turn($0.start, $0.since...now) : nil }
            let order = rule.look(
                at: Self.time(now),
                ended: ended,
                present: present,
                isLate: late.map { (now - 49...now).contains($0) } ?? false,
                isStalled: stalled.map { (now - 49...now).contains($0) } ?? false
            )
            if let order { orders.append((order, now)) }
        }
        return orders
    }

    private static func turn(_ start: Int, _ proven: ClosedRange<Int>) -> RowRule.Turn {
        .init(earliest: time(start), proven: time(proven.lowerBound)...time(proven.upperBound))
    }

    @Test(
        "Long turns one after the other are one stall with the number of its turns, wherever the looks fall",
        arguments: [0, 7, 14, 21, 28, 35, 42, 49]
    )
    func found(_ phase: Int) throws {
        let orders = play(turns: 12, of: 160, pause: 5, phase: phase)
        guard case .began(let begin)? = orders.first?.order, case .ended(let end)? = orders.last?.order else {
            Issue.record("\(orders)")
            return
        }
        #expect(begin.turns == 5 && begin.times.began.contains(Self.time(1_000)), "\(begin)")
        #expect(end.turns > 10 && end.times.ended.contains(Self.time(1_000 + 12 * 165 - 5)), "\(end)")
        // Proven: never more than there was.
        #expect(end.longest <= .milliseconds(164) && end.total <= .milliseconds(12 * 164))
        #expect(orders.count { if case .began = $0.order { true } else { false } } == 1)
    }

    @Test(
        "Few long turns, short ones, and long ones with longer pauses are no stall, wherever the looks fall",
        arguments: [(4, 160, 5), (50, 40, 5), (40, 120, 260), (40, 60, 200)]
    )
    func notFound(_ count: Int, _ length: Int, _ pause: Int) {
        for phase in stride(from: 0, to: 50, by: 3) {
            let orders = play(turns: count, of: length, pause: pause, phase: phase)
            #expect(orders.isEmpty, "phase \(phase): \(orders)")
        }
    }

    @Test("A row has as many turns in the end as when it was found, if the watcher is late in the last of them")
    func lateInTheLastTurn() throws {
        let orders = play(turns: 5, of: 160, pause: 5, lateAt: 1_800)
        guard orders.count == 2, case .began(let begin) = orders[0].order, case .ended(let end) = orders[1].order else {
            Issue.record("\(orders)")
            return
        }
        #expect(orders[0].at < 1_800 && begin.turns == 5 && end.turns == 5, "\(begin), \(end)")
        #expect(end.total >= begin.total && end.times.ended.upperBound >= begin.times.ended.lowerBound)
    }

    @Test("What the watcher missed does not count, and the time of a stall in one turn is not counted twice")
    func excluded() {
        #expect(play(turns: 6, of: 160, pause: 5, lateAt: 1_500).isEmpty)
        #expect(play(turns: 6, of: 160, pause: 5, stalledAt: 1_500).isEmpty)
        let orders = play(turns: 12, of: 160, pause: 5, stalledAt: 2_500)
        #expect(orders.count { if case .ended = $0.order { $0.at <= 2_550 } else { false } } == 1, "\(orders)")
    }
}
