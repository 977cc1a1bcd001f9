import RunLoopKit
import StackCapture
import StallDetection
import StallDiagnosis
import StallReports
import Synchronization

/// What the watchdog passes to the reporter. It contains addresses and counts; names and sentences are made on the reporter's
/// thread. An `Int` is the stall's number.
enum StallNotice: Sendable {
    indirect case began(StallObservation)
    case grew(Int, StallSpan)
    /// The turns and callouts of a stall so far, if it is not one standstill.
    case counted(Int, StallReport.BusyTime)
    /// A later stack sample of the stalled thread.
    case sampled(Int, StackSample)
    /// The stall is over (`recovered`); or the loop is no longer watched, and the stall continues as far as is known (`abandoned`); or
    /// the loop's process, watched from outside, has ended (`terminated`).
    case ended(Int, StallSpan, EvidenceWindow?, StallState)
    /// The process has crashed, and its crash handler runs. The stall keeps the length that was reported last.
    case crashing(Int)
    /// The monitor ends the process as soon as the report is written.
    case aborting(Int, AbortNotice)
    /// Calls this, after everything from before was reported.
    case settled(@Sendable () -> Void)
    /// Changes the rule that decides which stalls are reported.
    case adopt(RepeatRule)
    /// Requests an update of the run record.
    case checkpoint
    /// The monitor cannot do part of its work.
    case fault(StallMonitorError)
    /// The monitor has switched itself off.
    case disarmed(StallMonitorError)
    /// A fault is over.
    case mended(StallMonitorError)
}

/// The request to write a stall's report before the monitor ends the process, and the confirmation that it is written.
final class AbortNotice: Sendable {
    /// How long a stall may last.
    let limit: Duration
    /// The stacks of all threads. Nil if none could be taken.
    let threads: ThreadStacks?
    let takenAt: MonotonicInstant
    private let written = Atomic(false)

    init(limit: Duration, threads: ThreadStacks?, takenAt: MonotonicInstant) {
        (self.limit, self.threads, self.takenAt) = (limit, threads, takenAt)
    }

    /// Whether the report is on disk, or will not be written.
    var isWritten: Bool { written.load(ordering: .acquiring) }

    func noteWritten() { written.store(true, ordering: .releasing) }

    /// A sentence for the report.
    var sentence: String {
        "No stall of this server may last longer than \(DurationText(nanoseconds: limit.nanoseconds)): the monitor ends the process."
    }
}

// MARK: - Notices in the queue

extension StallNotice: QueuedMessage {
    var role: QueueRole {
        switch self {
        case .began(let observation): .opens(observation.number)
        case .grew(let number, _): .updates(number)
        case .counted(let number, _): .updates(number, .counts)
        case .sampled(let number, _), .crashing(let number), .aborting(let number, _): .adds(number)
        case .ended(let number, _, _, _): .closes(number)
        case .checkpoint: .alone(latestIsEnough: true)
        case .adopt: .setting
        case .mended(let error): .ends(error)
        case .settled: .awaited
        case .fault, .disarmed: .alone(latestIsEnough: false)
        }
    }

    var kind: String {
        switch self {
        case .sampled: "samples"
        case .grew: "lengths"
        default: "other"
        }
    }

    var bytes: Int {
        switch self {
        case .began(let observation): 1024 + observation.stackBytes
        case .sampled(_, let sample): 128 + sample.bytes
        default: 256
        }
    }

    /// The notice without its stacks: the fact that the stall happened is more important than its place.
    var lightened: StallNotice? {
        guard case .began(let observation) = self, observation.stackBytes > 0 else { return nil }
        let reason = "It was dropped: the reporter was too far behind to keep it in memory."
        return .began(observation.withoutStacks(because: reason))
    }
}

extension StallObservation {
    /// The same without what takes much memory.
    func withoutStacks(because reason: String) -> StallObservation {
        var copy = self
        copy.stack = .unavailable(reason)
        copy.samples = []
        (copy.others, copy.lock) = (nil, nil)
        copy.pool?.stacks = []
        copy.pool?.locks = []
        return copy
    }

    /// How much memory that takes.
    fileprivate var stackBytes: Int {
        let locks = [lock].compactMap { $0 } + (pool?.locks ?? [])
        return allSamples.reduce(0) { $0 + $1.bytes } + locks.reduce(0) { $0 + $1.bytes } + (others?.bytes ?? 0)
    }
}

extension StackSample {
    fileprivate var bytes: Int { 256 + stack.bytes + (lock?.bytes ?? 0) }
}

extension LockFinding {
    fileprivate var bytes: Int {
        waits.count * 256 + owners.reduce(0) { $0 + 256 + ($1.captured?.bytes ?? 0) }
    }
}

extension ThreadStacks {
    fileprivate var bytes: Int {
        groups.reduce(0) { $0 + $1.threads.count * MemoryLayout<Thread>.stride + $1.stack.bytes }
            + missing.count * MemoryLayout<Missing>.stride
    }
}

extension CapturedStack {
    fileprivate var bytes: Int {
        frames.count * MemoryLayout<Frame>.stride
            + (stackPointers.count + (asyncCallers?.addresses.count ?? 0)) * MemoryLayout<UInt>.stride
    }
}
