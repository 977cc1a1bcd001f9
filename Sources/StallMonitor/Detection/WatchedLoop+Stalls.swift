import RunLoopKit
import StackCapture
import StallDetection
import StallDiagnosis
import StallReports

// How findings of a look are handled: stacks are taken, and the reporter and the live record are informed.

extension WatchedLoop {
    /// Where the loop was at the latest look.
    var pulse: LoopHeartbeat.Pulse { lastLook?.pulse ?? loop.heartbeat.pulse }

    /// Called after each look, before its findings are handled.
    func follow(_ findings: [StallFinding], at time: MonotonicInstant, with services: inout WatchServices) {
        if standstill?.sampled.wantsSupply == true { standstill?.sampled.supply = services.supply.reading(at: time) }
        if busySpan?.sampled.wantsSupply == true { busySpan?.sampled.supply = services.supply.reading(at: time) }
        if policy.dismissal != nil || outsideDelay != nil { countDismissal(pulse, with: services) }
        if outsideDelay != nil { followOutsideDelay(at: time, with: services) }
        if findings.isEmpty, wantsSample(at: time, pulse) { sample(at: time, with: &services) }
    }

    func carryOut(_ finding: StallFinding, at time: MonotonicInstant, with services: inout WatchServices) {
        let category = finding.category
        switch finding.decision {
        case .none: break
        case .candidate(let span): judge(category, span, at: time, with: &services)
        case .grew(let span): grow(span, at: time, with: &services)
        case .ended(let span): end(span, as: .recovered, at: time, with: &services)
        case .passed(let span, let pulse):
            begin(category, span, pulse, .raced, isOver: true, at: time, with: &services)
            end(span, as: .recovered, at: time, with: &services)
        }
    }

    /// Called after each look: writes the length of the stall into the live record, which outlives the process, and into the ledger, for health
    /// probes.
    func noteLength(at time: MonotonicInstant, with services: inout WatchServices) {
        guard let stall, let span = policy.span(of: stall.category, at: time) else { return }
        services.live.see(stall.number, span, at: time)
        services.ledger.update { $0.ongoing[stall.number]?.lasting = span.length }
        if services.lastResort != nil, stall.category == .blocked {
            considerLastResort(stall.number, span, at: time, with: &services)
        }
    }

    // MARK: - Begin

    /// Confirms a candidate, and begins its stall, or dismisses it.
    private func judge(
        _ category: StallCategory,
        _ span: StallSpan,
        at time: MonotonicInstant,
        with services: inout WatchServices
    ) {
        if dismissIfStopped(category, span, at: time, with: services) { return }
        if category == .blocked, dismissIfLeft(at: time) { return }
        noteSample(at: time)
        let stack = pulse.isAtRest ? .raced : services.detection(of: loop, at: place(at: pulse), time)
        if category == .blocked, dismissIfInWait(stack, at: time, with: services) { return }
        policy.confirm(category)
        begin(category, span, pulse, stack, at: time, with: &services)
    }

    private func begin(
        _ category: StallCategory,
        _ span: StallSpan,
        _ pulse: LoopHeartbeat.Pulse,
        _ stack: StackOutcome,
        isOver: Bool = false,
        at time: MonotonicInstant,
        with services: inout WatchServices
    ) {
        services.stalls += 1
        let stall = (number: services.stalls, category: category, pulse: pulse)
        self.stall = stall
        let samples = takeSamples(category, from: span.earliestStart, at: pulse)
        services.ledger.update { $0.count(stack) }
        let observation = observe(stall, span, stack, samples, isOver: isOver, at: time, with: &services)
        services.live.begin(observation)
        // A long job is no stall of its pool, and must not make a supervisor restart the server.
        if observation.kind != .longJob {
            services.ledger.update { [name = identity.name] in $0.ongoing[stall.number] = (name, span.length) }
        }
        services.notices.add(.began(observation))
    }

    /// What there is to see of a stall that has just begun.
    private func observe(
        _ stall: Stall,
        _ span: StallSpan,
        _ stack: StackOutcome,
        _ samples: [StackSample],
        isOver: Bool,
        at time: MonotonicInstant,
        with services: inout WatchServices
    ) -> StallObservation {
        let place = place(at: stall.pulse)
        // The order matters: the loop may move on at any moment, and later steps take longer.
        let site = site(place, stack, with: services)
        var evidence = evidence(of: stall, span, at: time, with: &services)
        // The counts include what the thread has done since.
        if isOver { evidence = evidence?.conclusive(readLateBy: time - span.earliestEnd) }
        let pool = workers(place, stack, span, at: time, with: &services)
        let lock = lock(place, stack, with: services)
        return StallObservation(
            number: stall.number,
            reportID: .make(),
            watch: identity,
            loop: loop,
            category: stall.category,
            rule: policy.rule,
            pulse: stall.pulse,
            span: span,
            detectedAt: time,
            threadID: pool?.workers.first?.job.threadID ?? loop.thread?.id,
            evidence: evidence,
            stack: stack,
            samples: samples,
            pool: pool,
            busy: busyTime(stall.category, span, hasEnded: false),
            site: site,
            others: others(stack, with: &services),
            lock: lock,
            watchdogCPU: standstill?.watchdogCPU,
            awaited: loop.awaited(at: stall.pulse),
            lengthsBefore: lengthsBefore
        )
    }

