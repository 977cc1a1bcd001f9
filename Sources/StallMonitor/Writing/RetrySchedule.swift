import RunLoopKit

/// When a disk that refused is asked again: a second later, then at double the distance, a minute at most. A process whose reports
/// wait for a disk wakes once a minute for it, and not at all when nothing waits. Pure.
struct RetrySchedule: Hashable, Sendable {
    private static let first = Duration.seconds(1)
    private static let longest = Duration.seconds(60)
    private var distance = RetrySchedule.first

    mutating func next(after now: MonotonicInstant) -> MonotonicInstant {
        defer { distance = min(distance * 2, Self.longest) }
        return now + distance
    }

    mutating func reset() {
        distance = Self.first
    }
}
