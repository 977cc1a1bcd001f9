import RunLoopKit
import StackCapture
import StallDiagnosis
import StallDetection

// Task pools. The watchdog watches a pool like a loop, but a stall of a pool concerns all its workers.

extension WatchedLoop {
    /// The workers of a pool that has just been found stalled. Nil for a loop. Their stacks are taken within one tick.
    ///
    /// - Parameter stack: The stack of the first worker, which has already been taken.
    func workers(
        _ place: LoopPlace,
        _ stack: StackOutcome,
        _ span: StallSpan,
        at time: MonotonicInstant,
        with services: inout WatchServices
    ) -> PoolObservation? {
        let pool: TaskPoolHeartbeat
        switch loop {
        case .loop: return nil
        case .pool(let watched): pool = watched
        case .job(let watched): pool = watched.pool
        }
        let jobs = loop.jobs
        // Another job may have become the oldest.
        let first = loop.heartbeat.isStill(at: place) ? stack : .raced
        let waiting = pool.waitingCount
        var found = PoolObservation(
            width: pool.width,
            running: pool.runningCount,
            waiting: waiting > 0 || pool.countsWaiting ? waiting : nil
        )
        let deadline = MonotonicInstant.now + policy.rule.tick
        for (number, job) in jobs.prefix(PoolObservation.workerLimit).enumerated() {
            let outcome = number == 0 ? first : services.stack(of: job, in: pool, by: deadline, at: time)
            let evidence = evidence(
                ofThread: job.threadID,
                leavingOut: span.excluded,
                at: time,
                with: &services
            )
            found.add(job, outcome, tick: policy.rule.tick, evidence: evidence) { [source = services.stackSource] in
                source.waitSite(of: $0, threadID: job.threadID)
            }
        }
        found.locks = services.locks(of: found.stacks, by: deadline)
        return found
    }

    /// Samples the first workers. A failed capture is left out, because the next may succeed.
    func sampleWorkers(
        of pool: TaskPoolHeartbeat,
        _ pulse: LoopHeartbeat.Pulse,
        at time: MonotonicInstant,
        with services: inout WatchServices
    ) {
        let span = timeSinceSample(at: time)
        noteSample(at: time)
        let source = services.stackSource
        for job in (pool.runningJobs ?? []).prefix(PoolObservation.sampleLimit) {
            guard let outcome = services.costs.sample(at: time, { source.stack(of: job, in: pool) }) else { return }
            services.ledger.update { $0.count(outcome) }
            guard let stack = outcome.captured else { continue }
            var sample = StackSample(time: time, stack: stack, threadID: job.threadID, span: span)
            sample.site = source.waitSite(of: stack, threadID: job.threadID)
            if let stall {
                services.notices.add(.sampled(stall.number, sample), mayBeDropped: true)
            } else {
                keep(sample, at: pulse)
            }
        }
    }
}

extension WatchServices {
    fileprivate mutating func stack(
        of job: TaskPoolHeartbeat.RunningJob,
        in pool: TaskPoolHeartbeat,
        by deadline: MonotonicInstant,
        at time: MonotonicInstant
    ) -> StackOutcome {
        guard MonotonicInstant.now < deadline else { return .unavailable("There was no time left to take it.") }
        let outcome = costs.detection(at: time) { [stackSource] in stackSource.stack(of: job, in: pool) }
        if outcome.captured != nil { ledger.update { $0.captures += 1 } }
        return outcome
    }

    fileprivate func locks(of stacks: [StackSample], by deadline: MonotonicInstant) -> [LockFinding] {
        stacks.prefix(PoolObservation.sampleLimit).compactMap { sample in
            guard let id = sample.threadID, MonotonicInstant.now < deadline else { return nil }
            return lock(awaitedBy: id, sample.stack)
        }
    }
}

extension PoolObservation {
    fileprivate mutating func add(
        _ job: TaskPoolHeartbeat.RunningJob,
        _ outcome: StackOutcome,
        tick: Duration,
        evidence: EvidenceWindow?,
        site: (CapturedStack) -> WaitSite?
    ) {
        workers.append(Worker(job: job, evidence: evidence, problem: outcome.problem(raced: Worker.gone)))
        guard let stack = outcome.captured else { return }
        stacks.append(StackSample(time: .now, stack: stack, threadID: job.threadID, site: site(stack), span: tick))
    }
}
