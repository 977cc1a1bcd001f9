import RunLoopKit
import StallDiagnosis

/// How long limits (cpu.max, cpu.cfs_quota_us) kept the process's control groups from the processors, since it was last asked.
struct ThrottleMeter {
    private let location: SupplyLocation
    private var groups: [SupplyFiles.LimitedGroup] = []
    /// Of each group; nil where it cannot be read.
    private var counts: [ProcessorSupply.Throttling?] = []
    private var begun: MonotonicInstant

    /// A file is read for each limit, so not at every look of a fine tick.
    private static let shortest = Duration.milliseconds(45)

    init(_ location: SupplyLocation, at time: MonotonicInstant) {
        self.location = location
        begun = time
        count(at: time)
    }

    /// Counts from now on, or from a moment ago if it has begun only then.
    mutating func begin(at time: MonotonicInstant) {
        if time - begun >= Self.shortest { count(at: time) }
    }

    /// Of the group that was held longest. The kernel adds up what each processor of the group was held: in wall time it is no more than
    /// the periods in which there was a hold.
    mutating func throttledSinceBegun(at time: MonotonicInstant) -> Duration {
        let before = self
        count(at: time)
        // Under other limits what is counted is another's.
        guard groups == before.groups else { return .zero }
        let held = zip(groups, zip(counts, before.counts)).map { group, counts -> Duration in
            guard let now = counts.0, let earlier = counts.1 else { return .zero }
            let sum = now.throttledNanoseconds.grown(since: earlier.throttledNanoseconds)
            let periods = now.throttledPeriods.grown(since: earlier.throttledPeriods)
            return min(.nanoseconds(Int64(clamping: sum)), group.period * Int(clamping: min(periods, 1_000_000)))
        }
        return held.max() ?? .zero
    }

    private mutating func count(at time: MonotonicInstant) {
        groups = location.found?.limited ?? []
        counts = groups.map(\.throttling)
        begun = time
    }
}
