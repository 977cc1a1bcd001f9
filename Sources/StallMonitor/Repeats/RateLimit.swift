import RunLoopKit

/// So much a minute, with a reserve for bursts (a token bucket). Pure.
struct RateLimit {
    private let perMinute: Double
    private let capacity: Double
    private var level: Double
    private var updatedAt: MonotonicInstant?

    /// Full at first.
    init(perMinute: Int, burst: Int) {
        (self.perMinute, capacity, level) = (Double(perMinute), Double(burst), Double(burst))
    }

    /// Whether there is room for so much. Takes nothing.
    mutating func hasRoom(for amount: Double, at time: MonotonicInstant) -> Bool {
        refill(until: time)
        return level >= amount
    }

    /// Takes what was used, also what there was no room for: then there is none for longer.
    mutating func use(_ amount: Double, at time: MonotonicInstant) {
        refill(until: time)
        level -= amount
    }

    private mutating func refill(until time: MonotonicInstant) {
        if let updatedAt, time > updatedAt {
            level = min(capacity, level + perMinute * Double((time - updatedAt).nanoseconds) / 60e9)
        }
        updatedAt = max(updatedAt ?? time, time)
    }
}
