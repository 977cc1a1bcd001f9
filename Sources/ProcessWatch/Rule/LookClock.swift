import RunLoopKit

/// When the next look is due, and how late a look begins. Pure.
struct LookClock: Hashable, Sendable {
    private let tick: Duration
    /// When the next look is to begin.
    private(set) var due: MonotonicInstant
    private var lastBegan: MonotonicInstant?

    init(tick: Duration, firstAt due: MonotonicInstant) { (self.tick, self.due) = (tick, due) }

    /// A look begins. One that comes before it is due is no look of the clock's.
    ///
    /// - Returns: by how much it is late, as far as that matters: measured from the beginning of the look before, so that a look that took
    ///   long itself counts. The machine may have stood in the middle of it.
    mutating func begin(at now: MonotonicInstant) -> Duration {
        defer { lastBegan = now }
        guard let lastBegan else { return .zero }
        let lateness = now - min(due, lastBegan + tick)
        return lateness > tick / 5 ? lateness : .zero
    }

    /// It is over.
    ///
    /// - Parameter maturity: when the first of the loops will be stalled if it goes on standing still.
    mutating func end(at now: MonotonicInstant, maturity: MonotonicInstant?) {
        guard let began = lastBegan, began >= due else { return }
        due = due + tick
        if due < now { due = now + tick / 10 }
        if let maturity, maturity > began { due = min(due, maturity) }
    }
}
