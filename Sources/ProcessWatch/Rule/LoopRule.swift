import RunLoopKit

/// When a loop that is seen from outside counts as stalled. Pure: a function of what was read, and when.
///
/// A look each tick tells whether the loop rests. Only one that does not gets a one-shot breakpoint at its wait's return, that would prove a
/// turn. What is not refuted for the threshold has stood still:
///
///         rests ──not at rest──> doubted ──a tick later──> where is it? ──threshold──> stalled
///           ^                      │  ^                                                   │
///           │                      └──┘ a hit with the loop's stack pointer: it has turned │
///           └──────────────── at rest, or a hit ────────────────────────────────────────────┘
///
/// Standing is proven while that breakpoint is armed and not hit, or the one at the callout's return, or while the thread sleeps in one
/// call and has not run. Time in which none of these holds proves nothing, and counts from anew.
struct LoopRule: Sendable {
    let tick: Duration
    let threshold: Duration
    private(set) var state = State.resting
    /// The last moment at which the loop was seen at rest, or came back from its wait.
    private var lastRest: MonotonicInstant?
    private var lastLook: Look?

    enum State: Sendable {
        case resting
        case doubted(Doubt)
        case stalled(Doubt)
    }

    /// A loop that does not rest.
    struct Doubt: Sendable {
        /// The last moment before at which it did: the standstill began between that and `since`.
        var rested: MonotonicInstant
        /// Since when it has surely stood still. Nil: nothing proves it.
        var since: MonotonicInstant?
        /// Since when it has slept in one call without running.
        var callSince: MonotonicInstant?
        /// Whether the breakpoint at the wait's return is set.
        var isArmed = false
        /// Whether somebody has looked where it is.
        var isLocated = false
        /// What is watched of it, outermost first: whether the callout has returned, and what it called.
        var returns: [Return] = []
        /// How much of the time since `since` nobody can vouch for.
        var unproven = Duration.zero
        /// When to tell again of a stall that goes on.
        var nextTelling: Duration = .zero
    }

    enum Return: Hashable, Sendable {
        case stands
        /// When, as the breakpoint says.
        case returned(MonotonicInstant)
        /// Another activation took the shot: it has yet to be set anew.
        case unknown
    }

    init(tick: Duration, threshold: Duration) { (self.tick, self.threshold) = (tick, threshold) }

    /// The loop was found at rest before its first look.
    mutating func foundAtRest(at time: MonotonicInstant) { lastRest = time }

    /// Whether this look has to read where the thread is.
    func needsSight(_ schedule: Schedule) -> Bool {
        guard let lastLook, case .resting = state, lastLook.rests else { return true }
        return schedule != lastLook.schedule
    }

    /// A look is never late by nothing, and never early.
    private var slack: Duration { tick / 25 }

    var isStalled: Bool { if case .stalled = state { true } else { false } }

    /// Whether it has stood still for so long that a turn is unlikely to have been missed.
    func isSuspect(at time: MonotonicInstant) -> Bool {
        doubt.map { $0.standing(at: time) + slack >= tick * 2 } ?? false
    }

    /// When what stands still will be a stall, if nothing refutes it before. Setting the breakpoint takes its time: that is not a look's.
    var maturity: MonotonicInstant? {
        guard case .doubted(let doubt) = state, let since = doubt.since else { return nil }
        return since + threshold + doubt.unproven
    }

    /// What stands still, as far as that is known.
    var doubt: Doubt? {
        switch state {
        case .resting: nil
        case .doubted(let doubt), .stalled(let doubt): doubt
        }
    }
}

extension LoopRule {
    /// What was read at one look.
    struct Look: Sendable {
        var time: MonotonicInstant
        var schedule: Schedule
        /// Nil: it was not asked for, since the thread has not run.
        var sight: ThreadSight?
        /// Whether the sight is the loop's own wait.
        var rests: Bool
        /// By proc(5) the thread is stopped, by a signal or a debugger.
        var isStopped = false
        /// What the wait's breakpoint has caught since the last look: nil for nothing.
        var turn: Catch?
        /// The same of each return that is watched.
        var returns: [Catch?] = []
    }

    /// What a breakpoint caught.
    enum Catch: Hashable, Sendable {
        /// The activation that was meant.
        case own(MonotonicInstant)
        /// Another one, with another stack pointer; or nobody knows which.
        case other

        /// What several breakpoints have caught that mean the same: one's own catch is enough.
        static func first(of catches: [Catch?]) -> Catch? {
            let times = catches.compactMap { caught -> MonotonicInstant? in
                if case .own(let time)? = caught { time } else { nil }
            }
            return times.min().map(Catch.own) ?? catches.compactMap { $0 }.first
        }
    }

