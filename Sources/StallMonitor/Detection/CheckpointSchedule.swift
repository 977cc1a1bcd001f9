import RunLoopKit

/// When the run record is brought up to date: soon after the start, then at growing distances, half a minute at most.
struct CheckpointSchedule {
    private var next: MonotonicInstant
    private var distance: Duration = .milliseconds(500)

    init(start: MonotonicInstant) {
        next = start + distance
    }

    mutating func isDue(at time: MonotonicInstant) -> Bool {
        guard time >= next else { return false }
        distance = min(distance * 2, .seconds(30))
        next = time + distance
        return true
    }
}
