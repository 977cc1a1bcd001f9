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
            return standstill.sampled.pace.isDue(at: time, least: policy.rule.tick)
        }
        return wantsBusySample(at: time)
    }

    /// For a loop that moves: whether to sample it. Samples are taken while it is busy, once the turn is longer than two ticks or
    /// there is a row of long turns.
    private func wantsBusySample(at time: MonotonicInstant) -> Bool {
        guard let busySpan, let since = lastLook?.busySince else { return false }
        let length = time - since
        guard length > policy.rule.tick, policy.hasRow || length > policy.rule.tick * 2 else { return false }
        return busySpan.sampled.pace.isDue(at: time, least: policy.rule.tick)
    }

    /// The amount of time that a stack taken now represents.
    func timeSinceSample(at time: MonotonicInstant) -> Duration {
        standstill.map { max(policy.rule.tick, time - ($0.sampled.pace.last ?? $0.sampled.since)) }
            ?? policy.rule.tick
    }

    /// Notes that a stack is about to be taken.
    func noteSample(at time: MonotonicInstant) {
        standstill?.sampled.pace.note(time)
        busySpan?.sampled.pace.note(time)
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

    /// The kernel's account of one of the threads since the standstill began, or since it was last covered by a scope.
    ///
    /// - Parameter excluded: How much of the whole standstill does not count. What lies before the account's beginning is taken off here.
    func evidence(
        ofThread threadID: Int32,
        leavingOut excluded: Duration,
        at time: MonotonicInstant,
        with services: inout WatchServices
    ) -> EvidenceWindow? {
        guard let standstill else { return nil }
        let excludedSince = max(.zero, excluded - standstill.excludedBefore)
        var window = standstill.evidence(threadID: threadID, at: time)?.leavingOut(excludedSince)
        window?.supply = services.supply.window(since: standstill.sampled.supply, threadID: threadID, at: time)
        return window
    }

    /// The kernel's account of the loop's thread over a stall, until now.
    func evidence(
        of stall: Stall,
        _ span: StallSpan,
        at time: MonotonicInstant,
        with services: inout WatchServices
    ) -> EvidenceWindow? {
        guard let id = loop.thread?.id else { return nil }
        if stall.category == .blocked {
            guard standstill?.pulse == stall.pulse else { return nil }
            // The counts include the time until this look, but the standstill was over before.
            let afterEnd = max(.zero, time - span.latestEnd)
            return evidence(ofThread: id, leavingOut: span.excluded + afterEnd, at: time, with: &services)
        }
        let busy = busyAtEnd ?? policy.busy(at: time)
        var window = busySpan?.evidence(threadID: id, busy: busy)?.leavingOut(span.excluded)
        window?.supply = services.supply.window(since: busySpan?.sampled.supply, threadID: id, at: time)
        return window
    }

    // MARK: - Turns and callouts

    /// The turns and callouts of a stall with that length. Nil for a stall that is one standstill.
    func busyTime(_ category: StallCategory, _ span: StallSpan, hasEnded: Bool) -> StallReport.BusyTime? {
        switch category {
        case .blocked: return nil
        case .congested:
            let length = span.length.nanoseconds
            return .init(turns: 1, totalNs: length, longestNs: length, callouts: turnCallouts?.number)
        case .repeated:
            let last = hasEnded ? policy.repeated?.lastRow : nil
            guard let row = last ?? policy.present(at: lastLook) else { return nil }
            return .init(turns: row.count, totalNs: row.total.nanoseconds, longestNs: row.longest.nanoseconds)
        }
    }
}

/// What a loop's threads did during a time that may become a stall: the kernel's counts at its start, and the stack samples
/// since. The counts show a stall's cause, the samples its culprit.
struct SampledTime: Sendable {
    let since: MonotonicInstant
    /// Keyed by thread: a loop has one thread, a pool has one for each worker.
    private let evidence: [Int32: ThreadEvidence]
    /// How much processor time was available at the start. Nil if it was not read.
    var supply: SupplyMeter.Reading?
    private(set) var samples: [StackSample] = []
    /// When to take the next one.
    var pace: SamplePace
    /// Whether a scope covered time before the latest look.
    private var wasCovered = false

    /// Whether `supply` still has to be read.
    var wantsSupply: Bool { supply == nil }

    /// Nil if none of the threads exists.
    init?(threadIDs: [Int32], at time: MonotonicInstant) {
        var evidence: [Int32: ThreadEvidence] = [:]
        for id in threadIDs { evidence[id] = ThreadEvidence.read(threadID: id) }
        guard !evidence.isEmpty else { return nil }
        (since, self.evidence, pace) = (time, evidence, SamplePace(start: time))
    }

