import RunLoopKit

/// Time that may be spent: it comes in at a steady rate, up to a bound, and may be overdrawn, since a cost is known only when it has
/// arisen. The debt is bounded, too, so that one great cost does not silence the monitor for good. Pure.
struct Allowance: Sendable {
    private let share: Double
    private let bound: Double
    private var level: Double
    private var filledAt: MonotonicInstant

    /// Full at first.
    init(share: Double, burst: Duration, at now: MonotonicInstant) {
        self.share = share
        bound = Double(max(1, burst.nanoseconds))
        level = bound
        filledAt = now
    }

    /// What is left, 1 for all of it; negative for a debt, −1 at most.
    var left: Double { level / bound }

    mutating func fill(at now: MonotonicInstant) {
        guard now > filledAt else { return }
        level = min(bound, level + Double((now - filledAt).nanoseconds) * share)
        filledAt = now
    }

    mutating func spend(_ nanoseconds: UInt64) {
        level = max(-bound, level - Double(nanoseconds))
    }
}
