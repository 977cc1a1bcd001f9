import RunLoopKit
import StallReports

/// Decides whether the monitor may take stacks, by its cost so far. A function of costs and time: no clock, no thread.
///
///     full ──half is spent──> thinned ──all is spent──> stopped ──a quarter is back──> trial
///      ^                         │  ^                      ^                             │
///      └─────three quarters──────┘  └──────the one capture permitted was affordable──────┤
///                                                          └──────────it was not─────────┘
struct CostBudget: Sendable {
    /// How freely stacks are taken. The raw value is used in the run record.
    enum State: String, Hashable, Sendable {
        case full, thinned, stopped, trial
    }

    enum Purpose: Sendable {
        /// The stack of a stall that has just been found.
        case detection
        /// One of several samples that show where a stall spent its time.
        case sample
    }

    /// Everything spent so far, in nanoseconds.
    struct Spent: Hashable, Sendable {
        var processor: UInt64 = 0
        var held: UInt64 = 0
    }

    /// The history of the budget.
    struct Account: Hashable, Sendable {
        var state = State.full
        var since: MonotonicInstant
        var stops = 0
        var thinned = Duration.zero
        var stopped = Duration.zero
        var skippedSamples = 0
        var skippedStacks = 0

        /// The account including the time in the present state.
        func upToDate(at now: MonotonicInstant) -> Account {
            var copy = self
            switch state {
            case .full: break
            case .thinned: copy.thinned += max(.zero, now - since)
            case .stopped, .trial: copy.stopped += max(.zero, now - since)
            }
            return copy
        }
    }

    private(set) var account: Account
    private var processor: TimeCredit
    private var held: TimeCredit
    private var spent = Spent()
    private var wantedSamples = 0
    private var triedAt: MonotonicInstant?

    /// After this time, the names for a trial's capture were found and its report was written, so its cost is known.
    private static let settlingTime = Duration.seconds(2)
    /// How much is left when captures are taken without restrictions again.
    private static let recovered = 0.75

    init(_ limits: StallMonitor.CostLimits, at now: MonotonicInstant) {
        processor = TimeCredit(share: limits.processorShare, burst: limits.processorBurst, at: now)
        held = TimeCredit(share: limits.heldShare, burst: limits.heldBurst, at: now)
        account = Account(since: now)
    }

    /// Records what has been spent until now.
    mutating func charge(_ total: Spent, at now: MonotonicInstant) {
        processor.fill(at: now)
        held.fill(at: now)
        processor.spend(total.processor - min(total.processor, spent.processor))
        held.spend(total.held - min(total.held, spent.held))
        spent = total
        while let next = next(at: now) { enter(next, at: now) }
    }

    /// Whether a stack may be taken now. Refusals are counted.
    mutating func permits(_ purpose: Purpose, at now: MonotonicInstant) -> Bool {
        let isPermitted = decide(purpose, at: now)
        if !isPermitted {
            switch purpose {
            case .detection: account.skippedStacks += 1
            case .sample: account.skippedSamples += 1
            }
        }
        return isPermitted
    }

    private mutating func decide(_ purpose: Purpose, at now: MonotonicInstant) -> Bool {
        switch (account.state, purpose) {
        case (.full, _), (.thinned, .detection): return true
        case (.thinned, .sample):
            wantedSamples += 1
            return wantedSamples.isMultiple(of: left >= 0.25 ? 4 : 8)
        case (.trial, .detection) where triedAt == nil:
            triedAt = now
            return true
        case (.trial, _), (.stopped, _): return false
        }
    }

    /// When the state will be `full`, if nothing more is spent until then.
    var fullAt: MonotonicInstant {
        let filled = max(processor.time(ofLeft: Self.recovered), held.time(ofLeft: Self.recovered))
        return triedAt.map { max(filled, $0 + Self.settlingTime) } ?? filled
    }

    /// The scarcer of the two budgets.
    private var left: Double { min(processor.left, held.left) }

    private func next(at now: MonotonicInstant) -> State? {
        switch account.state {
        case .full where left <= 0, .thinned where left <= 0, .trial where left <= 0: .stopped
        case .full where left < 0.5: .thinned
        case .thinned where left >= Self.recovered: .full
        case .stopped where left >= 0.25: .trial
        case .trial:
            if let triedAt {
                now - triedAt < Self.settlingTime ? nil : left >= 0.15 ? .thinned : .stopped
            } else {
                // There was no stall to try a capture on, and the budget has recovered anyway.
                left >= Self.recovered ? .full : nil
            }
        default: nil
        }
    }

    private mutating func enter(_ state: State, at now: MonotonicInstant) {
        account = account.upToDate(at: now)
        if state == .stopped, account.state != .trial { account.stops += 1 }
        (account.state, account.since, triedAt) = (state, now, nil)
    }
}

/// A time budget. It fills at a steady rate up to a limit, and may be overdrawn because a cost is known only afterwards. The debt
/// is limited too, so that one large cost does not stop captures for good. Pure.
struct TimeCredit: Sendable {
    private let share: Double
    private let bound: Double
    private var level: Double
    private var filledAt: MonotonicInstant

    /// The budget begins full.
    init(share: Double, burst: Duration, at now: MonotonicInstant) {
        self.share = share
        bound = Double(max(1, burst.nanoseconds))
        level = bound
        filledAt = now
    }

    /// What is left: 1 is all of it. A debt is negative, at least −1.
    var left: Double { level / bound }

    mutating func fill(at now: MonotonicInstant) {
        guard now > filledAt else { return }
        level = min(bound, level + Double((now - filledAt).nanoseconds) * share)
        filledAt = now
    }

    /// When at least this share is left, if nothing more is spent until then. Up to a millisecond late.
    func time(ofLeft share: Double) -> MonotonicInstant {
        let missing = max(0, share * bound - level)
        return filledAt + .nanoseconds(Int64(saturating: missing / self.share)) + .milliseconds(1)
    }

    mutating func spend(_ nanoseconds: UInt64) {
        level = max(-bound, level - Double(nanoseconds))
    }
}

extension StallMonitor {
    /// What the monitor may cost the process it watches. When half of a burst is used up it takes fewer samples, when all of it is
    /// no stacks at all, until enough is available again. Stalls are still found and reported.
    ///
    /// The processor time of captures, of finding names and of writing counts, and so does the time for which watched threads
    /// were held. Looks do not count: there is at most one per tick and one at each threshold, and without them nothing is found.
    public struct CostLimits: Hashable, Sendable {
        /// The share of one processor that may be used in the long run: 0.01 is 1 %.
        public var processorShare: Double
        /// Processor time that may be used at once after a quiet time. Finding names for the first stall can take a second or
        /// two.
        public var processorBurst: Duration
        /// The share of time for which watched threads may be held, all of them together.
        public var heldShare: Double
        /// Time for which threads may be held at once after a quiet time.
        public var heldBurst: Duration

        /// - Parameters:
        ///   - processorShare: 0.000001 to 1; 1 % by default.
        ///   - processorBurst: 1 µs to 10 min; 3 s by default.
        ///   - heldShare: 0.000001 to 1; 0.1 % by default.
        ///   - heldBurst: 1 µs to 10 min; 50 ms by default.
        public init(
            processorShare: Double = 0.01,
            processorBurst: Duration = .seconds(3),
            heldShare: Double = 0.001,
            heldBurst: Duration = .milliseconds(50)
        ) {
            (self.processorShare, self.heldShare) = (processorShare, heldShare)
            (self.processorBurst, self.heldBurst) = (processorBurst, heldBurst)
        }
    }
}
