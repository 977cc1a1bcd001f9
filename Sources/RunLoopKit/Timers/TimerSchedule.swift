/// The timers of one mode that go by one clock.
struct TimerSchedule: Sendable {
    /// Those without tolerance.
    private var exact = TimerHeap()
    /// Those with tolerance by fire date, and the same by the latest date that their tolerance allows (R46).
    private var lenient = TimerHeap()
    private var deadlines = TimerHeap()

    var isEmpty: Bool { exact.isEmpty && lenient.isEmpty }

    /// From when on there is a timer that may fire.
    @inline(__always)
    var earliestFire: UInt64 { lenient.isEmpty ? exact.earliest : min(exact.earliest, lenient.earliest) }

    /// From when on there is a timer that must not wait any longer: when to wake up.
    @inline(__always)
    var earliestDeadline: UInt64 { lenient.isEmpty ? exact.earliest : min(exact.earliest, deadlines.earliest) }

    mutating func insert(_ key: TimerKey, tolerance: UInt64) {
        guard tolerance > 0 else { return exact.insert(key) }
        lenient.insert(key)
        var deadline = key
        deadline.date = key.date.addingSaturated(tolerance)
        deadlines.insert(deadline)
    }

    /// False if it is not here.
    mutating func remove(_ ticket: UInt32) -> Bool {
        if exact.remove(ticket) { return true }
        guard lenient.remove(ticket) else { return false }
        return deadlines.remove(ticket)
    }

    /// The first of those that may fire.
    var first: TimerKey? {
        guard let other = lenient.first else { return exact.first }
        guard let one = exact.first else { return other }
        return other < one ? other : one
    }

    /// Takes out the first, if its fire date is not later than `date`.
    mutating func popFirst(upTo date: UInt64) -> TimerKey? {
        guard let other = lenient.first else { return exact.popFirst(upTo: date) }
        if let one = exact.first, one < other { return exact.popFirst(upTo: date) }
        guard let popped = lenient.popFirst(upTo: date) else { return nil }
        _ = deadlines.remove(popped.ticket)
        return popped
    }
}
