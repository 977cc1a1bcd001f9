import RunLoopKit
import StallDiagnosis
import StallReports

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
