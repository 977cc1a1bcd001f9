package import RunLoopKit
package import StallReports

/// What the watchdog read of one loop at one look.
package struct LoopSample: Hashable, Sendable {
    package var time: MonotonicInstant
    package var pulse: LoopHeartbeat.Pulse
    /// When the loop's current turn began or last left its wait, by the loop's own stamp. Nil without a stamp.
    package var turnStart: MonotonicInstant?
    /// When the first transition after the previous look happened. Nil if there was none, or no stamp was requested.
    package var firstTransition: MonotonicInstant?
    /// Whether the watchdog woke more than a tick late, so that the time since the previous look proves nothing.
    package var late = false
    /// The part of the time since the previous look that counts towards no stall.
    package var excluded: ExcludedTime?
    /// The number of callouts that the loop has begun so far. A new one shows that the loop moves even if its phase is the same.
    package var callouts: UInt64 = 0
    /// How many of them had begun at `turnStart`.
    package var calloutsAtTurn: UInt64 = 0
    /// Since when the loop has been busy: the end of its last rest, or of the last turn that polled for new events. Nil at rest,
    /// and without a stamp.
    package var busySince: MonotonicInstant?
    /// The long turns that ended since the previous look, oldest first.
    package var turns: [BusyTurn] = []

    /// Whether part of the time since the previous look is excluded.
    package var hasExcludedTime: Bool { late || excluded != nil }

    /// How much of the time from `start` to `end` does not count, of the time since the previous look: all of it if the watchdog
    /// was late.
    func excludedTime(
        from start: MonotonicInstant,
        to end: MonotonicInstant,
        since lastLook: MonotonicInstant?
    ) -> Duration {
        let window = { (since: MonotonicInstant?) in max(.zero, end - max(since ?? start, start)) }
        // Excluded time that could not be read at some looks began before the previous one.
        let first = [lastLook, excluded?.since].compactMap { $0 }.min()
        let leftOut = min(excluded?.length ?? .zero, window(first))
        return late ? max(window(lastLook), leftOut) : leftOut
    }

    package init(
        time: MonotonicInstant,
        pulse: LoopHeartbeat.Pulse,
        turnStart: MonotonicInstant? = nil,
        firstTransition: MonotonicInstant? = nil,
        late: Bool = false,
        excluded: ExcludedTime? = nil,
        callouts: UInt64 = 0,
        calloutsAtTurn: UInt64 = 0,
        busySince: MonotonicInstant? = nil,
        turns: [BusyTurn] = []
    ) {
        (self.time, self.pulse, self.turnStart) = (time, pulse, turnStart)
        (self.firstTransition, self.late, self.excluded) = (firstTransition, late, excluded)
        (self.callouts, self.calloutsAtTurn, self.busySince) = (callouts, calloutsAtTurn, busySince)
        self.turns = turns
    }
}

/// Time that counts towards no stall.
package struct ExcludedTime: Hashable, Sendable {
    package var length: Duration
    package var reason: PauseKind
    /// When the excluded time began, if that was before the previous look: at some looks it could not be read.
    package var since: MonotonicInstant?

    package init(length: Duration, reason: PauseKind, since: MonotonicInstant? = nil) {
        (self.length, self.reason, self.since) = (length, reason, since)
    }
}

/// How much of a time does not count, and why. If there are several reasons, the one with the largest share is reported.
package struct ExcludedTotals: Hashable, Sendable {
    package private(set) var total = Duration.zero
    private var shares: [PauseKind: Duration] = [:]

    /// The reason with the largest share; among equals the first by name, because a dictionary has no order. Nil if all of the
    /// time counts.
    package var reason: PauseKind? {
        shares.max { ($0.value, $1.key.rawValue) < ($1.value, $0.key.rawValue) }?.key
    }

    /// The reason under which a dismissed segment is counted: what its stack has shown takes precedence over what the clocks
    /// show.
    package var dismissal: PauseKind? { includes(.inWait) ? .inWait : reason }

    package func includes(_ reason: PauseKind) -> Bool { shares[reason] != nil }

    /// Raises the total to `total` if it is less. The increase is added to the reason's share.
    package mutating func raise(to total: Duration, because reason: PauseKind) {
        guard total > self.total else { return }
        shares[reason, default: .zero] += total - self.total
        self.total = total
    }
}
