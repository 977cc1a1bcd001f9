import RunLoopKit

/// Decides whether a loop of another process is stalled. Pure: a function of readings and their times.
///
/// The watcher looks at the loop each tick. If it does not rest, a one-shot breakpoint is set where its wait returns: a hit
/// proves that the loop has turned. A loop that has neither rested nor turned for the threshold is stalled:
///
///         rests ──not at rest──> busy ──a tick later──> where is it? ──threshold──> stalled
///           ^                      │  ^                                                   │
///           │                     └──┘ a hit with the loop's stack pointer: it has turned  │
///           └──────────────── at rest, or a hit ────────────────────────────────────────────┘
///
/// Three things prove that the loop has not turned: this breakpoint was set and has not been hit; the breakpoint where the
/// callout returns was set and has not been hit; the thread has slept in one system call without running. When none of them
/// holds, the time starts again at zero.
struct LoopRule: Sendable {
    let tick: Duration
    let threshold: Duration
    private(set) var state = State.resting
    /// When the loop was last seen at rest, or returned from its wait.
    private var lastRest: MonotonicInstant?
    private var lastLook: Look?
    /// The turn that has ended since the look before, as far as it is proven. Nil for one that was reported as a stall.
    private(set) var endedTurn: RowRule.Turn?

    enum State: Sendable {
        case resting
        case busy(BusySpan)
        case stalled(BusySpan)
    }

    /// A time in which the loop does not rest.
    struct BusySpan: Sendable {
        /// When it last rested. The loop stopped turning between this moment and `since`.
        var rested: MonotonicInstant
        /// Since when there is proof that it has not turned. Nil without proof.
        var since: MonotonicInstant?
        /// Since when it has slept in one call without running.
        var callSince: MonotonicInstant?
        /// Whether the breakpoint at the wait's return is set.
        var isArmed = false
        /// Whether its stack has been compared with the loop's.
        var isLocated = false
        /// The watched returns, outermost first: of the callout, and of the functions that it called.
        var returns: [Return] = []
        /// The part of the time since `since` for which there is no proof.
        var unproven = Duration.zero
        /// The standstill at which the stall is reported again.
        var nextTelling: Duration = .zero
    }

    enum Return: Hashable, Sendable {
        case stands
        /// The time at which the breakpoint was hit.
        case returned(MonotonicInstant)
        /// Another activation hit the breakpoint, and it has not been set again yet.
        case unknown
    }

    init(tick: Duration, threshold: Duration) { (self.tick, self.threshold) = (tick, threshold) }

    /// The loop was seen at rest before its first look.
    mutating func foundAtRest(at time: MonotonicInstant) { lastRest = time }

    /// Whether this look must read the thread's position.
    func needsPosition(_ schedule: Schedule) -> Bool {
        guard let lastLook, case .resting = state, lastLook.rests else { return true }
        return schedule != lastLook.schedule
    }

    /// Allows for looks that come a little early.
    private var slack: Duration { tick / 25 }

    var isStalled: Bool { if case .stalled = state { true } else { false } }

    /// Whether it has not turned for two ticks.
    func isSuspect(at time: MonotonicInstant) -> Bool {
        span.map { $0.standing(at: time) + slack >= tick * 2 } ?? false
    }

    /// When the loop will count as stalled unless it turns before. Nil without proof.
    var maturity: MonotonicInstant? {
        guard case .busy(let span) = state, let since = span.since else { return nil }
        return since + threshold + span.unproven
    }

    /// The present turn, as far as it is proven.
    func presentTurn(at time: MonotonicInstant) -> RowRule.Turn? {
        if case .busy(let span) = state { span.turn(until: time) } else { nil }
    }

    /// The time since the loop last rested. Nil while it rests.
    var span: BusySpan? {
        switch state {
        case .resting: nil
        case .busy(let span), .stalled(let span): span
        }
    }
}

