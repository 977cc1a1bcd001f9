package import RunLoopKit

/// Decides whether a loop stalls shortly again and again. Pure, as ``StallPolicy`` is.
///
/// Its turns come with the loop's own times, so none is missed between two looks, and a turn of a few microseconds in between
/// does not hide that the loop is held up. What ends a row is a pause: see ``StallRule/Repeated``.
package struct RepetitionPolicy: Sendable {
    package let rule: StallRule
    package let turns: Int
    /// The long turns in a row so far.
    package private(set) var row: Row?
    /// The row that the last stall to end was.
    package private(set) var lastRow: Row?
    private var announced: Duration?
    /// Turns that began earlier are taken by another stall, or not proven.
    private var floor: MonotonicInstant?

    package struct Row: Hashable, Sendable {
        package var start: MonotonicInstant
        package var last: BusyTurn
        package var count = 1
        package var total: Duration
        package var longest: Duration

        package init(_ turn: BusyTurn) {
            (start, last) = (turn.start, turn)
            total = turn.end - turn.start
            longest = total
        }

        package mutating func add(_ turn: BusyTurn) {
            (last, count) = (turn, count + 1)
            total += turn.end - turn.start
            longest = max(longest, turn.end - turn.start)
        }

        /// With the turn under way, if there is a long one.
        package func including(_ turn: BusyTurn?) -> Row {
            var row = self
            if let turn { row.add(turn) }
            return row
        }
    }

    package init(rule: StallRule, turns: Int) {
        self.rule = rule
        self.turns = turns
    }

    package var isOpen: Bool { announced != nil }

    /// When the turn under way becomes the one that makes the row a stall.
    package func maturity(busySince: MonotonicInstant?) -> MonotonicInstant? {
        guard !isOpen, let busySince, let row, row.count == turns - 1 else { return nil }
        return busySince + rule.longTurn + .nanoseconds(1)
    }

    /// - Parameter taken: Until when the time is another stall's: those are decided first.
    package mutating func decide(_ look: LoopSample, taken: MonotonicInstant?) -> StallDecision {
        // A late watchdog may have stood still together with the loop: what it missed does not count.
        if let time = look.hasExcludedTime ? look.time : taken { floor = max(time, floor ?? time) }
        if taken != nil { return close() }
        for turn in look.turns where turn.start >= floor ?? turn.start && turn.end - turn.start > rule.longTurn {
            let ended = endRow(before: turn.start)
            if row == nil { row = Row(turn) } else { row?.add(turn) }
            guard ended == .none else { return ended }
        }
        return judge(look)
    }

    /// Closes the row if what begins at `start` does not belong to it.
    private mutating func endRow(before start: MonotonicInstant) -> StallDecision {
        guard let row, start - row.last.end > rule.pause(after: row.last) else { return .none }
        return close()
    }

    /// What has passed until `time` counts towards nothing.
    package mutating func resume(at time: MonotonicInstant) {
        (row, announced) = (nil, nil)
        floor = max(time, floor ?? time)
    }

    package mutating func abandon() -> StallDecision { close() }

    private mutating func judge(_ look: LoopSample) -> StallDecision {
        guard let row else { return .none }
        let present = turnUnderWay(look)
        if present == nil, !look.hasExcludedTime, case .ended(let span) = endRow(before: look.busySince ?? look.time) {
            return .ended(span)
        }
        guard self.row != nil else { return .none }
        let all = row.including(present)
        let length = all.last.end - all.start
        guard let announced else {
            guard all.count >= turns else { return .none }
            self.announced = length
            return .began(.exact(from: all.start, to: all.last.end))
        }
        guard length.isWorthTelling(after: announced) else { return .none }
        self.announced = length
        return .grew(.exact(from: all.start, to: all.last.end))
    }

    /// The turn under way as it is now, if it is long already and belongs to the row.
    package func turnUnderWay(_ look: LoopSample) -> BusyTurn? {
        guard let since = look.busySince, since >= floor ?? since, look.time - since > rule.longTurn else { return nil }
        if let row, since - row.last.end > rule.pause(after: row.last) { return nil }
        return BusyTurn(start: since, end: look.time)
    }

    private mutating func close() -> StallDecision {
        defer { (row, announced) = (nil, nil) }
        guard let row, announced != nil else { return .none }
        lastRow = row
        return .ended(.exact(from: row.start, to: row.last.end))
    }
}
