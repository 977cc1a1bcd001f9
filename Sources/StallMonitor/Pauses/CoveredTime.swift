import RunLoopKit

/// How long at least one of several scopes was open, each until its end or its limit, whichever comes first. Pure.
struct CoveredTime: Sendable {
    private var settled = Duration.zero
    private var settledAt = MonotonicInstant(nanoseconds: 0)
    private var open: [(id: UInt64, limit: MonotonicInstant)] = []
    private var opened: UInt64 = 0

    var isOpen: Bool { !open.isEmpty }

    /// Opens a scope; scopes may overlap in any way.
    mutating func open(at time: MonotonicInstant, until limit: MonotonicInstant) -> UInt64 {
        settle(at: time)
        opened += 1
        open.append((opened, limit))
        return opened
    }

    mutating func close(_ id: UInt64, at time: MonotonicInstant) {
        settle(at: time)
        if let index = open.lastIndex(where: { $0.id == id }) { open.remove(at: index) }
    }

    /// All the time covered until `time`, which must not be before the latest opening or closing.
    func total(until time: MonotonicInstant) -> Duration {
        guard let limit = open.map(\.limit).max() else { return settled }
        return settled + max(.zero, min(time, limit) - settledAt)
    }

    private mutating func settle(at time: MonotonicInstant) {
        settled = total(until: time)
        settledAt = max(settledAt, time)
    }
}
