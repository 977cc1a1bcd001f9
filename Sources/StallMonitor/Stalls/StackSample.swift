package import RunLoopKit
package import StackCapture
import StallDiagnosis

/// A thread's stack at one moment.
package struct StackSample: Sendable {
    package var time: MonotonicInstant
    package var stack: CapturedStack
    /// The stack's thread, if it is a pool's worker. Nil: the thread of the watched loop.
    package var threadID: Int32?
    /// Where it waited. Nil for a thread that ran, or was asleep in a page fault.
    var site: WaitSite?
    /// How many captures had this stack, and how much time they represent. Nil: the time since the sample before.
    var count = 1
    var span: Duration?
    /// The owners of the lock that the thread waited for, if they were not known before.
    var lock: LockFinding?
    /// The index of the loop's own frame, if it is not recognised by its name. The loop called the frames before it.
    var loopFrame: Int?
}

extension CapturedStack {
    /// When a late copy was made. Nil for one that was made when it was requested.
    var copied: MonotonicInstant? { copiedAt.map(MonotonicInstant.init(nanoseconds:)) }
}

extension WaitProfile {
    /// - Parameter samples: Each with the time that it represents.
    init(_ samples: [(sample: StackSample, span: Duration)]) {
        self.init(
            samples.map { sample, span in
                // Only the stacks of sleeping threads are taken quietly.
                WaitProfile.Sample(sample.site, isAsleep: sample.stack.method == .quiet, for: span, count: sample.count)
            }
        )
    }
}

/// The samples of one stall so far: equal stacks are merged, with the time they represent, and there are at most a few dozen.
/// Pure.
struct SampleTally: Sendable {
    /// Those at detection first, if there are any.
    private(set) var samples: [StackSample]
    private var lastTime: MonotonicInstant?
    /// How many are never dropped: those at detection.
    private let kept: Int

    /// How many samples are kept.
    static let limit = 64

    /// - Parameters:
    ///   - samples: Those at detection first, then those from before.
    ///   - detected: How many are from the detection. For a pool there are several.
    init(_ samples: [StackSample] = [], detected: Int = 1) {
        self.samples = []
        kept = max(1, min(detected, samples.count))
        lastTime = samples.map(\.time).max()
        for (sample, span) in samples.weighted { merge(sample, span) }
    }

    /// Adds a sample that is later than all before.
    mutating func add(_ sample: StackSample) {
        let span = sample.span ?? lastTime.map { max(.zero, sample.time - $0) } ?? .milliseconds(1)
        lastTime = sample.time
        // A single sample so far represents as much time as the next one.
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

    /// Drops one of every two samples of a thread, but none from the detection. The one with more time is kept, and represents the time
    /// of both.
    private mutating func thin() {
        var kept = Array(samples.prefix(kept))
        // By thread: the place of a sample whose pair has not come yet.
        var single: [Int32?: Int] = [:]
        for next in samples.dropFirst(kept.count) {
            guard let place = single.removeValue(forKey: next.threadID) else {
                single[next.threadID] = kept.count
                kept.append(next)
                continue
            }
            let left = kept[place]
            let spans = (left.span ?? .zero, next.span ?? .zero)
            var one = spans.0 > spans.1 ? left : next
            (one.span, one.count) = (spans.0 + spans.1, left.count + next.count)
            kept[place] = one
        }
        // With more threads than places few samples have a pair.
        samples = kept.dropLast(max(0, kept.count - Self.limit - self.kept + 1))
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
    /// Every second sample of each thread.
    var halved: [StackSample] {
        var numbers: [Int32?: Int] = [:]
        return filter { sample in
            numbers[sample.threadID, default: 0] += 1
            return numbers[sample.threadID, default: 0].isMultiple(of: 2)
        }
    }

    /// Each sample with the time it represents: its own, or the time since the one before. The first represents as much as the
    /// shortest of the others.
    var weighted: [(sample: StackSample, span: Duration)] {
        let times = map(\.time).sorted()
        let gaps = zip(times.dropFirst(), times).map { $0 - $1 }
        let spans = Dictionary(zip(times.dropFirst(), gaps)) { first, _ in first }
        return map { ($0, $0.span ?? spans[$0.time] ?? gaps.min() ?? .milliseconds(1)) }
    }
}
