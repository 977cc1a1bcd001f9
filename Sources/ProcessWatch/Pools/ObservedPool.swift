import RunLoopKit
import StallDetection
import StallMonitor
import StallReports

/// One task pool of another process. Carries out what ``PoolRule`` decides. Confined to the watcher's thread.
final class ObservedPool {
    let priority: PoolPriority
    private var rule: PoolRule
    /// Its number as a watched thing. Nil while it is not known whether it is used.
    private var watchNumber: Int?
    private var stall: (number: Int, times: StallSpan)?
    private var samples: [StackSample] = []
    private var pace = SamplePace()

    init(_ priority: PoolPriority, width: Int, _ context: WatchContext) {
        self.priority = priority
        rule = PoolRule(tick: context.rule.tick, threshold: context.rule.threshold, width: width)
    }

    var width: Int { rule.width }

    /// Whether jobs of it were seen.
    var isKnown: Bool { watchNumber != nil }

    func maturity(_ workers: [ObservedWorker]) -> MonotonicInstant? { rule.maturity(workers.compactMap(\.present)) }

    func isSuspect(_ workers: [ObservedWorker], at time: MonotonicInstant) -> Bool {
        rule.isSuspect(workers.compactMap(\.present), at: time)
    }

    /// Decides after its workers were looked at.
    ///
    /// - Parameter ended: when workers whose threads have ended left their jobs.
    func look(_ workers: [ObservedWorker], ended: [Int32: ClosedRange<MonotonicInstant>], _ context: WatchContext) {
        let time = MonotonicInstant.now
        let busy = workers.compactMap(\.present)
        if isKnown, stall == nil, !rule.isDue(busy, at: time) { (samples, pace) = ([], SamplePace()) }
        see(rule.unseen(busy, at: time, isKnown: isKnown), workers, time, context)
        if watchNumber == nil, workers.contains(where: \.hasRunJobs) {
            watchNumber = context.reporter.enter(priority.label, type: .taskPool, of: context.process)
            context.tell(.foundPool(processID: context.processID, pool: priority.label, width: width))
        }
        guard isKnown else { return }
        var ends = ended
        for worker in workers { ends[worker.threadID] = worker.end ?? ends[worker.threadID] }
        for order in rule.decide(workers.compactMap(\.present), at: time, ends: ends, lateness: context.lateness) {
            carryOut(order, workers, time, context)
        }
    }

    /// The pool is no longer watched.
    func release(as state: StallState, _ context: WatchContext) {
        if let stall = stall.take() { context.reporter.end(stall.number, rule.finish() ?? stall.times, as: state) }
        if let number = watchNumber.take() { context.reporter.leave(number) }
    }

    /// Takes the stacks that show whether these workers are at jobs.
    private func see(
        _ unseen: [PoolRule.Worker],
        _ workers: [ObservedWorker],
        _ time: MonotonicInstant,
        _ context: WatchContext
    ) {
        guard !unseen.isEmpty, pace.isDue(at: time, context.rule.tick) else { return }
        pace.note(time)
        for worker in unseen.prefix(OutsidePool.workerLimit) {
            guard let observed = workers.first(where: { $0.threadID == worker.threadID }) else { continue }
            let stack = observed.capture(context, within: .milliseconds(20), isSample: true)
            if case .captured(let sample) = stack, samples.count < OutsidePool.sampleLimit { samples.append(sample) }
        }
    }

    private func carryOut(
        _ order: PoolRule.Order,
        _ workers: [ObservedWorker],
        _ time: MonotonicInstant,
        _ context: WatchContext
    ) {
        switch order {
        case .began(let members, let times): begin(members, times, workers, time, context)
        case .continues(let members, let times, let isWorthReporting):
            guard let number = stall?.number else { return }
            stall = (number, times)
            context.reporter.see(number, times)
            if pace.isDue(at: time, context.rule.tick) { keepSamples(members, workers, number, time, context) }
            if isWorthReporting { context.reporter.grow(number, times) }
        case .ended(let times):
            if let number = stall?.number { context.reporter.end(number, times, as: .recovered) }
            (stall, samples, pace) = (nil, [], SamplePace())
        case .unproven:
            let (process, hasBreakpoints) = (context.processID, context.hasBreakpoints)
            context.tell(.unprovenPool(processID: process, pool: priority.label, hasBreakpoints: hasBreakpoints))
        }
    }

    private func begin(
        _ members: [PoolRule.Worker],
        _ times: StallSpan,
        _ workers: [ObservedWorker],
        _ time: MonotonicInstant,
        _ context: WatchContext
    ) {
        guard let watchNumber, let first = members.first else { return }
        pace.note(time)
        let deadline = time + context.rule.threshold
        let rows = members.prefix(OutsidePool.workerLimit).compactMap { member -> OutsidePool.Worker? in
            guard let worker = workers.first(where: { $0.threadID == member.threadID }) else { return nil }
            let patience = max(.milliseconds(5), min(.milliseconds(150), deadline - .now))
            return OutsidePool.Worker(
                threadID: member.threadID,
                since: member.job.since ?? times.latestStart,
                account: worker.account,
                stack: worker.capture(context, within: patience, isSample: false)
            )
        }
        let found = OutsideStall(
            loop: watchNumber,
            threadID: first.threadID,
            awaited: nil,
            category: .blocked,
            span: times,
            detectedAt: time,
            account: rows.first?.account,
            stack: rows.first?.stack ?? .raced,
            samples: samples,
            pool: OutsidePool(width: width, workers: rows)
        )
        samples = []
        stall = context.reporter.begin(found).map { ($0, times) }
    }

    private func keepSamples(
        _ members: [PoolRule.Worker],
        _ workers: [ObservedWorker],
        _ number: Int,
        _ time: MonotonicInstant,
        _ context: WatchContext
    ) {
        pace.note(time)
        for member in members.prefix(OutsidePool.sampleLimit) {
            guard let worker = workers.first(where: { $0.threadID == member.threadID }),
                case .captured(let sample) = worker.capture(context, within: .milliseconds(20), isSample: true)
            else { continue }
            context.reporter.add(sample, to: number)
        }
    }
}
