package import RunLoopKit

/// Decides whether a loop has short stalls again and again. Pure, like ``StandstillPolicy``.
///
/// The turns have the loop's own times, so none is missed between two looks, and a turn of a few microseconds between two long
/// ones does not end the row. A pause ends a row: see ``StallRule/Repeated``.
///
/// How a long turn gets into the row:
///
///     underWay ──it ends──────────────────────────────────────────────────> row, with its own times
///     underWay ──a late look──> interrupted ──the next turn begins────────> row, with the part that was seen before that look
///                                           ──another stall claims the time──> dropped
package struct RepetitionPolicy: Sendable {
    package let rule: StallRule
    package let turns: Int
    /// The long turns in a row so far.
    package private(set) var row: Row?
    /// The row, including the part that was seen of a turn in which a look came late.
    package var wholeRow: Row? { row.map { $0.including(interrupted) } }
    /// The row of the last stall that ended.
    package private(set) var lastRow: Row?
    /// The end of the row at the latest look: the look itself if a long turn was under way.
    private var end: MonotonicInstant?
    /// The length of the confirmed stall when it was last reported.
    private var announced: Duration?
    /// What the latest look found, until it is confirmed.
    private var candidate: Duration?
    /// Turns that began earlier belong to another stall, or are not proven.
    private var floor: MonotonicInstant?
    /// The present turn up to the latest look, if it counted as a turn of the row.
    private var underWay: BusyTurn?
    /// The turn that was under way at the look before a late one, up to that look. The stall was reported with it, so it stays a part of the row,
    /// although it is unknown when it ended.
    private var interrupted: BusyTurn?

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

        /// The row with the present turn, if that is a long one.
        package func including(_ turn: BusyTurn?) -> Row {
            var row = self
            if let turn { row.add(turn) }
            return row
        }
    }

    /// Nil if the rule does not look for such stalls.
    package init?(rule: StallRule) {
        guard let repeated = rule.repeated else { return nil }
        (self.rule, turns) = (rule, repeated.turns)
    }

    package var isOpen: Bool { announced != nil }

    /// The confirmed stall, as of the latest look. Like every report of it, it does not include the rest after the last long turn.
    package var span: StallSpan? {
        guard isOpen, let row, let end else { return nil }
        return .exact(from: row.start, to: end)
    }

    /// When the present turn will make the row a stall.
    package func maturity(busySince: MonotonicInstant?) -> MonotonicInstant? {
        guard !isOpen, let busySince, let row, row.count == turns - 1 else { return nil }
        return busySince + rule.longTurn + .nanoseconds(1)
    }

    /// - Parameter taken: The time until then belongs to another stall, which is decided first.
    package mutating func decide(_ look: LoopSample, taken: MonotonicInstant?) -> StallDecision {
        candidate = nil
        // A late watchdog may have been stopped together with the loop, so what it missed does not count.
        if let time = look.hasExcludedTime ? look.time : taken { ignore(until: time) }
        var ended = taken == nil ? StallDecision.none : close()
        noteInterruption(look)
        for turn in look.turns where turn.start >= floor ?? turn.start && turn.end - turn.start > rule.longTurn {
            // The stall ends with the first row that does.
            let end = endRow(before: turn.start)
            if end != .none { ended = end }
            row = wholeRow.map { $0.including(turn) } ?? Row(turn)
            interrupted = nil
        }
        return ended == .none ? judge(look) : ended
    }

    /// Keeps the part that was seen of a turn in which a look comes late. It is added to the row when the next turn begins: until then another
    /// stall may claim its time.
    private mutating func noteInterruption(_ look: LoopSample) {
        let next = look.hasExcludedTime ? underWay?.start : look.busySince
        if let next, let turn = interrupted, next > turn.start { (row, interrupted) = (wholeRow, nil) }
        if look.hasExcludedTime, isOpen { interrupted = interrupted ?? underWay }
        underWay = nil
    }

    /// Ends the row if a turn that begins at `start` does not belong to it.
    private mutating func endRow(before start: MonotonicInstant) -> StallDecision {
        guard let row = wholeRow, start - row.last.end > rule.pause(after: row.last) else { return .none }
        self.row = row
        return close()
    }

    /// Confirms the candidate of the latest look as a stall.
    package mutating func confirm() { announced = candidate.take() ?? announced }

    /// Excludes the time until `time`.
    package mutating func resume(at time: MonotonicInstant) {
        (row, announced, candidate, underWay, interrupted) = (nil, nil, nil, nil, nil)
        ignore(until: time)
    }

    /// Turns that began before `time` are not added to the row.
    package mutating func ignore(until time: MonotonicInstant) { floor = max(time, floor ?? time) }

    package mutating func abandon() -> StallDecision {
        row = wholeRow.map { $0.including(interrupted == nil ? underWay : nil) }
        return close()
    }

    private mutating func judge(_ look: LoopSample) -> StallDecision {
        guard row != nil else { return .none }
        let present = turnUnderWay(look)
        if present == nil, !look.hasExcludedTime, case .ended(let span) = endRow(before: look.busySince ?? look.time) {
            return .ended(span)
        }
        guard let row = wholeRow else { return .none }
        underWay = present
        let all = row.including(present)
        end = all.last.end
        let length = all.last.end - all.start
        guard let announced else {
            guard all.count >= turns else { return .none }
            candidate = length
            return .candidate(.exact(from: all.start, to: all.last.end))
        }
        guard length.isWorthReporting(after: announced) else { return .none }
        self.announced = length
        return .grew(.exact(from: all.start, to: all.last.end))
    }

    /// The present turn up to now, if it is already long and belongs to the row.
    package func turnUnderWay(_ look: LoopSample) -> BusyTurn? {
        guard let since = look.busySince, since >= floor ?? since, look.time - since > rule.longTurn else { return nil }
        if let row = wholeRow {
            // A turn that ended while the loop was read is already in the row.
            guard since > row.last.start, since - row.last.end <= rule.pause(after: row.last) else { return nil }
        }
        return BusyTurn(start: since, end: look.time)
    }

    private mutating func close() -> StallDecision {
        defer { (row, announced, underWay, interrupted) = (nil, nil, nil, nil) }
        guard let row, announced != nil else { return .none }
        lastRow = row
        return .ended(.exact(from: row.start, to: row.last.end))
    }
}
