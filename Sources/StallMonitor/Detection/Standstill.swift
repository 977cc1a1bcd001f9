import RunLoopKit

/// A loop that has stood still for a whole tick, be it a stall yet or not: what its thread was at meanwhile. A stall's cause is
/// read off the kernel's counts since then, its culprit off the samples.
struct Standstill: Sendable {
    let pulse: LoopHeartbeat.Pulse
    let callouts: UInt64
    /// Of the watchdog's thread, as it began.
    let watchdogCPU = ThreadClock.nanoseconds
    let since: MonotonicInstant
    private let evidence: ThreadEvidence
    private var samples: [StackSample] = []
    private var lastSample: MonotonicInstant?
    /// The supply of processors as it was then. Nil when nobody has looked.
    var supply: SupplyMeter.Reading? {
        didSet { wantsSupply = supply == nil }
    }
    /// Whether it has yet to be read.
    private(set) var wantsSupply = true
    /// Whether it was found out whom the thread waits for: once is enough.
    var lockIsKnown = false

    /// Nil when the thread is gone.
    init?(pulse: LoopHeartbeat.Pulse, callouts: UInt64, threadID: Int32, at time: MonotonicInstant) {
        guard let evidence = ThreadEvidence.read(threadID: threadID) else { return nil }
        (self.pulse, self.callouts) = (pulse, callouts)
        self.evidence = evidence
        since = time
    }

    /// Whether the loop is where it stood.
    func isOf(_ pulse: LoopHeartbeat.Pulse, _ callouts: UInt64) -> Bool {
        self.pulse == pulse && self.callouts == callouts
    }

    /// The kernel's account from then until now.
    func evidence(threadID: Int32, at time: MonotonicInstant) -> EvidenceWindow? {
        ThreadEvidence.read(threadID: threadID).map {
            EvidenceWindow(length: time - since, before: evidence, after: $0)
        }
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
