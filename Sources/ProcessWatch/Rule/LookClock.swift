import RunLoopKit

/// When the next sample is due, and how late a sample began. Pure: it reads no clock.
struct LookClock: Hashable, Sendable {
    private let tick: Duration
    private(set) var due: MonotonicInstant
    private var lastBegan: MonotonicInstant?

    init(tick: Duration, firstAt due: MonotonicInstant) { (self.tick, self.due) = (tick, due) }

    /// Begins a sample. A sample that begins early does not change when the next one is due.
    ///
    /// - Parameter worked: The processor time that the watcher has used since the previous sample began. The first stack of a
    ///   large program takes more than a tick: that is work and no lateness, because breakpoints prove the turns that happen
    ///   during it.
    /// - Returns: How late the sample began; zero if it does not matter. It is measured from the beginning of the previous
    ///   sample, so the part of a long sample in which the watcher did not run counts: the whole machine may have been stopped.
    mutating func begin(at now: MonotonicInstant, worked: Duration = .zero) -> Duration {
        defer { lastBegan = now }
        guard let lastBegan else { return .zero }
        let lateness = now - min(due, lastBegan + max(tick, worked + tick / 10))
        return lateness > tick / 5 ? lateness : .zero
    }

    /// Ends a sample.
    ///
    /// - Parameter maturity: When the first of the loops reaches its threshold, unless it turns before.
    mutating func end(at now: MonotonicInstant, maturity: MonotonicInstant?) {
        guard let began = lastBegan, began >= due else { return }
        due = due + tick
        if due < now { due = now + tick / 10 }
        if let maturity, maturity > began { due = min(due, maturity) }
    }
}

/// When to take another stack sample of a stall: every tick at first, later less and less often.
struct SamplePace {
    private var first: MonotonicInstant?
    private var last: MonotonicInstant?

    func isDue(at time: MonotonicInstant, _ tick: Duration) -> Bool {
        guard let first, let last else { return true }
        return time - last >= max(tick - tick / 25, (time - first) / 4)
    }

    mutating func note(_ time: MonotonicInstant) { (first, last) = (first ?? time, time) }
}
