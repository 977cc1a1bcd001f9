import RunLoopKit
import StallDetection

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
    var state = State.resting
    /// When the loop was last seen at rest, or returned from its wait.
    var lastRest: MonotonicInstant?
    var lastLook: Look?
    /// How late the present look is.
    var lateness = Duration.zero
    /// When the kernel's counters of the thread were last ordered: the counts of a stall must not begin before it.
    var counted: MonotonicInstant?
    /// The turn that has ended since the look before, as far as it is proven. Nil for one that was reported as a stall.
    var endedTurn: RowRule.Turn?
    /// The turn that had ended when the stack of the latest look was taken. It becomes `endedTurn` at the next look.
    var turnBeforeWait: RowRule.Turn?

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
        /// When its stack was last compared with the loop's.
        var locatedAt: MonotonicInstant?
        /// The watched returns, outermost first: of the callout, and of the functions that it called.
        var returns: [Return] = []
        /// When a watched function was last seen to return.
        var lastReturn: MonotonicInstant?
        /// The parts of the time since `since` that do not count: the thread was stopped, or the watcher did not run.
        var stopped = Duration.zero
        var unobserved = Duration.zero
        /// The standstill at which the stall is reported again.
        var nextReport: Duration = .zero
    }

    enum Return: Hashable, Sendable {
        /// It has not returned.
        case pending
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
    var slack: Duration { tick / 25 }

    var isStalled: Bool { if case .stalled = state { true } else { false } }

    /// Whether it has not turned for two ticks.
    func isSuspect(at time: MonotonicInstant) -> Bool {
        span.map { $0.standstill(at: time) + slack >= tick * 2 } ?? false
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
        /// Read the kernel's counters of the thread, because a stall may begin now, and drop the former ones and all samples: they are of the time
        /// before it.
        case account
        /// Take the stack, find the callout in it, and watch the returns of the callout and of what it has called. Again after one
        /// of them has returned: what the thread does now decides what kind of stall it is.
        case locate
        /// Take a stack sample.
        case sample
        case began(isCongested: Bool, StallSpan)
        case continues(StallSpan, isWorthReporting: Bool)
        case ended(StallSpan)
        /// The loop is busy, and nothing shows whether it turns.
        case unproven
    }

    /// Subtracts the time by which the next look is late: the machine may have been stopped, or no processor was free for the watcher. That
    /// time proves nothing.
    mutating func exclude(_ lateness: Duration) {
        self.lateness = lateness
        change { span in
            guard span.since != nil || span.callSince != nil else { return }
            span.unobserved += lateness
        }
    }

    /// Notes whether the breakpoint at the wait's return could be set.
    mutating func armed(_ isArmed: Bool, at time: MonotonicInstant) {
        change { span in
            span.isArmed = isArmed
            if isArmed, span.since == nil { (span.since, span.unobserved) = (time, .zero) }
        }
    }

    /// Sets the number of returns that are watched from now on, as found in the stack.
    mutating func located(watching count: Int) {
        change { $0.returns = Array(repeating: .pending, count: count) }
    }

    /// Notes whether a return is watched again.
    mutating func armedReturn(_ index: Int, _ isArmed: Bool) {
        change { span in
            guard isArmed, span.returns.indices.contains(index) else { return }
            span.returns[index] = .pending
        }
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