    /// The kernel's account of one of the threads from the start until now.
    ///
    /// - Parameter length: How much of that time counts.
    func evidence(threadID: Int32, over length: Duration) -> EvidenceWindow? {
        guard let before = evidence[threadID], let after = ThreadEvidence.read(threadID: threadID) else { return nil }
        return EvidenceWindow(length: length, before: before, after: after)
    }

    /// Keeps a sample until the stall is proven.
    ///
    /// - Parameter limit: How many samples are kept. The oldest is dropped first.
    mutating func keep(_ sample: StackSample, limit: Int = .max) {
        if samples.count >= limit { samples.removeFirst() }
        samples.append(sample)
    }

    /// Whether this is the first look after a time that a scope has covered: what the threads did until now is not what stalls the loop from now
    /// on. Call it once per look.
    mutating func endsScope(_ look: LoopSample) -> Bool {
        let isCovered = look.excluded.map { [.expectedSlow, .startup].contains($0.reason) } ?? false
        defer { wasCovered = isCovered }
        return wasCovered && !isCovered
    }

    /// Passes the samples to the stall.
    mutating func takeSamples() -> [StackSample] { samples.take() }
}

/// The time for which a loop has not moved, from the second look on. It may or may not become a stall.
struct Standstill: Sendable {
    let pulse: LoopHeartbeat.Pulse
    let callouts: UInt64
    /// CPU time of the watchdog's thread at the start.
    let watchdogCPU = ThreadClock.nanoseconds
    var sampled: SampledTime
    /// How much of the time before `sampled` does not count.
    private(set) var excludedBefore = Duration.zero
    /// Whether the owner of the lock that the thread waits for was found: once is enough.
    var lockIsKnown = false

    /// Nil if none of the threads exists.
    init?(_ look: LoopSample, threadIDs: [Int32]) {
        guard let sampled = SampledTime(threadIDs: threadIDs, at: look.time) else { return nil }
        (pulse, callouts, self.sampled) = (look.pulse, look.callouts, sampled)
    }

    /// Begins to sample anew after a scope: see ``SampledTime/endsScope(_:)``. Call it at each look.
    ///
    /// - Parameter excluded: How much of the standstill does not count so far.
    mutating func leaveOutScopes(
        _ look: LoopSample,
        excluded: Duration,
        threadIDs: @autoclosure () -> [Int32]
    ) {
        guard sampled.endsScope(look), let new = SampledTime(threadIDs: threadIDs(), at: look.time) else { return }
        (sampled, excludedBefore) = (new, excluded)
    }

    /// Whether the loop has not moved since.
    func isOf(_ pulse: LoopHeartbeat.Pulse, _ callouts: UInt64) -> Bool {
        self.pulse == pulse && self.callouts == callouts
    }

    /// The kernel's account of one of the threads from the start until `time`, which is now.
    func evidence(threadID: Int32, at time: MonotonicInstant) -> EvidenceWindow? {
        sampled.evidence(threadID: threadID, over: time - sampled.since)
    }
}

/// The present long turn of a loop, or a row of long turns: for stalls that are not one standstill.
struct BusySpan: Sendable {
    /// When the turn, or the first turn of the row, began.
    let key: MonotonicInstant
    private let threadID: Int32
    private var busyBefore: Duration
    var sampled: SampledTime

    private static let sampleLimit = 12

    /// Nil if the thread has ended.
    ///
    /// - Parameter busy: How long the turns of the row have taken together so far.
    init?(key: MonotonicInstant, threadID: Int32, at time: MonotonicInstant, busy: Duration) {
        guard let sampled = SampledTime(threadIDs: [threadID], at: time) else { return nil }
        (self.key, self.threadID, busyBefore, self.sampled) = (key, threadID, busy, sampled)
    }

    /// Begins to sample anew after a scope: see ``SampledTime/endsScope(_:)``. Call it at each look.
    ///
    /// - Parameter busy: How long the turns of the row have taken together so far.
    mutating func leaveOutScopes(_ look: LoopSample, busy: Duration) {
        guard sampled.endsScope(look), let new = SampledTime(threadIDs: [threadID], at: look.time) else { return }
        (sampled, busyBefore) = (new, busy)
    }

    /// The kernel's account since the start, over the time in which the loop was busy.
    func evidence(threadID: Int32, busy: Duration) -> EvidenceWindow? {
        sampled.evidence(threadID: threadID, over: max(.zero, busy - busyBefore))
    }

    /// Keeps the latest samples.
    mutating func keep(_ sample: StackSample) { sampled.keep(sample, limit: Self.sampleLimit) }
}
