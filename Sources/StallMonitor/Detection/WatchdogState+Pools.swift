import RunLoopKit
import StackCapture
import StallDiagnosis
import StallReports

// Task pools. As a thing that stands a pool is like any other; but it is all of its workers that stand.

extension WatchdogState {
    /// The workers of the pool that has just been found to stand; nil for a loop. As long as a tick at most is given to their stacks.
    ///
    /// - Parameter stack: that of the first one, which is taken already.
    mutating func workers(
        _ index: Int,
        _ place: LoopPlace,
        _ stack: StackOutcome,
        _ span: StallSpan,
        at time: MonotonicInstant
    ) -> PoolObservation? {
        let jobs: [TaskPoolHeartbeat.RunningJob]
        let pool: TaskPoolHeartbeat
        switch watchList[index].loop {
        case .loop: return nil
        case .pool(let watched): (pool, jobs) = (watched, watched.runningJobs ?? [])
        case .job(let watched): (pool, jobs) = (watched.pool, watched.pool.oldestJob.map { [$0] } ?? [])
        }
        // Another job can be the oldest by now.
        let first = place.isThat(of: watchList[index].loop.heartbeat) ? stack : .raced
        let waiting = pool.waitingCount
        var found = PoolObservation(
            width: pool.width,
            running: pool.runningCount,
            waiting: waiting > 0 || pool.countsWaiting ? waiting : nil,
            workers: [],
            stacks: [],
            locks: []
        )
        let deadline = MonotonicInstant.now + watchList[index].policy.rule.tick
        for (number, job) in jobs.prefix(PoolObservation.workerLimit).enumerated() {
            let outcome = number == 0 ? first : stackOfWorker(job, in: pool, by: deadline, at: time)
            found.add(job, outcome, watchList[index], evidence: evidence(of: job.threadID, index, span, at: time)) {
                [stackSource] in
                stackSource.waitSite(of: $0, threadID: job.threadID)
            }
        }
        found.locks = locks(of: found.stacks, by: deadline)
        let captures = found.costs.count
        ledger.update { $0.captures += captures }
        return found
    }

    private mutating func stackOfWorker(
        _ job: TaskPoolHeartbeat.RunningJob,
        in pool: TaskPoolHeartbeat,
        by deadline: MonotonicInstant,
        at time: MonotonicInstant
    ) -> StackOutcome {
        guard MonotonicInstant.now < deadline else { return .unavailable("There was no time left to take it.") }
        let source = stackSource
        return costs.detection(at: time) { source.stack(of: job, in: pool) }
    }

    private mutating func locks(of stacks: [StackSample], by deadline: MonotonicInstant) -> [LockFinding] {
        let source = stackSource
        return stacks.prefix(PoolObservation.sampleLimit).compactMap { sample in
            guard let id = sample.threadID, MonotonicInstant.now < deadline else { return nil }
            return costs.measure({ source.lock(holding: id, sample.stack) }, costs: { $0?.costs ?? [] })
        }
    }

    /// Looks at what the first workers are at. A capture that fails is left out: the next one may not.
    mutating func sampleWorkers(
        of pool: TaskPoolHeartbeat,
        _ index: Int,
        _ pulse: LoopHeartbeat.Pulse,
        at time: MonotonicInstant
    ) {
        let span = watchList[index].timeSinceSample(at: time)
        watchList[index].noteSample(at: time)
        for job in (pool.runningJobs ?? []).prefix(PoolObservation.sampleLimit) {
            let source = stackSource
            guard let outcome = costs.sample(at: time, { source.stack(of: job, in: pool) }) else { return }
            ledger.update { $0.count(outcome) }
            guard let stack = outcome.captured else { continue }
            var sample = StackSample(time: time, stack: stack, threadID: job.threadID, span: span)
            sample.site = stackSource.waitSite(of: stack, threadID: job.threadID)
            if let stall = watchList[index].stall {
                notices.add(.sampled(stall.number, sample), mayBeDropped: true)
            } else {
                watchList[index].keep(sample, at: pulse)
            }
        }
    }
}

extension PoolObservation {
    fileprivate mutating func add(
        _ job: TaskPoolHeartbeat.RunningJob,
        _ outcome: StackOutcome,
        _ watched: WatchedLoop,
        evidence: EvidenceWindow?,
        site: (CapturedStack) -> WaitSite?
    ) {
        var worker = Worker(job: job, evidence: evidence)
        switch outcome {
        case .captured(let stack):
            stacks.append(
                StackSample(
                    time: .now,
                    stack: stack,
                    threadID: job.threadID,
                    site: site(stack),
                    span: watched.policy.rule.tick
                )
            )
        case .failed(let error): worker.problem = error.description
        case .raced: worker.problem = "The job was over before it was looked at."
        case .unavailable(let reason): worker.problem = reason
        }
        workers.append(worker)
    }
}

extension StackSource {
    /// The stack of a worker, if it is still at the job once it is taken.
    func stack(of job: TaskPoolHeartbeat.RunningJob, in pool: TaskPoolHeartbeat) -> StackOutcome {
        guard let capturer else { return stackless }
        let result = capturer.capture(threadID: job.threadID)
        guard pool.runningJobs?.contains(job) == true else { return .raced }
        switch result {
        case .success(let stack): return .captured(stack)
        case .failure(let error): return .failed(error)
        }
    }

    /// Whom a thread waits for, if its stack was just captured in futex(2).
    func lock(holding threadID: Int32, _ stack: CapturedStack) -> LockFinding? {
        guard followsLocks, let capturer else { return nil }
        return LockProbe(capturer: capturer).follow(threadID, capturedIn: stack.systemCall)
    }
}
