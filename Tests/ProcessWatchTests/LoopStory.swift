import RunLoopKit

@testable import ProcessWatch

/// What a loop's thread does, on a simulated clock: what looks would read at any moment, and what breakpoints would
/// hit.
struct LoopStory: Sendable {
    enum Being: Hashable, Sendable {
        /// Asleep in the loop's own wait.
        case rest
        /// On a CPU, in a callout.
        case running
        /// Asleep in a call made by a callout; the number distinguishes calls.
        case calling(Int)
        /// Stopped by a signal.
        case stopped
    }

    /// What a breakpoint may hit.
    enum Passage: Hashable, Sendable {
        /// The loop returns from its own wait.
        case turn
        /// Another activation passes the same place: the wait of a loop within a callout.
        case nestedTurn
        /// The callout returns to the loop.
        case callout
        /// A function that the callout called returns to it.
        case inner
    }

    private struct Stretch {
        var being: Being
        var start: MonotonicInstant
        var end: MonotonicInstant
        /// How long the thread has run before, and in how many time slices.
        var ran: Duration
        var slices: Int
    }

    static let start = MonotonicInstant(nanoseconds: 1_000_000_000_000)
    private(set) var end = Self.start
    private var stretches: [Stretch] = []
    private var passages: [(time: MonotonicInstant, passage: Passage)] = []
    private var calls = 0

    // What happens, in sequence.

    /// Rests, then wakes up.
    mutating func rest(_ duration: Duration) {
        stay(.rest, duration)
        pass(.turn)
    }

    /// One callout that computes.
    mutating func compute(_ duration: Duration) {
        stay(.running, duration)
        pass(.callout)
    }

    /// One callout that sleeps in one call.
    mutating func call(_ duration: Duration) {
        stay(.running, .microseconds(20))
        calls += 1
        stay(.calling(calls), duration)
        stay(.running, .microseconds(20))
        pass(.callout)
    }

    /// One callout that sleeps in many short calls.
    mutating func shortCalls(_ duration: Duration, each: Duration, passing passage: Passage? = nil) {
        let last = end + duration
        while end < last {
            stay(.running, .microseconds(20))
            calls += 1
            stay(.calling(calls), each)
            if let passage { pass(passage) }
        }
        pass(.callout)
    }

    /// The beginning of a callout: it calls a function that returns after this time.
    mutating func firstCall(_ duration: Duration) {
        stay(.running, duration)
        pass(.inner)
    }

    /// One callout that calls many functions.
    mutating func callbacks(_ count: Int, each: Duration) {
        for _ in 0..<count {
            stay(.running, each)
            pass(.inner)
        }
        pass(.callout)
    }

    /// Turns that find work each time: the loop passes its wait without sleeping there.
    mutating func turns(_ duration: Duration, each: Duration) {
        let last = end + duration
        while end < last {
            stay(.running, each)
            pass(.callout)
            pass(.turn)
        }
    }

    mutating func stop(_ duration: Duration) { stay(.stopped, duration) }

    private mutating func stay(_ being: Being, _ duration: Duration) {
        let before = stretches.last
        let hasRun = before?.being == .running
        stretches.append(
            Stretch(
                being: being,
                start: end,
                end: end + duration,
                ran: (before?.ran ?? .zero) + (hasRun ? end - (before?.start ?? end) : .zero),
                slices: (before?.slices ?? 0) + (hasRun ? 1 : 0)
            )
        )
        end = end + duration
    }

    private mutating func pass(_ passage: Passage) { passages.append((end, passage)) }

    // What a watcher can read.

    func being(at time: MonotonicInstant) -> Being { stretch(at: time)?.being ?? .rest }

    /// The kernel's counts: they do not change while the thread does not run.
    func schedule(at time: MonotonicInstant) -> Schedule {
        guard let last = last(until: time) else { return Schedule(ran: 0, waited: 0, slices: 0) }
        let isRunning = last.being == .running
        let ran = last.ran + (isRunning ? min(last.end, time) - last.start : .zero)
        let slices = last.slices + (isRunning ? 1 : 0)
        return Schedule(ran: UInt64(ran / .nanoseconds(1)), waited: 0, slices: UInt64(slices))
    }

    /// The first passage of one of these kinds in a span of time.
    func first(_ wanted: Set<Passage>, after armed: MonotonicInstant, until time: MonotonicInstant)
        -> (time: MonotonicInstant, passage: Passage)?
    {
        var low = passages.startIndex
        var high = passages.endIndex
        while low < high {
            let middle = (low + high) / 2
            if passages[middle].time <= armed { low = middle + 1 } else { high = middle }
        }
        return passages[low...].first { wanted.contains($0.passage) }.flatMap { $0.time <= time ? $0 : nil }
    }

    private func stretch(at time: MonotonicInstant) -> Stretch? {
        last(until: time).flatMap { time < $0.end ? $0 : nil }
    }

    /// The last one that has begun by this time.
    private func last(until time: MonotonicInstant) -> Stretch? {
        var low = 0
        var high = stretches.count
        while low < high {
            let middle = (low + high) / 2
            if stretches[middle].start <= time { low = middle + 1 } else { high = middle }
        }
        return low > 0 ? stretches[low - 1] : nil
    }
}
