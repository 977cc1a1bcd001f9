import RunLoopKit
import StallDiagnosis
import StallReports

/// A loop that has stood still for a whole tick, be it a stall yet or not: what its thread was at meanwhile. A stall's cause is
/// read off the kernel's counts since then, its culprit off the samples.
struct Standstill: Sendable {
    let pulse: LoopHeartbeat.Pulse
    let callouts: UInt64
    /// Of the watchdog's thread, as it began.
    let watchdogCPU = ThreadClock.nanoseconds
    let since: MonotonicInstant
    /// By thread: a loop has one, a pool as many as it has workers.
    private let evidence: [Int32: ThreadEvidence]
    private var samples: [StackSample] = []
    private(set) var lastSample: MonotonicInstant?
    /// The supply of processors as it was then. Nil when nobody has looked.
    var supply: SupplyMeter.Reading? {
        didSet { wantsSupply = supply == nil }
    }
    /// Whether it has yet to be read.
    private(set) var wantsSupply = true
    /// Whether it was found out whom the thread waits for: once is enough.
    var lockIsKnown = false

    /// Nil when none of the threads is there.
    init?(pulse: LoopHeartbeat.Pulse, callouts: UInt64, threadIDs: [Int32], at time: MonotonicInstant) {
        var evidence: [Int32: ThreadEvidence] = [:]
        for id in threadIDs { evidence[id] = ThreadEvidence.read(threadID: id) }
        guard !evidence.isEmpty else { return nil }
        (self.pulse, self.callouts, self.evidence) = (pulse, callouts, evidence)
        since = time
    }

    /// Whether the loop is where it stood.
    func isOf(_ pulse: LoopHeartbeat.Pulse, _ callouts: UInt64) -> Bool {
        self.pulse == pulse && self.callouts == callouts
    }

    /// The kernel's account of one of the threads from then until now.
    func evidence(threadID: Int32, at time: MonotonicInstant) -> EvidenceWindow? {
        guard let before = evidence[threadID], let after = ThreadEvidence.read(threadID: threadID) else { return nil }
        return EvidenceWindow(length: time - since, before: before, after: after)
    }

    /// Whether to take another sample: every tick at first, then at growing distances, so that a minute costs not many more
    /// than a second.
    func wantsSample(at time: MonotonicInstant, tick: Duration) -> Bool {
        guard let lastSample else { return true }
        return time - lastSample >= max(tick, (time - since) / 4)
    }

    mutating func noteSample(at time: MonotonicInstant) {
        lastSample = time
    }

    /// Keeps a sample until a stall is proven.
    mutating func keep(_ sample: StackSample) {
        samples.append(sample)
    }

    /// What was kept. From now on it belongs to the stall.
    mutating func takeSamples() -> [StackSample] {
        defer { samples = [] }
        return samples
    }
}

/// What the thread of a loop was at in its present long turn, or in a row of them: for the stalls that no single standstill makes.
struct BusySpanSamples: Sendable {
    /// When the turn, or the row's first one, began.
    let key: MonotonicInstant
    private let since: MonotonicInstant
    private let busyBefore: Duration
    private let evidence: ThreadEvidence
    private(set) var samples: [StackSample] = []
    private var lastSample: MonotonicInstant?

    private static let capacity = 12

    /// Nil when the thread is gone.
    ///
    /// - Parameter busy: How long the row's turns have taken together until now.
    init?(key: MonotonicInstant, threadID: Int32, at time: MonotonicInstant, busy: Duration) {
        guard let evidence = ThreadEvidence.read(threadID: threadID) else { return nil }
        (self.key, since, busyBefore, self.evidence) = (key, time, busy, evidence)
    }

    /// The kernel's account since the busy span began, over the time in which the loop was busy.
    func evidence(threadID: Int32, busy: Duration) -> EvidenceWindow? {
        ThreadEvidence.read(threadID: threadID).map {
            EvidenceWindow(length: max(.zero, busy - busyBefore), before: evidence, after: $0)
        }
    }

    /// Every tick at first, then at growing distances.
    func wantsSample(at time: MonotonicInstant, tick: Duration) -> Bool {
        guard let lastSample else { return true }
        return time - lastSample >= max(tick, (time - since) / 4)
    }

    mutating func noteSample(at time: MonotonicInstant) {
        lastSample = time
    }

    /// Keeps the latest ones.
    mutating func keep(_ sample: StackSample) {
        if samples.count == Self.capacity { samples.removeFirst() }
        samples.append(sample)
    }
}
