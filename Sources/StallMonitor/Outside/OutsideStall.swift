package import RunLoopKit
package import StackCapture
import StallReports

/// A stall that somebody found who watches other processes, at the moment it was proven.
package struct OutsideStall: Sendable {
    /// Which of the loops that were entered at the desk.
    package var loop: Int
    package var threadID: Int32
    /// The epoll descriptor that it rests on. Nil for a loop on a list of descriptors.
    package var waitSet: Int32?
    /// `congested` where the turn is one of many callouts, else `blocked`.
    package var isCongested: Bool
    package var span: OutsideSpan
    package var detectedAt: MonotonicInstant
    /// From when it was first seen not to rest.
    package var account: OutsideProcess.Account?
    /// The stack at detection, or why there is none.
    package var stack: OutsideStack
    /// Taken before that.
    package var samples: [OutsideProcess.Sample]

    package init(
        loop: Int,
        threadID: Int32,
        waitSet: Int32?,
        isCongested: Bool,
        span: OutsideSpan,
        detectedAt: MonotonicInstant,
        account: OutsideProcess.Account?,
        stack: OutsideStack,
        samples: [OutsideProcess.Sample]
    ) {
        (self.loop, self.threadID, self.waitSet, self.isCongested) = (loop, threadID, waitSet, isCongested)
        (self.span, self.detectedAt) = (span, detectedAt)
        (self.account, self.stack, self.samples) = (account, stack, samples)
    }
}

/// What came of taking a stack.
package enum OutsideStack: Sendable {
    case taken(OutsideProcess.Sample)
    case failed(CaptureError)
    /// The loop had turned before it was taken.
    case raced

    var sample: StackSample? { if case .taken(let sample) = self { sample.sample } else { nil } }
}

/// Between which moments a stall began, and between which it ended, or was last seen to go on.
package struct OutsideSpan: Hashable, Sendable {
    package var began: ClosedRange<MonotonicInstant>
    package var ended: ClosedRange<MonotonicInstant>
    /// How much of it nobody can vouch for.
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

/// What became of a stall.
package enum OutsideEnd: Hashable, Sendable {
    /// The loop rests, or has turned.
    case turned
    /// The process has ended.
    case processEnded
    /// Nobody looks any more.
    case unwatched
}
