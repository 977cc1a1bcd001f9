import RunLoopKit
import StackCapture
import StallDetection
import StallDiagnosis
import StallReports

// What a look has found, carried out: stacks are taken, and the reporter and the live record are told.

extension WatchdogState {
    mutating func carryOut(
        _ finding: StallFinding,
        on index: Int,
        _ pulse: LoopHeartbeat.Pulse,
        at time: MonotonicInstant
    ) {
        let category = finding.category
        switch finding.decision {
        case .none: break
        case .began(let span):
            noticeCrash()
            if isCrashing || dismisses(category, index, span, pulse, at: time) { return }
            watchList[index].noteSample(at: time)
            let (source, loop, place) = (stackSource, watchList[index].loop, watchList[index].place(at: pulse))
            let stack = pulse.isAtRest ? .raced : costs.detection(at: time) { source.stack(of: loop, at: place) }
            if category == .blocked, dismissesWait(index, stack, at: time) { return }
            begin(category, span, index, pulse, stack, at: time)
        case .grew(let span):
            if watchList[index].outsideDelay?.until != time { followOutsideDelay(index, at: time) }
            if watchList[index].wantsSample(at: time, pulse) { sample(index, pulse, at: time) }
            guard let stall = watchList[index].stall else { return }
            tellBusyTime(span, index, hasEnded: false)
            notices.add(.grew(stall.number, span), mayBeDropped: true)
        case .ended(let span):
            end(span, index, at: time)
        case .passed(let span, let pulse):
            begin(category, span, index, pulse, .raced, at: time)
            end(span, index, at: time)
        }
    }

    private func tellBusyTime(_ span: StallSpan, _ index: Int, hasEnded: Bool) {
        guard let stall = watchList[index].stall else { return }
        let busy = watchList[index].busyTime(stall.category, span, hasEnded: hasEnded)
        if let busy { notices.add(.counted(stall.number, busy)) }
    }

    /// Looks at what the thread is at. A capture that fails is left out: the next one may not.
    mutating func sample(_ index: Int, _ pulse: LoopHeartbeat.Pulse, at time: MonotonicInstant) {
        if let pool = watchList[index].loop.pool { return sampleWorkers(of: pool, index, pulse, at: time) }
        watchList[index].noteSample(at: time)
        let (source, loop, place) = (stackSource, watchList[index].loop, watchList[index].place(at: pulse))
        guard let stack = costs.sample(at: time, { source.stack(of: loop, at: place) }) else { return }
        ledger.update { $0.count(stack) }
        guard
            var captured = stack.captured.map({ stack in
                StackSample(
                    time: stack.copiedAt.map(MonotonicInstant.init(nanoseconds:)) ?? time,
                    stack: stack,
                    site: site(index, place, .captured(stack))
                )
            })
        else { return }
        if let stall = watchList[index].stall {
            if watchList[index].standstill?.lockIsKnown == false { captured.lock = lock(index, pulse, stack) }
            notices.add(.sampled(stall.number, captured), mayBeDropped: true)
        } else {
            watchList[index].keep(captured, at: pulse)
        }
    }

    private mutating func begin(
        _ category: StallCategory,
        _ span: StallSpan,
        _ index: Int,
        _ pulse: LoopHeartbeat.Pulse,
        _ stack: StackOutcome,
        at time: MonotonicInstant
    ) {
        stalls += 1
        watchList[index].stall = (stalls, category, pulse)
        let samples = watchList[index].takeSamples(category, from: span.earliestStart, at: pulse)
        let watched = watchList[index]
        ledger.update { $0.count(stack) }
        // Before what takes its time.
        let site = site(index, watched.place(at: pulse), stack)
        let evidence = evidence(of: (stalls, category, pulse), index, span, at: time)
        let pool = workers(index, watched.place(at: pulse), stack, span, at: time)
        let (lock, others) = (lock(index, pulse, stack), others(index, stack))
        let observation = StallObservation(
            number: stalls,
            reportID: .make(),
            watch: watched.identity,
            loop: watched.loop,
            category: category,
            rule: watched.policy.rule,
            pulse: pulse,
            span: span,
            detectedAt: time,
            threadID: pool?.workers.first?.job.threadID ?? watched.loop.thread?.id,
            evidence: evidence,
            stack: stack,
            samples: samples,
            pool: pool,
            busy: watched.busyTime(category, span, hasEnded: false),
            site: site,
            others: others,
            lock: lock,
            watchdogCPU: watched.standstill?.watchdogCPU,
            waitSet: watched.loop.waitSet(at: pulse)
        )
        live.begin(observation)
        ledger.update { [number = stalls] in $0.standing[number] = (watched.identity.name, span.earliestStart) }
        notices.add(.began(observation))
    }