    /// Where the loop's thread waits. Nil if it has moved since its stack was taken: a descriptor's number may belong to another
    /// file then.
    private func site(_ place: LoopPlace, _ stack: StackOutcome, with services: WatchServices) -> WaitSite? {
        let site = stack.captured.flatMap { services.stackSource.waitSite(of: $0, threadID: loop.thread?.id) }
        return loop.heartbeat.isStill(at: place) ? site : nil
    }

    /// The owners of the lock that the loop's thread waits for. Nil for a pool, whose workers each have their own.
    private func lock(_ place: LoopPlace, _ stack: StackOutcome, with services: WatchServices) -> LockFinding? {
        guard stack.captured != nil, case .loop = loop else { return nil }
        let found = services.lock(awaitedBy: loop, at: place, stack)
        if found != nil { standstill?.lockIsKnown = true }
        return found
    }

    /// The stacks of the other threads, if the configuration requests them.
    private func others(_ stack: StackOutcome, with services: inout WatchServices) -> ThreadStacks? {
        guard stack.captured != nil, services.stackSource.capturesAllThreads else { return nil }
        return services.otherThreads(than: loop.thread?.id, within: policy.rule.tick)
    }

    // MARK: - Grow

    private func grow(_ span: StallSpan, at time: MonotonicInstant, with services: inout WatchServices) {
        if outsideDelay?.until != time { followOutsideDelay(at: time, with: services) }
        if wantsSample(at: time, pulse) { sample(at: time, with: &services) }
        guard let stall else { return }
        reportBusyTime(span, hasEnded: false, with: services)
        services.notices.add(.grew(stall.number, span), mayBeDropped: true)
    }

    /// Takes a stack sample. A failed one is left out, because the next may succeed.
    private func sample(at time: MonotonicInstant, with services: inout WatchServices) {
        if let pool = loop.pool { return sampleWorkers(of: pool, pulse, at: time, with: &services) }
        noteSample(at: time)
        let place = place(at: pulse)
        guard let stack = services.sample(of: loop, at: place, time) else { return }
        services.ledger.update { $0.count(stack) }
        guard let captured = stack.captured else { return }
        var sample = StackSample(
            time: captured.copied ?? time,
            stack: captured,
            site: site(place, stack, with: services)
        )
        guard let stall else { return keep(sample, at: pulse) }
        if standstill?.lockIsKnown == false { sample.lock = lock(place, stack, with: services) }
        services.notices.add(.sampled(stall.number, sample), mayBeDropped: true)
    }

    private func reportBusyTime(_ span: StallSpan, hasEnded: Bool, with services: WatchServices) {
        guard let stall, let busy = busyTime(stall.category, span, hasEnded: hasEnded) else { return }
        services.notices.add(.counted(stall.number, busy))
    }

    // MARK: - End

    private func end(
        _ span: StallSpan,
        as state: StallState,
        at time: MonotonicInstant,
        with services: inout WatchServices
    ) {
        guard let stall else { return }
        reportBusyTime(span, hasEnded: true, with: services)
        // A thread without a processor could not copy its stack in time. If it has run since, it has left a copy.
        if state == .recovered, let late = services.lateStack(of: loop, span) {
            let sample = StackSample(time: late.copied ?? time, stack: late)
            services.notices.add(.sampled(stall.number, sample), mayBeDropped: true)
        }
        // Another turn may have passed since, to which these do not belong.
        (self.stall, turnCallouts) = (nil, nil)
        services.lastResort?.forget(stall.number)
        services.live.end(stall.number, span, as: state)
        services.ledger.update { $0.ongoing[stall.number] = nil }
        let evidence = evidence(of: stall, span, at: time, with: &services)
        let conclusive = evidence?.conclusive(readLateBy: time - span.earliestEnd)
        services.notices.add(.ended(stall.number, span, conclusive, state))
    }

    /// Closes the stall because the loop is no longer looked at. If the loop itself has ended, the stall has ended too; otherwise
    /// its end is unknown.
    func abandon(at time: MonotonicInstant, with services: inout WatchServices) {
        let findings = close(at: time)
        countDismissal(nil, with: services)
        for finding in findings {
            guard case .ended(let span) = finding.decision else { continue }
            end(span, as: loop.heartbeat.hasEnded ? .recovered : .abandoned, at: time, with: &services)
        }
    }
}
