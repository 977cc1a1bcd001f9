import RunLoopKit
import StallDetection

/// Decides whether a task pool of another process is starved: as many workers as the pool is wide have each been at one job for the
/// threshold. Pure: a function of what ``WorkerRule`` says about the workers, and when.
struct PoolRule: Sendable {
    let tick: Duration
    let threshold: Duration
    /// The number of jobs that the pool runs at once.
    let width: Int
    private(set) var stall: Stall?
    private var isUnproven = false

    /// A worker that does not rest.
    struct Worker: Hashable, Sendable {
        var threadID: Int32
        var job: WorkerRule.Job
    }

    struct Stall: Hashable, Sendable {
        /// The jobs that hold the pool up. Those that are over are no longer among them.
        var members: [Worker]
        var began: ClosedRange<MonotonicInstant>
        /// How much of the time since then does not count, and the part of it in which the watcher did not run.
        var excluded: Duration
        var unobserved: Duration
        var lastSeen: MonotonicInstant
        /// The length at which the stall is reported again.
        var nextReport: Duration

        func length(at time: MonotonicInstant) -> Duration { max(.zero, time - began.upperBound - excluded) }
    }

    enum Order: Hashable, Sendable {
        /// The workers that hold the pool up, the one that has been at its job for longest first.
        case began([Worker], StallSpan)
        case continues([Worker], StallSpan, isWorthReporting: Bool)
        case ended(StallSpan)
        /// No worker rests, and nothing shows whether they go from job to job. Once.
        case unproven
    }

    init(tick: Duration, threshold: Duration, width: Int) {
        (self.tick, self.threshold, self.width) = (tick, threshold, max(1, width))
    }

    /// A look is always a little late.
    private var slack: Duration { tick / 25 }

    /// The workers whose stacks are needed: no worker may be free, and it is not known yet whether they are at jobs of the pool.
    ///
    /// - Parameter isKnown: whether it is known that the pool exists. If not, one stack of each worker is needed to find out.
    func unseen(_ workers: [Worker], at time: MonotonicInstant, isKnown: Bool) -> [Worker] {
        if isDue(workers, at: time) { return provenLong(workers, time).filter { $0.job.shows == nil } }
        let doubtful = workers.filter { $0.job.shows != .other }
        guard !isKnown, doubtful.count >= width else { return [] }
        return doubtful.filter { $0.job.shows == nil && time - $0.job.earliest >= threshold }
    }

    /// Whether one of the workers has been at one job for two ticks: the pool may start another thread.
    func isSuspect(_ workers: [Worker], at time: MonotonicInstant) -> Bool { !provenLong(workers, time).isEmpty }

    /// Whether that holds for as many workers as the pool is wide.
    func isDue(_ workers: [Worker], at time: MonotonicInstant) -> Bool { provenLong(workers, time).count >= width }

    private func provenLong(_ workers: [Worker], _ time: MonotonicInstant) -> [Worker] {
        proven(workers.filter { $0.job.shows != .other }).filter { $0.job.length(at: time) + slack >= tick * 2 }
    }

    /// When the pool will count as starved if no worker becomes free before. Nil if nothing is proven.
    func maturity(_ workers: [Worker]) -> MonotonicInstant? {
        let proven = proven(workers.filter { $0.job.shows != .other })
        guard stall == nil, proven.count >= width, let since = proven[width - 1].job.since else { return nil }
        return since + threshold + proven[width - 1].job.excluded
    }

    /// - Parameters:
    ///   - workers: those that do not rest.
    ///   - ends: for threads that have left a job since the last look: when, as exactly as it is known.
    ///   - lateness: by how much the watcher was late for this look.
    mutating func decide(
        _ workers: [Worker],
        at time: MonotonicInstant,
        ends: [Int32: ClosedRange<MonotonicInstant>] = [:],
        lateness: Duration = .zero
    ) -> [Order] {
        if let stall { return follow(stall, workers, time, ends, lateness) }
        let proven = proven(workers.filter { $0.job.shows == .job }).filter {
            $0.job.length(at: time) + slack >= threshold
        }
        if proven.count >= width { return [begin(proven, time)] }
        let busy = workers.filter { $0.job.shows != .other && time - $0.job.earliest >= threshold }
        let isDoubtful = busy.count >= width && busy.count(where: { $0.job.since != nil }) < width
        guard isDoubtful, !isUnproven else { return [] }
        isUnproven = true
        return [.unproven]
    }

