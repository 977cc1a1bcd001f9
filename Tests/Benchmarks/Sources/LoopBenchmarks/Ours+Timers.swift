import CPeers
import RunLoopKit

extension Ours {
    static func oneShots(_ count: Int) -> Outcome {
        let loop = EventRunLoop.current
        let left = Countdown(count, on: loop)
        return .timing {
            let date = MonotonicInstant.now
            for _ in 0..<count { loop.add(EventTimer(at: date) { _ in left.countOne() }) }
            while !left.isOver { loop.run() }
            return left.done
        }
    }

    /// Timers are added in random order, every other one is cancelled,
    /// the rest are fired. The time until all are due does not count.
    static func randomTimers(_ count: Int) -> Outcome {
        var delays = [UInt64](repeating: 0, count: count)
        unsafe peer_random_delays(&delays, UInt64(count))
        let loop = EventRunLoop.current
        let left = Countdown(count / 2, on: loop)
        var timers: [EventTimer] = []
        timers.reserveCapacity(count)
        let coming = Outcome.timing {
            let start = MonotonicInstant.now.nanoseconds
            for delay in delays {
                let timer = EventTimer(at: MonotonicInstant(nanoseconds: start + delay * 1_000_000)) { _ in
                    left.countOne()
                }
                loop.add(timer)
                timers.append(timer)
            }
            for index in stride(from: 0, to: count, by: 2) { timers[index].invalidate() }
            timers = []
            return (count + 1) / 2
        }
        peer_sleep_until_due()
        return coming + run(loop, left)
    }

    /// Fires of a timer that is immediately due again, one per turn, in addition to idle ones.
    static func fires(_ count: Int, idle: Int) -> Outcome {
        let loop = EventRunLoop.current
        let left = Countdown(count, on: loop)
        let date = MonotonicInstant.now.advanced(by: .seconds(3600))
        let others = (0..<idle).map { EventTimer(at: date.advanced(by: .milliseconds($0))) { _ in } }
        for other in others { loop.add(other) }
        let timer = EventTimer(at: .now, every: .nanoseconds(1)) { _ in left.countOne() }
        loop.add(timer)
        let outcome = run(loop, left)
        timer.invalidate()
        for other in others { other.invalidate() }
        return outcome
    }
}
