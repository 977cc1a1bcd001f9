import RunLoopKit
import StallDetection

// What a look shows: how the state of a loop changes, and what the caller has to do.

extension LoopRule {
    mutating func look(_ look: Look) -> [Order] {
        let orders = decide(look)
        if orders.contains(.account) { counted = look.time }
        return orders
    }

    private mutating func decide(_ look: Look) -> [Order] {
        let before = lastLook
        // The thread has not run, so it is where it was before.
        var look = look
        if look.position == nil { (look.position, look.rests) = (before?.position, before?.rests ?? false) }
        endedTurn = nil
        defer {
            (lastLook, lateness) = (look, .zero)
            // Whatever has ended since is shorter.
            endedTurn = turnBeforeWait.take() ?? endedTurn
        }
        switch state {
        case .resting:
            guard !look.rests else {
                lastRest = look.time
                return []
            }
            return depart(look)
        case .busy(let span): return busy(span, look, before)
        case .stalled(let span): return stalled(span, look, before)
        }
    }

    private mutating func depart(_ look: Look) -> [Order] {
        state = .busy(BusySpan(rested: lastRest ?? look.time))
        return [.armTurn, .account]
    }

    /// Starts again at zero: the loop has turned, or nothing is known about the time before.
    ///
    /// - Parameter hit: When the loop returned from its wait, which is when its present turn began.
    private mutating func restart(hit: MonotonicInstant) -> [Order] {
        lastRest = hit
        state = .busy(BusySpan(rested: hit))
        return [.release, .armTurn, .account]
    }

    private mutating func rest(at time: MonotonicInstant) -> [Order] {
        (state, lastRest) = (.resting, time)
        return [.release]
    }

    private mutating func busy(_ old: BusySpan, _ look: Look, _ before: Look?) -> [Order] {
        if look.rests {
            endedTurn = old.turn(until: earliestEnd(of: old, look, before))
            return rest(at: look.time)
        }
        if case .own(let time) = look.turn {
            endedTurn = old.turn(until: min(earliestEnd(of: old, look, before), time))
            return restart(hit: time)
        }
        var span = old
        var orders = follow(&span, look, before)
        if look.isStopped {
            span.leaveOutStop(until: look.time)
            state = .busy(span)
            return orders
        }
        // Otherwise the counts would include a stop that is over, and the length of the stall would not.
        if before?.isStopped == true { orders.append(.account) }
        if span.since == nil, !span.returns.isEmpty {
            // The callout has returned, and another activation has hit the breakpoint that would show what followed. (If no
            // callout was found, another search with every look would not find one either.)
            return restart(hit: earliestEnd(of: old, look, before))
        }
        return orders + judge(span, look)
    }

    /// Decides whether the loop is stalled now. If it is not, decides whether to search its stack or to take a sample.
    private mutating func judge(_ old: BusySpan, _ look: Look) -> [Order] {
        var span = old
        let standstill = span.standstill(at: look.time)
        // If a system call is the only proof, the call must last for the whole threshold: the loop may have turned before it.
        if standstill + slack >= threshold, span.since != nil {
            span.nextReport = standstill * 2
            state = .stalled(span)
            return [.began(isCongested: span.isCongested(at: look.time), span.times(until: look.time))]
        }
        var orders: [Order] = []
        let isDue = standstill + slack >= tick * 2
        if span.wantsSearch(look, isDue: isDue) {
            span.locatedAt = look.time
            orders.append(.locate)
        } else if isDue {
            orders.append(.sample)
        }
        state = .busy(span)
        if span.since == nil, look.time - span.rested >= threshold { orders.append(.unproven) }
        return orders
    }

    private mutating func stalled(_ old: BusySpan, _ look: Look, _ before: Look?) -> [Order] {
        var span = old
        if look.rests { return end(span, look, before, latest: look.time) + rest(at: look.time) }
        if case .own(let time) = look.turn {
            return end(span, look, before, latest: min(time, look.time)) + restart(hit: time)
        }
        let orders = follow(&span, look, before)
        // The time for which the look is late is excluded already.
        if look.isStopped, let before { span.stopped += max(.zero, look.time - before.time - lateness) }
        guard span.since != nil else {
            // No proof is left. The stall ended after the previous look, and the next one may have begun as early.
            let orders = end(old, look, before, latest: look.time)
            return orders + restart(hit: earliestEnd(of: old, look, before))
        }
        let standstill = span.standstill(at: look.time)
        let isWorthReporting = standstill >= span.nextReport
        if isWorthReporting { span.nextReport = min(standstill * 2, standstill + .seconds(10)) }
        state = .stalled(span)
        return orders + [.continues(span.times(until: look.time), isWorthReporting: isWorthReporting)]
    }

    /// Ends the span, at some time between the previous look and `latest`. If the callout's breakpoint was hit, the time is
    /// exact.
    private func end(_ span: BusySpan, _ look: Look, _ before: Look?, latest: MonotonicInstant) -> [Order] {
        var times = span.times(until: latest)
        times.latestEnd = max(latest, span.since ?? latest)
        times.earliestEnd = min(earliestEnd(of: span, look, before), times.latestEnd)
        if let time = span.firstReturn(look), times.earliestEnd <= time, time <= times.latestEnd {
            (times.earliestEnd, times.latestEnd) = (time, time)
        }
        // After the end it does not matter that the look is late.
        let afterwards = min(times.excluded, lateness, max(.zero, look.time - times.latestEnd))
        times.excluded -= afterwards
        times.unobserved -= min(times.unobserved, afterwards)
        return [.ended(times)]
    }