extension LoopRule {
    /// What one look has read.
    struct Look: Sendable {
        var time: MonotonicInstant
        var schedule: Schedule
        /// Nil if it was not read, because the thread has not run.
        var position: ThreadPosition?
        /// Whether the thread is in the loop's own wait.
        var rests: Bool
        /// Whether the thread is stopped, by a signal or a debugger.
        var isStopped = false
        /// The hit of the breakpoint at the wait's return, if there was one since the last look.
        var turn: Hit?
        /// The same for each watched return.
        var returns: [Hit?] = []
    }

    /// Who hit a breakpoint.
    enum Hit: Hashable, Sendable {
        /// The watched activation, and when.
        case own(MonotonicInstant)
        /// Another activation, or an unknown one.
        case other

        /// Combines the hits of several breakpoints that prove the same thing: one hit by the watched activation is enough.
        static func first(of hits: [Hit?]) -> Hit? {
            let times = hits.compactMap { hit -> MonotonicInstant? in
                if case .own(let time)? = hit { time } else { nil }
            }
            return times.min().map(Hit.own) ?? hits.compactMap { $0 }.first
        }
    }

    /// What the caller has to do, in the given order.
    enum Order: Hashable, Sendable {
        /// Remove all breakpoints.
        case release
        /// Set the breakpoint at the wait's return again.
        case armTurn
        /// Set the breakpoint of a watched return again.
        case armReturn(Int)
        /// Read the kernel's counters of the thread: a stall may have begun.
        case account
        /// Take the stack, find the callout in it, and watch the callout's return.
        case locate
        /// Take a stack sample.
        case sample
        case began(isCongested: Bool, StallTimes)
        case goesOn(StallTimes, isWorthTelling: Bool)
        case ended(StallTimes)
        /// The loop is busy, and nothing shows whether it turns.
        case unproven
    }

    /// The interval in which the stall began, and the one in which it ended.
    struct StallTimes: Hashable, Sendable {
        var began: ClosedRange<MonotonicInstant>
        var ended: ClosedRange<MonotonicInstant>
        var unproven: Duration
    }

    /// Subtracts time in which the watcher was late: the machine may have been stopped, or no processor was free for it. That
    /// time proves nothing.
    mutating func discount(_ lateness: Duration) {
        change { span in
            guard span.since != nil || span.callSince != nil else { return }
            span.unproven += lateness
        }
    }

    /// Notes whether the breakpoint at the wait's return could be set.
    mutating func armed(_ isArmed: Bool, at time: MonotonicInstant) {
        change { span in
            span.isArmed = isArmed
            if isArmed, span.since == nil { span.since = time }
        }
    }

    /// Sets the number of returns that are watched from now on, as found in the stack. 0 if the callout was not found.
    mutating func located(watching count: Int) {
        change { $0.returns = Array(repeating: .stands, count: count) }
    }

    /// Notes whether a return is watched again.
    mutating func armedReturn(_ index: Int, _ isArmed: Bool) {
        change { span in
            guard isArmed, span.returns.indices.contains(index) else { return }
            span.returns[index] = .stands
        }
    }

    /// The stack shows that the thread is in the loop's own wait, so the loop has turned.
    mutating func foundInWait(at time: MonotonicInstant) -> [Order] {
        guard case .busy = state else { return [] }
        return restart(at: time, hit: time)
    }

    private mutating func change(_ body: (inout BusySpan) -> Void) {
        switch state {
        case .resting: return
        case .busy(var span):
            body(&span)
            state = .busy(span)
        case .stalled(var span):
            body(&span)
            state = .stalled(span)
        }
    }
}

// MARK: - A look