    /// What is to be done. In this order.
    enum Order: Hashable, Sendable {
        /// Take all breakpoints away.
        case release
        /// Set the one at the wait's return, anew.
        case armTurn
        /// Set that of a watched return anew.
        case armReturn(Int)
        /// Take the kernel's account of the thread: a standstill may have begun.
        case account
        /// Take the stack, and watch the callout's return.
        case locate
        /// Take another sample.
        case sample
        case began(isCongested: Bool, StallTimes)
        case goesOn(StallTimes, isWorthTelling: Bool)
        case ended(StallTimes)
        /// It is busy, and nothing says whether it turns.
        case unproven
    }

    /// Between which moments a stall began and ended.
    struct StallTimes: Hashable, Sendable {
        var began: ClosedRange<MonotonicInstant>
        var ended: ClosedRange<MonotonicInstant>
        var unproven: Duration
    }

    /// We were late ourselves by so much: the machine may have stood, or had no processor for us. That proves nothing.
    mutating func discount(_ lateness: Duration) {
        change { doubt in
            guard doubt.since != nil || doubt.callSince != nil else { return }
            doubt.unproven += lateness
        }
    }

    /// The breakpoint at the wait's return is set, or could not be.
    mutating func armed(_ isArmed: Bool, at time: MonotonicInstant) {
        change { doubt in
            doubt.isArmed = isArmed
            if isArmed, doubt.since == nil { doubt.since = time }
        }
    }

    /// What a look at the stack found: so many returns are watched from now on; none where it could not tell.
    mutating func located(watching count: Int) {
        change { $0.returns = Array(repeating: .stands, count: count) }
    }

    /// Whether a return is watched again.
    mutating func armedReturn(_ index: Int, _ isArmed: Bool) {
        change { doubt in
            guard isArmed, doubt.returns.indices.contains(index) else { return }
            doubt.returns[index] = .stands
        }
    }

    /// The stack shows the thread inside the loop's own wait: it has turned.
    mutating func foundInWait(at time: MonotonicInstant) -> [Order] {
        guard case .doubted = state else { return [] }
        return restart(at: time, hit: time)
    }

    private mutating func change(_ body: (inout Doubt) -> Void) {
        switch state {
        case .resting: return
        case .doubted(var doubt):
            body(&doubt)
            state = .doubted(doubt)
        case .stalled(var doubt):
            body(&doubt)
            state = .stalled(doubt)
        }
    }
}

// MARK: - A look

extension LoopRule {
    mutating func look(_ look: Look) -> [Order] {
        let before = lastLook
        // Not asked for means: as before.
        var look = look
        if look.sight == nil { (look.sight, look.rests) = (before?.sight, before?.rests ?? false) }
        defer { lastLook = look }
        switch state {
        case .resting:
            guard !look.rests else {
                lastRest = look.time
                return []
            }
            return depart(look)
        case .doubted(let doubt): return doubted(doubt, look, before)
        case .stalled(let doubt): return stalled(doubt, look, before)
        }
    }

    private mutating func depart(_ look: Look) -> [Order] {
        state = .doubted(Doubt(rested: lastRest ?? look.time))
        return [.armTurn, .account]
    }

    /// From anew: it has turned, or nothing is known of the time before.
    ///
    /// - Parameter hit: when it came back from its wait; its turn began then.
    private mutating func restart(at time: MonotonicInstant, hit: MonotonicInstant) -> [Order] {
        lastRest = hit
        state = .doubted(Doubt(rested: hit))
        return [.release, .armTurn, .account]
    }

    private mutating func rest(at time: MonotonicInstant) -> [Order] {
        (state, lastRest) = (.resting, time)
        return [.release]
    }