    /// Where the loop's thread waits, if it has not moved since its stack was taken: a descriptor's number may be another's by then.
    private func site(_ index: Int, _ place: LoopPlace, _ stack: StackOutcome) -> WaitSite? {
        let loop = watchList[index].loop
        let site = stack.captured.flatMap { stackSource.waitSite(of: $0, threadID: loop.thread?.id) }
        return place.isThat(of: loop.heartbeat) ? site : nil
    }

    /// Whom the loop's thread waits for.
    private mutating func lock(_ index: Int, _ pulse: LoopHeartbeat.Pulse, _ stack: StackOutcome) -> LockFinding? {
        // Of a pool it is found out for each worker.
        guard stack.captured != nil, case .loop = watchList[index].loop else { return nil }
        let (source, loop, place) = (stackSource, watchList[index].loop, watchList[index].place(at: pulse))
        guard
            let found = costs.measure({ source.lock(holding: loop, at: place, stack) }, costs: { $0?.costs ?? [] })
        else { return nil }
        ledger.update { $0.captures += found.costs.count }
        watchList[index].standstill?.lockIsKnown = true
        return found
    }

    /// What the other threads are at, if that is asked for.
    private mutating func others(_ index: Int, _ stack: StackOutcome) -> ThreadStacks? {
        guard stack.captured != nil, stackSource.capturesAllThreads else { return nil }
        return otherThreads(index, within: watchList[index].policy.rule.tick)
    }

    /// What the other threads are at.
    mutating func otherThreads(_ index: Int, within time: Duration) -> ThreadStacks? {
        let (source, thread) = (stackSource, watchList[index].loop.thread)
        let found = costs.measure(
            { source.otherThreads(than: thread?.id, within: time) },
            costs: { $0?.costs ?? [] }
        )
        if let found { ledger.update { $0.captures += found.costs.count } }
        return found
    }

    private mutating func end(_ span: StallSpan, _ index: Int, at time: MonotonicInstant) {
        guard let stall = watchList[index].stall else { return }
        tellBusyTime(span, index, hasEnded: true)
        sampleLate(stall.number, span, index)
        watchList[index].stall = nil
        live.end(stall.number, span)
        ledger.update { $0.standing[stall.number] = nil }
        notices.add(.ended(stall.number, span, evidence(of: stall, index, span, at: time)))
    }

    /// A thread that got no processor could not show its stack. If it has come to run since, it has.
    private mutating func sampleLate(_ number: Int, _ span: StallSpan, _ index: Int) {
        let (source, loop) = (stackSource, watchList[index].loop)
        let found = costs.measure(
            { source.lateStack(of: loop, since: span.latestStart) },
            costs: { $0.map { [$0.cost] } ?? [] }
        )
        guard let found, let copied = found.copiedAt.map(MonotonicInstant.init(nanoseconds:)),
            copied <= span.earliestEnd
        else { return }
        ledger.update { $0.captures += 1 }
        notices.add(.sampled(number, StackSample(time: copied, stack: found)), mayBeDropped: true)
    }

    /// Closes a stall under way because nobody will look at the loop. One whose loop has ended is over; of the others nobody knows.
    mutating func abandon(_ index: Int, at time: MonotonicInstant) {
        let findings = watchList[index].abandon(at: time)
        countDismissal(index, nil)
        for finding in findings {
            guard case .ended(let span) = finding.decision else { continue }
            guard !watchList[index].loop.heartbeat.hasEnded else { return end(span, index, at: time) }
            guard let stall = watchList[index].stall else { return }
            tellBusyTime(span, index, hasEnded: true)
            watchList[index].stall = nil
            live.end(stall.number, span)
            ledger.update { $0.standing[stall.number] = nil }
            notices.add(.abandoned(stall.number, span, evidence(of: stall, index, span, at: time)))
        }
    }

    /// The kernel's account of one of the threads of what stands still.
    mutating func evidence(
        of threadID: Int32,
        _ index: Int,
        _ span: StallSpan,
        at time: MonotonicInstant
    ) -> EvidenceWindow? {
        guard let standstill = watchList[index].standstill else { return nil }
        var window = standstill.evidence(threadID: threadID, at: time)?.leavingOut(span.unproven)
        window?.supply = supply.window(since: standstill.supply, threadID: threadID, at: time)
        return window
    }

    private mutating func evidence(
        of stall: WatchedLoop.Stall,
        _ index: Int,
        _ span: StallSpan,
        at time: MonotonicInstant
    ) -> EvidenceWindow? {
        let watched = watchList[index]
        // The evidence reaches to this look; the standstill was over before.
        let afterEnd = stall.category == .blocked ? max(.zero, time - span.latestEnd) : .zero
        var window = watched.evidence(stall.category, at: time, of: stall.pulse)?.leavingOut(span.unproven + afterEnd)
        if window != nil, let id = watched.loop.thread?.id {
            window?.supply = supply.window(since: watched.standstill?.supply, threadID: id, at: time)
        }
        return window
    }
}

extension ThreadStacks {
    fileprivate var costs: [CapturedStack.Cost] { groups.flatMap { $0.threads.map(\.cost) } }
}
