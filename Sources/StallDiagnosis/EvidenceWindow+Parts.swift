import RunLoopKit
import StallReports

extension EvidenceWindow {
    /// The time on a CPU, parted by what the kernel's ticks say of program and kernel. Nil when it had no tick to say it with.
    package var cpuParts: (user: Duration, system: Duration)? {
        guard let user = Self.grown(before.userTicks, after.userTicks),
            let system = Self.grown(before.systemTicks, after.systemTicks), user > 0 || system > 0
        else { return nil }
        // In whole nanoseconds, as a report has them: the two add up.
        let userTime = Duration.nanoseconds((cpu * (Double(user) / (Double(user) + Double(system)))).nanoseconds)
        return (userTime, cpu - userTime)
    }

    /// Time waited for block devices. Nil where the kernel does not count it, or the thread has never waited for one.
    package var blockIO: Duration? {
        guard after.blockIOTicks != 0 else { return nil }
        return Self.grown(before.blockIOTicks, after.blockIOTicks).map {
            .nanoseconds(Int64(clamping: $0.multipliedSaturated(by: 10_000_000)))
        }
    }

    /// What is neither time on a CPU nor in the queue for one.
    package var waited: Duration { max(.zero, length - cpu - runDelay) }

    private static func grown(_ before: UInt64?, _ after: UInt64?) -> UInt64? {
        guard let before, let after else { return nil }
        return after.grown(since: before)
    }
}