extension LoopRule {
    mutating func look(_ look: Look) -> [Order] {
        let before = lastLook
        // The thread has not run, so it is where it was before.
        var look = look
        if look.position == nil { (look.position, look.rests) = (before?.position, before?.rests ?? false) }
        defer { lastLook = look }
        endedTurn = nil
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
    private mutating func restart(at time: MonotonicInstant, hit: MonotonicInstant) -> [Order] {
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
            return restart(at: look.time, hit: time)
        }
        var span = old
        if look.isStopped {
            // The breakpoints still prove that it does not turn, but the time in which it is stopped is no stall.
            let orders = follow(&span, look, before)
            let isProven = span.isArmed || span.returns.first == .stands
            (span.since, span.callSince, span.rested) = (isProven ? look.time : nil, nil, look.time)
            state = .busy(span)
            return orders
        }
        var orders = follow(&span, look, before)
        if span.since == nil, !span.returns.isEmpty {
            // The callout has returned, and another activation has hit the breakpoint that would show what followed. (If no
            // callout was found, another search with every look would not find one either.)
            return restart(at: look.time, hit: earliestEnd(of: old, look, before))
        }
        let standing = span.standing(at: look.time)
        // If a system call is the only proof, the call must last for the whole threshold: the loop may have turned before it.
        if standing + slack >= threshold, span.since != nil {
            span.nextTelling = standing * 2
            state = .stalled(span)
            return orders + [.began(isCongested: span.isCongested, span.times(until: look.time))]
        }
        let isDue = standing + slack >= tick * 2
        // If a nested wait hits the breakpoint, only the callout's return can prove anything from then on.
        if !span.isLocated, look.turn == .other || (span.isArmed && isDue) {
            span.isLocated = true
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
            return end(span, look, before, latest: min(time, look.time)) + restart(at: look.time, hit: time)
        }
        let orders = follow(&span, look, before)
        if look.isStopped, let before { span.unproven += max(.zero, look.time - before.time) }
        guard span.since != nil else {
            // No proof is left. The stall ended after the previous look, and the next one may have begun as early.
            let orders = end(old, look, before, latest: look.time)
            return orders + restart(at: look.time, hit: earliestEnd(of: old, look, before))
        }
        let standing = span.standing(at: look.time)
        let isWorthTelling = standing >= span.nextTelling
        if isWorthTelling { span.nextTelling = min(standing * 2, standing + .seconds(10)) }
        state = .stalled(span)
        return orders + [.goesOn(span.times(until: look.time), isWorthTelling: isWorthTelling)]
    }

    /// Ends the span, at some time between the previous look and `latest`. If the callout's breakpoint was hit, the time is
    /// exact.
    private func end(_ span: BusySpan, _ look: Look, _ before: Look?, latest: MonotonicInstant) -> [Order] {
        var times = span.times(until: latest)
        let latest = max(latest, span.since ?? latest)
        times.ended = min(earliestEnd(of: span, look, before), latest)...latest
        if let time = span.firstReturn(look), times.ended.contains(time) { times.ended = time...time }
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
            case .own(let time): span.returns[index] = .returned(time)
            case .other:
                span.returns[index] = .unknown
                orders.append(.armReturn(index))
            }
        }
        let sleptOn =
            look.schedule == before?.schedule && look.position == before?.position && look.position != .running
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
        if !span.isArmed, span.returns.first != .stands { span.since = span.callSince }
        return orders
    }
}

extension LoopRule.BusySpan {
    /// How long there is proof that it has not turned.
    func standing(at time: MonotonicInstant) -> Duration { since.map { max(.zero, time - $0 - unproven) } ?? .zero }

    /// The turn as far as it is proven. Nil without a proof, and if part of it does not count.
    func turn(until end: MonotonicInstant) -> RowRule.Turn? {
        guard let since, since < end, unproven == .zero else { return nil }
        return .init(earliest: min(rested, since), proven: since...end)
    }

    /// Whether the loop makes one callout after another in one turn: a watched function has returned, and the loop has not turned
    /// since.
    var isCongested: Bool {
        guard callSince == nil else { return false }
        return returns.contains { if case .returned = $0 { true } else { false } }
    }

    /// When the callout returned to the loop, if its breakpoint was hit in this look or the previous one.
    fileprivate func firstReturn(_ look: LoopRule.Look) -> MonotonicInstant? {
        if case .returned(let time)? = returns.first { return time }
        if returns.first == .stands, case .own(let time)?? = look.returns.first { return time }
        return nil
    }

    func times(until end: MonotonicInstant) -> LoopRule.StallTimes {
        let latest = since ?? rested
        return .init(
            began: min(rested, latest)...latest,
            ended: max(end, latest)...max(end, latest),
            unproven: unproven
        )
    }
}
