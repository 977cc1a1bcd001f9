import RunLoopKit
import StackCapture
import StallDetection
import StallDiagnosis
import StallReports

/// A stall at the moment it was proven.
struct StallObservation: Sendable {
    /// The stall's number in this run: what later notices name it by.
    let number: Int
    /// The id of its report, known before there is one: the process may not live to write it.
    let reportID: ULID
    let watch: WatchIdentity
    /// For what the reporter asks of it, away from the watchdog.
    let loop: WatchedThing
    let category: StallCategory
    let rule: StallRule
    let pulse: LoopHeartbeat.Pulse
    let span: StallSpan
    let detectedAt: MonotonicInstant
    let threadID: Int32?
    let evidence: EvidenceWindow?
    var stack: StackOutcome
    /// What the thread was at before, from its second tick of standing still on.
    var samples: [StackSample]
    /// The workers, if it is a pool that stands.
    var pool: PoolObservation?
    /// Nil for a stall that is one standstill.
    let busy: StallReport.BusyTime?
    /// One for all times of the report, so that a clock that is set while the stall lasts does not tear it.
    let clock = WallClockAnchor()
    /// Where the thread was found waiting.
    let site: WaitSite?
    /// What the other threads were at, if that was asked for.
    var others: ThreadStacks?
    /// When they were looked at, if it was not at detection.
    var othersTakenAt: MonotonicInstant?
    /// Whom the thread waits for, if it was found in futex(2).
    var lock: LockFinding?
    /// Processor time of the watchdog's thread when the loop was first seen to stand still, nanoseconds.
    var watchdogCPU: UInt64?
    /// The process that it stalled in, if that is another one.
    var subject: OutsideProcess?
    /// The epoll set that the loop rests on, if it is known: whose clients wait there is counted.
    var waitSet: Int32?
    /// Of the stack: see `StackSample`.
    var loopFrame: Int?
}

extension StallObservation {
    /// By which rule it is a stall.
    var kind: StallKind { if case .job = loop { .longJob } else { category.kind } }

    /// The rule by which it is one.
    var reportRule: StallReport.Rule {
        var told = rule.reportRule(for: category)
        told.name = kind
        return told
    }

    /// The loop had moved on before anybody took its stack.
    var isOverUnseen: Bool { if case .raced = stack { samples.isEmpty } else { false } }

    /// The detection's stack, then the samples before it.
    var allSamples: [StackSample] {
        // A pool's first worker is among the others.
        if let pool { return pool.stacks + samples }
        let detected = stack.captured.map {
            StackSample(time: detectedAt, stack: $0, site: site, loopFrame: loopFrame)
        }
        return [detected].compactMap { $0 } + samples
    }
}

/// The stalled thread's stack, or why there is none.
enum StackOutcome: Sendable {
    case captured(CapturedStack)
    case failed(CaptureError)
    /// The loop moved on before or while its stack was taken: what was taken shows something else and is discarded.
    case raced
    /// There is nothing to capture with, or no thread known.
    case unavailable(String)

    var captured: CapturedStack? {
        if case .captured(let stack) = self { stack } else { nil }
    }
}
