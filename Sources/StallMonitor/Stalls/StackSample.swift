import RunLoopKit
import StackCapture
import StallDiagnosis

/// What a thread was at, and when.
struct StackSample: Sendable {
    var time: MonotonicInstant
    var stack: CapturedStack
    /// Whose stack it is. Nil: the watched loop's thread's.
    var threadID: Int32?
    /// Where it waited. Nil for a thread that ran, or slept in a page fault.
    var site: WaitSite?
    /// Captures that gave this stack, and the time they stand for. Nil: the time since the sample before.
    var count = 1
    var span: Duration?
    /// Whom the thread waited for then, where that was not known before.
    var lock: LockFinding?
    /// Which frame is the loop's own, where that is known by other means than its name: it called those before it.
    var loopFrame: Int?
}

extension WaitProfile {
    /// - Parameter samples: with the time that each stands for.
    init(_ samples: [(sample: StackSample, span: Duration)]) {
        self.init(
            samples.map { sample, span in
                // Only of a thread that sleeps is a stack taken without its notice.
                Sighting(sample.site, isAsleep: sample.stack.method == .quiet, for: span, count: sample.count)
            }
        )
    }
}

/// What was captured of one stall so far: equal stacks once, with the time they stand for, and never more than a few dozen. Pure.
struct SampleTally: Sendable {
    /// The detection's first, if there are any.
    private(set) var samples: [StackSample]
    private var lastTime: MonotonicInstant?
    /// How many are never left out: the detection's.
    private let kept: Int

    /// Most samples kept.
    static let limit = 64

    /// - Parameters:
    ///   - samples: the detection's first, then those before it.
    ///   - detected: how many are the detection's: of a pool, several.
    init(_ samples: [StackSample] = [], detected: Int = 1) {
        self.samples = []
        kept = max(1, min(detected, samples.count))
        lastTime = samples.map(\.time).max()
        for (sample, span) in samples.weighted { merge(sample, span) }
    }

    /// Takes one more, later than all before.
    mutating func add(_ sample: StackSample) {
        let span = sample.span ?? lastTime.map { max(.zero, sample.time - $0) } ?? .milliseconds(1)
        lastTime = sample.time
        // The only one so far stands for as long as the next.
        if samples.count == 1, samples[0].count == 1 { samples[0].span = span }
        merge(sample, span)
        if samples.count > Self.limit + kept - 1 { thin() }
    }

    private mutating func merge(_ sample: StackSample, _ span: Duration) {
        if let index = samples.firstIndex(where: { $0.isSame(as: sample) }) {
            samples[index].count += sample.count
            samples[index].span = (samples[index].span ?? .zero) + span
        } else {
            var sample = sample
            sample.span = span
            samples.append(sample)
        }
    }

    /// Leaves out one of each two, but none of the detection's, and lets the other stand for its time: the one that stood for more.
    private mutating func thin() {
        var kept = Array(samples.prefix(kept))
        var rest = samples.dropFirst(kept.count)
        while let left = rest.popFirst() {
            guard let next = rest.popFirst() else {
                kept.append(left)
                break
            }
            let spans = (left.span ?? .zero, next.span ?? .zero)
            var one = spans.0 > spans.1 ? left : next
            (one.span, one.count) = (spans.0 + spans.1, left.count + next.count)
            kept.append(one)
        }
        samples = kept
    }
}

extension StackSample {
    fileprivate func isSame(as other: StackSample) -> Bool {
        threadID == other.threadID && stack.frames == other.stack.frames
            && stack.asyncCallers == other.stack.asyncCallers
            && stack.leftOut == other.stack.leftOut && site?.call.number == other.site?.call.number
            && site?.descriptors.map(\.link) == other.site?.descriptors.map(\.link) && site?.state == other.site?.state
    }
}

extension [StackSample] {
    /// Each with the time it stands for: since the one before it, unless it says so itself. The first stands for as long as the shortest
    /// of the others.
    var weighted: [(sample: StackSample, span: Duration)] {
        let times = map(\.time).sorted()
        let gaps = zip(times.dropFirst(), times).map { $0 - $1 }
        let spans = Dictionary(zip(times.dropFirst(), gaps)) { first, _ in first }
        return map { ($0, $0.span ?? spans[$0.time] ?? gaps.min() ?? .milliseconds(1)) }
    }
}