    /// The watching ends.
    mutating func finish() -> StallSpan? {
        stall.take().map { $0.times(until: $0.lastSeen...$0.lastSeen) }
    }

    /// Those for which there is a proof, the one that has been at its job for longest first.
    private func proven(_ workers: [Worker]) -> [Worker] {
        workers.filter { $0.job.since != nil }.sorted { one, other in
            let (a, b) = (one.job.since ?? .distantFuture, other.job.since ?? .distantFuture)
            return (a, one.threadID) < (b, other.threadID)
        }
    }

    private mutating func begin(_ proven: [Worker], _ time: MonotonicInstant) -> Order {
        // It began when the last free worker took its job.
        let taken = proven.prefix(width)
        let latest = taken.compactMap(\.job.since).max() ?? time
        let earliest = taken.map(\.job.earliest).max() ?? latest
        var new = Stall(
            members: proven,
            began: min(earliest, latest)...latest,
            excluded: taken.map(\.job.excluded).max() ?? .zero,
            unobserved: taken.map(\.job.unobserved).max() ?? .zero,
            lastSeen: time,
            nextReport: .zero
        )
        new.nextReport = new.length(at: time) * 2
        stall = new
        return .began(proven, new.times(until: time...time))
    }

    private mutating func follow(
        _ old: Stall,
        _ workers: [Worker],
        _ time: MonotonicInstant,
        _ ends: [Int32: ClosedRange<MonotonicInstant>],
        _ lateness: Duration
    ) -> [Order] {
        var now = old
        let present = Dictionary(workers.map { ($0.threadID, $0.job) }) { first, _ in first }
        now.members = old.members.compactMap { member in
            guard let job = present[member.threadID], job.number == member.job.number else { return nil }
            return Worker(threadID: member.threadID, job: job)
        }
        guard now.members.count >= width else {
            stall = nil
            return [.ended(times(of: old, leaving: now.members, time, ends, lateness))]
        }
        now.lastSeen = time
        now.excluded = max(old.excluded, now.members.map(\.job.excluded).max() ?? .zero)
        now.unobserved = max(old.unobserved, now.members.map(\.job.unobserved).max() ?? .zero)
        let length = now.length(at: time)
        let isWorthReporting = length >= old.nextReport
        if isWorthReporting { now.nextReport = min(length * 2, length + .seconds(10)) }
        stall = now
        return [.continues(now.members, now.times(until: time...time), isWorthReporting: isWorthReporting)]
    }

    /// The span of a stall that is over, because fewer workers than the pool is wide are still at their jobs.
    ///
    /// - Parameter staying: Those that still are.
    private func times(
        of old: Stall,
        leaving staying: [Worker],
        _ time: MonotonicInstant,
        _ ends: [Int32: ClosedRange<MonotonicInstant>],
        _ lateness: Duration
    ) -> StallSpan {
        let left = old.members.filter { member in !staying.contains { $0.threadID == member.threadID } }
        let spans = left.map { ends[$0.threadID] ?? old.lastSeen...max(old.lastSeen, time) }
            .sorted { ($0.upperBound, $0.lowerBound) < ($1.upperBound, $1.lowerBound) }
        // With more workers than the pool is wide, the first that leaves does not make one free.
        let index = min(max(0, old.members.count - width), spans.count - 1)
        let end = spans.isEmpty ? old.lastSeen...time : spans[index]
        // After the end it does not matter that the look is late.
        let missed = max(.zero, lateness - max(.zero, time - end.upperBound))
        var last = old
        (last.excluded, last.unobserved) = (old.excluded + missed, old.unobserved + missed)
        return last.times(until: end)
    }
}

extension PoolRule.Stall {
    fileprivate func times(until end: ClosedRange<MonotonicInstant>) -> StallSpan {
        let latest = max(end.upperBound, began.upperBound)
        var span = StallSpan(
            earliestStart: began.lowerBound,
            latestStart: began.upperBound,
            earliestEnd: min(max(end.lowerBound, began.upperBound), latest),
            latestEnd: latest,
            excluded: excluded
        )
        span.unobserved = unobserved
        return span
    }
}