    /// The last moment for which there is proof that the loop had not turned.
    private func earliestEnd(of span: BusySpan, _ look: Look, _ before: Look?) -> MonotonicInstant {
        let seen = min(before?.time ?? look.time, look.time)
        let proven = max(seen, span.since ?? seen)
        return span.firstReturn(look).map { max(proven, min($0, look.time)) } ?? proven
    }

    /// Evaluates what the breakpoints and the kernel's counters say about the time since the last look.
    private func follow(_ span: inout BusySpan, _ look: Look, _ before: Look?) -> [Order] {
        var orders: [Order] = []
        for (index, hit) in look.returns.enumerated() where span.returns.indices.contains(index) {
            switch hit {
            case nil: break
            case .own(let time):
                span.returns[index] = .returned(time)
                span.lastReturn = max(span.lastReturn ?? time, time)
            case .other:
                span.returns[index] = .unknown
                orders.append(.armReturn(index))
            }
        }
        let sleptOn = look.schedule == before?.schedule && look.position == before?.position
        if sleptOn, case .calling? = look.position {
            span.callSince = span.callSince ?? before?.time
        } else {
            span.callSince = nil
        }
        if look.turn == .other {
            // A nested wait hit the breakpoint. Since then only the callout's return has proven anything.
            orders.append(.armTurn)
            span.isArmed = false
        }
        if !span.isArmed, span.returns.first != .pending {
            // What was not observed before belongs to another standstill.
            if let since = span.callSince, since == before?.time { span.unobserved = lateness }
            // So do the counts.
            if let since = span.callSince, since > counted ?? since { orders.append(.account) }
            span.since = span.callSince
        }
        return orders
    }

    /// The stack shows that the thread is in the loop's own wait, so the loop has turned. The turn that has ended is reported at the next look.
    mutating func foundInWait(at time: MonotonicInstant) -> [Order] {
        guard case .busy(let span) = state else { return [] }
        turnBeforeWait = span.turn(until: time)
        counted = time
        return restart(hit: time)
    }
}

extension LoopRule.BusySpan {
    /// The part of the time since `since` for which there is no proof.
    var unproven: Duration { stopped + unobserved }

    /// How long there is proof that it has not turned.
    func standstill(at time: MonotonicInstant) -> Duration { since.map { max(.zero, time - $0 - unproven) } ?? .zero }

    /// The turn as far as it is proven. Nil without a proof, and if part of it does not count.
    func turn(until end: MonotonicInstant) -> RowRule.Turn? {
        guard let since, since < end, unproven == .zero else { return nil }
        return .init(earliest: min(rested, since), proven: since...end)
    }

    /// Starts again at the end of a time in which the thread is stopped, which is no stall. The breakpoints still prove that the loop does not
    /// turn.
    fileprivate mutating func leaveOutStop(until time: MonotonicInstant) {
        let isProven = isArmed || returns.first == .pending
        (since, callSince, rested) = (isProven ? time : nil, nil, time)
        unobserved = .zero
    }

    /// Whether a watched function has returned since the stack was last searched.
    private var hasReturned: Bool { returns.contains { if case .returned = $0 { true } else { false } } }

    /// Whether to search the stack now.
    ///
    /// - Parameter isDue: Whether the standstill is long enough to take stacks at all.
    fileprivate func wantsSearch(_ look: LoopRule.Look, isDue: Bool) -> Bool {
        // If a nested wait hits the breakpoint, only the callout's return can prove anything from then on.
        guard let locatedAt else { return look.turn == .other || (isArmed && isDue) }
        // Again at growing intervals: with a long threshold, a turn of short calls would be stopped at each look, and each stack kept.
        return isDue && hasReturned && look.time - locatedAt >= standstill(at: look.time) / 4
    }

    /// Whether the loop makes one call after another in one turn. A call that has lasted for half of the standstill or more is to
    /// blame alone, whatever was called before it.
    func isCongested(at time: MonotonicInstant) -> Bool {
        guard callSince == nil, let lastReturn else { return false }
        return (time - lastReturn) * 2 < standstill(at: time)
    }

    /// When the callout returned to the loop, if its breakpoint was hit in this look or the previous one.
    fileprivate func firstReturn(_ look: LoopRule.Look) -> MonotonicInstant? {
        if case .returned(let time)? = returns.first { return time }
        if returns.first == .pending, case .own(let time)?? = look.returns.first { return time }
        return nil
    }

    func times(until end: MonotonicInstant) -> StallSpan {
        let latest = since ?? rested
        var times = StallSpan(
            earliestStart: min(rested, latest),
            latestStart: latest,
            earliestEnd: max(end, latest),
            latestEnd: max(end, latest),
            excluded: unproven
        )
        times.unobserved = unobserved
        return times
    }
}