    private mutating func doubted(_ old: Doubt, _ look: Look, _ before: Look?) -> [Order] {
        if look.rests { return rest(at: look.time) }
        if case .own(let time) = look.turn { return restart(at: look.time, hit: time) }
        var doubt = old
        if look.isStopped {
            // No stall of the loop's. What is armed goes on proving, but the time does not count.
            let orders = follow(&doubt, look, before)
            let isProven = doubt.isArmed || doubt.returns.first == .stands
            (doubt.since, doubt.callSince, doubt.rested) = (isProven ? look.time : nil, nil, look.time)
            state = .doubted(doubt)
            return orders
        }
        var orders = follow(&doubt, look, before)
        if doubt.since == nil, !doubt.returns.isEmpty {
            // The callout has returned, and another activation has taken the shot that would tell what came then. Where nothing was found to
            // watch, a stack each time would tell no more.
            return restart(at: look.time, hit: earliestEnd(of: old, look, before))
        }
        let standing = doubt.standing(at: look.time)
        // By one call alone only the whole threshold in it counts: what came before it may have been another turn.
        if standing + slack >= threshold, doubt.since != nil {
            doubt.nextTelling = standing * 2
            state = .stalled(doubt)
            return orders + [.began(isCongested: doubt.isCongested, doubt.times(until: look.time))]
        }
        let isDue = standing + slack >= tick * 2
        // A nested wait that takes the shots leaves only the callout's return to prove anything.
        if !doubt.isLocated, look.turn == .other || (doubt.isArmed && isDue) {
            doubt.isLocated = true
            orders.append(.locate)
        } else if isDue {
            orders.append(.sample)
        }
        state = .doubted(doubt)
        if doubt.since == nil, look.time - doubt.rested >= threshold { orders.append(.unproven) }
        return orders
    }

    private mutating func stalled(_ old: Doubt, _ look: Look, _ before: Look?) -> [Order] {
        var doubt = old
        if look.rests { return end(doubt, look, before, latest: look.time) + rest(at: look.time) }
        if case .own(let time) = look.turn {
            return end(doubt, look, before, latest: min(time, look.time)) + restart(at: look.time, hit: time)
        }
        let orders = follow(&doubt, look, before)
        if look.isStopped, let before { doubt.unproven += max(.zero, look.time - before.time) }
        guard doubt.since != nil else {
            // Nothing proves it any more: it ended somewhere in between, and what came after may have begun as early.
            let orders = end(old, look, before, latest: look.time)
            return orders + restart(at: look.time, hit: earliestEnd(of: old, look, before))
        }
        let standing = doubt.standing(at: look.time)
        let isWorthTelling = standing >= doubt.nextTelling
        if isWorthTelling { doubt.nextTelling = min(standing * 2, standing + .seconds(10)) }
        state = .stalled(doubt)
        return orders + [.goesOn(doubt.times(until: look.time), isWorthTelling: isWorthTelling)]
    }

    /// It ended between the look before and `latest`; exactly when the callout returned, if that was caught.
    private func end(_ doubt: Doubt, _ look: Look, _ before: Look?, latest: MonotonicInstant) -> [Order] {
        var times = doubt.times(until: latest)
        let latest = max(latest, doubt.since ?? latest)
        times.ended = min(earliestEnd(of: doubt, look, before), latest)...latest
        if let time = doubt.firstReturn(look), times.ended.contains(time) { times.ended = time...time }
        return [.ended(times)]
    }

    /// Until then it has surely stood.
    private func earliestEnd(of doubt: Doubt, _ look: Look, _ before: Look?) -> MonotonicInstant {
        let seen = min(before?.time ?? look.time, look.time)
        let proven = max(seen, doubt.since ?? seen)
        return doubt.firstReturn(look).map { max(proven, min($0, look.time)) } ?? proven
    }

    /// What the breakpoints and the kernel's counts say of the time since the last look.
    private func follow(_ doubt: inout Doubt, _ look: Look, _ before: Look?) -> [Order] {
        var orders: [Order] = []
        for (index, caught) in look.returns.enumerated() where doubt.returns.indices.contains(index) {
            switch caught {
            case nil: break
            case .own(let time): doubt.returns[index] = .returned(time)
            case .other:
                doubt.returns[index] = .unknown
                orders.append(.armReturn(index))
            }
        }
        let sleptOn = look.schedule == before?.schedule && look.sight == before?.sight && look.sight != .running
        if sleptOn, case .calling? = look.sight {
            doubt.callSince = doubt.callSince ?? before?.time
        } else {
            doubt.callSince = nil
        }
        if look.turn == .other {
            // A nested wait took the shot: since then only the callout's return has proven anything.
            orders.append(.armTurn)
            doubt.isArmed = false
        }
        if !doubt.isArmed, doubt.returns.first != .stands { doubt.since = doubt.callSince }
        return orders
    }
}

extension LoopRule.Doubt {
    /// For how long it has surely stood still.
    func standing(at time: MonotonicInstant) -> Duration { since.map { max(.zero, time - $0 - unproven) } ?? .zero }

    /// One turn of many callouts: the callout stands, or another one of the same turn does, and what it called has returned.
    var isCongested: Bool {
        guard callSince == nil else { return false }
        return returns.contains { if case .returned = $0 { true } else { false } }
    }

    /// When the callout returned to the loop, as this look or the one before has caught it.
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
