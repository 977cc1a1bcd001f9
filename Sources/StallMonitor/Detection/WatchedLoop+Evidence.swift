import RunLoopKit
import StallDetection
import StallDiagnosis
import StallReports

// What is known of the time of a stall: stack samples, the kernel's counts, turns and callouts.

extension WatchedLoop {
    // MARK: - Stack samples

    /// The loop's state at `pulse`: whether it stands still or is busy.
    func place(at pulse: LoopHeartbeat.Pulse) -> LoopPlace {
        // The standstill of an earlier callout is kept until its stall was reported.
        guard let standstill, let lastLook, standstill.isOf(pulse, lastLook.callouts) else {
            return LoopPlace(pulse: pulse, since: lastLook?.busySince)
        }
        return LoopPlace(pulse: pulse, callouts: standstill.callouts, since: standstill.sampled.since)
    }

    /// Whether to take a stack sample.
    func wantsSample(at time: MonotonicInstant, _ pulse: LoopHeartbeat.Pulse) -> Bool {
        if let standstill, standstill.pulse == pulse {
            return standstill.sampled.wantsSample(at: time, tick: policy.rule.tick)
        }
        return wantsBusySample(at: time)
    }

    /// For a loop that moves: whether to sample it. Samples are taken while it is busy, once the turn is longer than two ticks or
    /// there is a row of long turns.
    private func wantsBusySample(at time: MonotonicInstant) -> Bool {
        guard let busySpan, let since = lastLook?.busySince else { return false }
        let length = time - since
        guard length > policy.rule.tick, policy.hasRow || length > policy.rule.tick * 2 else { return false }
        return busySpan.sampled.wantsSample(at: time, tick: policy.rule.tick)
    }

    /// The amount of time that a stack taken now represents.
    func timeSinceSample(at time: MonotonicInstant) -> Duration {
        standstill.map { max(policy.rule.tick, time - ($0.sampled.lastSample ?? $0.sampled.since)) }
            ?? policy.rule.tick
    }

    /// Notes that a stack is about to be taken.
    func noteSample(at time: MonotonicInstant) {
        standstill?.sampled.noteSample(at: time)
        busySpan?.sampled.noteSample(at: time)
    }

    /// Keeps a sample until the stall is proven.
    func keep(_ sample: StackSample, at pulse: LoopHeartbeat.Pulse) {
        if standstill?.pulse == pulse { standstill?.sampled.keep(sample) }
        busySpan?.keep(sample)
    }

    /// Returns the samples of a stall from before it was proven.
    func takeSamples(_ category: StallCategory, from start: MonotonicInstant, at pulse: LoopHeartbeat.Pulse)
        -> [StackSample]
    {
        guard category == .blocked else { return busySpan?.sampled.samples.filter { $0.time >= start } ?? [] }
        return standstill?.pulse == pulse ? standstill?.sampled.takeSamples() ?? [] : []
    }

    // MARK: - The kernel's counts

    /// The kernel's account of one of the threads since the standstill began.
    func evidence(
        ofThread threadID: Int32,
        _ span: StallSpan,
        at time: MonotonicInstant,
        with services: inout WatchServices
    ) -> EvidenceWindow? {
        guard let standstill else { return nil }
        var window = standstill.evidence(threadID: threadID, at: time)?.leavingOut(span.excluded)
        window?.supply = services.supply.window(since: standstill.supply, threadID: threadID, at: time)
        return window
    }

    /// The kernel's account of the loop's thread over a stall, until now.
    func evidence(
        of stall: Stall,
        _ span: StallSpan,
        at time: MonotonicInstant,
        with services: inout WatchServices
    ) -> EvidenceWindow? {
        // The counts include the time until this look, but the standstill was over before.
        let afterEnd = stall.category == .blocked ? max(.zero, time - span.latestEnd) : .zero
        var window = evidence(stall.category, at: time, of: stall.pulse)?.leavingOut(span.excluded + afterEnd)
        if window != nil, let id = loop.thread?.id {
            window?.supply = services.supply.window(since: standstill?.supply, threadID: id, at: time)
        }
        return window
    }

    /// The same, with the time that does not count.
    private func evidence(_ category: StallCategory, at time: MonotonicInstant, of pulse: LoopHeartbeat.Pulse)
        -> EvidenceWindow?
    {
        guard let id = loop.thread?.id else { return nil }
        guard category == .blocked else {
            return busySpan?.evidence(threadID: id, busy: busyAtEnd ?? policy.busy(at: time))
        }
        return standstill?.pulse == pulse ? standstill?.evidence(threadID: id, at: time) : nil
    }

    // MARK: - Turns and callouts

    /// The turns and callouts of a stall with that length. Nil for a stall that is one standstill.
    func busyTime(_ category: StallCategory, _ span: StallSpan, hasEnded: Bool) -> StallReport.BusyTime? {
        switch category {
        case .blocked: return nil
        case .congested:
            let length = span.length.nanoseconds
            return .init(turns: 1, totalNs: length, longestNs: length, callouts: calloutsOfTurn)
        case .repeated:
            let last = hasEnded ? policy.repeated?.lastRow : nil
            guard let row = last ?? policy.present(at: lastLook) else { return nil }
            return .init(turns: row.count, totalNs: row.total.nanoseconds, longestNs: row.longest.nanoseconds)
        }
    }

    /// Nil for a loop that counts no callouts.
    private var calloutsOfTurn: UInt64? {
        guard let turnCallouts, turnCallouts.latest > 0 else { return nil }
        return turnCallouts.latest &- turnCallouts.before
    }
}
