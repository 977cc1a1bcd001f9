import RunLoopKit
import StallDiagnosis
import StallReports

/// What a loop's threads did during a time that may become a stall: the kernel's counts at its start, and the stack samples
/// since. The counts show a stall's cause, the samples its culprit.
struct SampledTime: Sendable {
    let since: MonotonicInstant
    /// Keyed by thread: a loop has one thread, a pool has one for each worker.
    private let evidence: [Int32: ThreadEvidence]
    private(set) var samples: [StackSample] = []
    private(set) var lastSample: MonotonicInstant?

    /// Nil if none of the threads exists.
    init?(threadIDs: [Int32], at time: MonotonicInstant) {
        var evidence: [Int32: ThreadEvidence] = [:]
        for id in threadIDs { evidence[id] = ThreadEvidence.read(threadID: id) }
        guard !evidence.isEmpty else { return nil }
        (since, self.evidence) = (time, evidence)
    }

    /// The kernel's account of one of the threads from the start until now.
    ///
    /// - Parameter length: How much of that time counts.
    func evidence(threadID: Int32, over length: Duration) -> EvidenceWindow? {
        guard let before = evidence[threadID], let after = ThreadEvidence.read(threadID: threadID) else { return nil }
        return EvidenceWindow(length: length, before: before, after: after)
    }

    /// Whether to take another sample: every tick at first, then at growing intervals, so that a minute costs few more samples than a
    /// second.
    func wantsSample(at time: MonotonicInstant, tick: Duration) -> Bool {
        guard let lastSample else { return true }
        return time - lastSample >= max(tick, (time - since) / 4)
    }

    mutating func noteSample(at time: MonotonicInstant) { lastSample = time }

    /// Keeps a sample until the stall is proven.
    ///
    /// - Parameter limit: How many samples are kept. The oldest is dropped first.
    mutating func keep(_ sample: StackSample, limit: Int = .max) {
        if samples.count >= limit { samples.removeFirst() }
        samples.append(sample)
    }

    /// Passes the samples to the stall.
    mutating func takeSamples() -> [StackSample] {
        defer { samples = [] }
        return samples
    }
}

/// The time for which a loop has not moved, from the second look on. It may or may not become a stall.
struct Standstill: Sendable {
    let pulse: LoopHeartbeat.Pulse
    let callouts: UInt64
    /// CPU time of the watchdog's thread at the start.
    let watchdogCPU = ThreadClock.nanoseconds
    var sampled: SampledTime
    /// How much processor time was available at the start. Nil if it was not read.
    var supply: SupplyMeter.Reading? {
        didSet { wantsSupply = supply == nil }
    }
    /// Whether `supply` still has to be read.
    private(set) var wantsSupply = true
    /// Whether the owner of the lock that the thread waits for was found: once is enough.
    var lockIsKnown = false

    /// Nil if none of the threads exists.
    init?(pulse: LoopHeartbeat.Pulse, callouts: UInt64, threadIDs: [Int32], at time: MonotonicInstant) {
        guard let sampled = SampledTime(threadIDs: threadIDs, at: time) else { return nil }
        (self.pulse, self.callouts, self.sampled) = (pulse, callouts, sampled)
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
    private let busyBefore: Duration
    var sampled: SampledTime

    private static let sampleLimit = 12

    /// Nil if the thread has ended.
    ///
    /// - Parameter busy: How long the turns of the row have taken together so far.
    init?(key: MonotonicInstant, threadID: Int32, at time: MonotonicInstant, busy: Duration) {
        guard let sampled = SampledTime(threadIDs: [threadID], at: time) else { return nil }
        (self.key, busyBefore, self.sampled) = (key, busy, sampled)
    }

    /// The kernel's account since the start, over the time in which the loop was busy.
    func evidence(threadID: Int32, busy: Duration) -> EvidenceWindow? {
        sampled.evidence(threadID: threadID, over: max(.zero, busy - busyBefore))
    }

    /// Keeps the latest samples.
    mutating func keep(_ sample: StackSample) { sampled.keep(sample, limit: Self.sampleLimit) }
}
