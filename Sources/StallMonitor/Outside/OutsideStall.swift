package import RunLoopKit
package import StackCapture
package import StallDiagnosis
import StallReports

/// A stall of another process, at the moment it was proven.
package struct OutsideStall: Sendable {
    /// The loop's number: see ``OutsideReporter``.
    package var loop: Int
    package var threadID: Int32
    /// What the loop waits for while it rests.
    package var awaited: AwaitedDescriptors
    /// Whether the turn has many callouts: the stall is `congested`, otherwise `blocked`.
    package var isCongested: Bool
    package var span: OutsideSpan
    package var detectedAt: MonotonicInstant
    /// The kernel's counts when the loop was first found not to rest.
    package var account: OutsideProcess.Account?
    /// The stack at detection, or why there is none.
    package var stack: OutsideStack
    /// Samples from before the detection.
    package var samples: [OutsideProcess.Sample]

    package init(
        loop: Int,
        threadID: Int32,
        awaited: AwaitedDescriptors,
        isCongested: Bool,
        span: OutsideSpan,
        detectedAt: MonotonicInstant,
        account: OutsideProcess.Account?,
        stack: OutsideStack,
        samples: [OutsideProcess.Sample]
    ) {
        (self.loop, self.threadID, self.awaited, self.isCongested) = (loop, threadID, awaited, isCongested)
        (self.span, self.detectedAt) = (span, detectedAt)
        (self.account, self.stack, self.samples) = (account, stack, samples)
    }
}

/// The result of a capture.
package enum OutsideCapture: Sendable {
    case taken(CapturedStack)
    case failed(CaptureError)
    /// The budget is used up. The text says so.
    case refused(String)
}

/// The result of taking a stack.
package enum OutsideStack: Sendable {
    case taken(OutsideProcess.Sample)
    case failed(CaptureError)
    /// The budget is used up. The text says so.
    case refused(String)
    /// The loop had turned before the stack was taken.
    case raced

    var sample: StackSample? { if case .taken(let sample) = self { sample.sample } else { nil } }
}

/// The earliest and latest moment at which a stall began, and at which it ended or was last seen to continue.
package struct OutsideSpan: Hashable, Sendable {
    package var began: ClosedRange<MonotonicInstant>
    package var ended: ClosedRange<MonotonicInstant>
    /// How much of it does not count.
    package var excluded: Duration

    package init(
        began: ClosedRange<MonotonicInstant>,
        ended: ClosedRange<MonotonicInstant>,
        excluded: Duration = .zero
    ) {
        (self.began, self.ended, self.excluded) = (began, ended, excluded)
    }

    var span: StallSpan {
        StallSpan(
            earliestStart: began.lowerBound,
            latestStart: began.upperBound,
            earliestEnd: ended.lowerBound,
            latestEnd: ended.upperBound,
            excluded: excluded
        )
    }
}

/// How a stall ended.
package enum OutsideEnd: Hashable, Sendable {
    /// The loop rests, or has turned.
    case turned
    /// The process has ended.
    case processEnded
    /// The loop is no longer watched.
    case unwatched
}
