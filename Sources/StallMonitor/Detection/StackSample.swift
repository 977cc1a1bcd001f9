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
