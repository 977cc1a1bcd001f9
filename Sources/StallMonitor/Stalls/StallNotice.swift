import RunLoopKit
import StackCapture
import StallDetection
import StallDiagnosis
import StallReports
import Synchronization

/// What the watchdog passes to the reporter. It contains addresses and counts; names and sentences are made on the reporter's
/// thread. An `Int` is the stall's number.
enum StallNotice: Sendable {
    case began(StallObservation)
    case grew(Int, StallSpan)
    /// The turns and callouts of a stall so far, if it is not one standstill.
    case counted(Int, StallReport.BusyTime)
    /// A later stack sample of the stalled thread.
    case sampled(Int, StackSample)
    case ended(Int, StallSpan, EvidenceWindow?)
    /// The loop is no longer watched. As far as is known, the stall continues.
    case abandoned(Int, StallSpan, EvidenceWindow?)
    /// The process in which the loop stalled has ended. Only for processes that are watched from outside.
    case died(Int, StallSpan)
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

/// A stall as the watchdog saw it when it began.
struct StallObservation: Sendable {
    /// The stall's number in this run. Later notices refer to it.
    let number: Int
    /// The id of its report. It is chosen now, because the process may die before the report is written.
    let reportID: ULID
    let watch: WatchIdentity
    /// Lets the reporter read the loop on its own thread.
    let loop: WatchedThing
    let category: StallCategory
    let rule: StallRule
    let pulse: LoopHeartbeat.Pulse
    let span: StallSpan
    let detectedAt: MonotonicInstant
    let threadID: Int32?
    let evidence: EvidenceWindow?
    var stack: StackOutcome
    /// Stack samples from before the stall, since the loop was first found not to move.
    var samples: [StackSample]
    /// The workers, if it is a pool.
    var pool: PoolObservation?
    /// Nil for a stall that is one standstill.
    let busy: StallReport.BusyTime?
    /// One anchor for all times of the report, so that they are consistent even if the wall clock is set during the stall.
    let clock = WallClockAnchor()
    /// Where the thread was waiting.
    let site: WaitSite?
    /// The stacks of the other threads, if the configuration asks for them.
    var others: ThreadStacks?
    /// When those were taken, if that was not at detection.
    var othersTakenAt: MonotonicInstant?
    /// The owners of the lock that the thread waits for, if it was found in futex(2).
    var lock: LockFinding?
    /// CPU time of the watchdog's thread when the loop was first found not to move, in nanoseconds.
    var watchdogCPU: UInt64?
    /// The process in which the loop stalled, if that is not this one.
    var otherProcess: OutsideProcess?
    /// What the loop waits for while it rests, if it is known. The clients that wait there are counted.
    var awaited: AwaitedDescriptors?
    /// The index into `stack`: see ``StackSample/loopFrame``.
    var loopFrame: Int?
}

extension StallObservation {
    /// The kind under which it is reported.
    var kind: StallKind { if case .job = loop { .longJob } else { category.kind } }

    /// The rule by which it is a stall.
    var reportRule: StallReport.Rule {
        var changed = rule.reportRule(for: category)
        changed.name = kind
        return changed
    }

    /// Whether the loop had moved on before its stack could be taken.
    var isOver: Bool { if case .raced = stack { true } else { false } }

    /// The same, but only if there are no samples from before either.
    var isOverUnseen: Bool { isOver && samples.isEmpty }

    /// The stack at detection, then the samples from before.
    var allSamples: [StackSample] {
        // The first worker of a pool is among its stacks.
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
    /// The loop moved on before or while its stack was taken. A stack that was taken shows something else, and is discarded.
    case raced
    /// Stacks cannot be taken, or the thread is unknown.
    case unavailable(String)

    init(_ result: Result<CapturedStack, CaptureError>) {
        switch result {
        case .success(let stack): self = .captured(stack)
        case .failure(let error): self = .failed(error)
        }
    }

    var captured: CapturedStack? {
        if case .captured(let stack) = self { stack } else { nil }
    }
}

// MARK: - Identities

/// The name of a watched loop in reports.
struct WatchName: Hashable, Sendable {
    var type: WatchedType
    var label: String
}

/// One watch. Several watched loops may have the same name.
struct WatchIdentity: Hashable, Sendable {
    var number: Int
    var name: WatchName
    /// When the watch was requested.
    var since: MonotonicInstant
    /// Whether its rule is the configuration's, which may change while it is watched.
    var followsConfiguration = false
}

/// The origin of reports. The same in every report of a run.
struct RunIdentity: Sendable {
    let id: ULID
    let host: HostIdentity
    let service: ServiceIdentity
    let process: ProcessIdentity
    let startedAt: Timestamp

    /// The calling process.
    ///
    /// - Parameter service: Nil: named after its executable.
    init(service: ServiceIdentity?) {
        id = .make()
        host = .current()
        process = .current()
        startedAt = .now()
        let executable = process.executable?.split(separator: "/").last.map(String.init)
        self.service = service ?? ServiceIdentity(name: executable ?? "unknown")
    }
}

/// The workers of a pool when its stall began.
struct PoolObservation: Sendable {
    /// A worker, and its present job.
    struct Worker: Sendable {
        var job: TaskPoolHeartbeat.RunningJob
        /// The kernel's account of its thread since the pool was first found not to move. Nil if nothing was read then.
        var evidence: EvidenceWindow?
        /// Why it has no stack.
        var problem: String?
    }

    var width: Int
    /// How many jobs are running.
    var running: Int
    /// How many jobs waited for a worker, at least. Nil if waiting jobs are not counted.
    var waiting: UInt64?
    /// Sorted: the worker that has been at its job for longest is first.
    var workers: [Worker]
    /// The stacks that could be taken, each with its thread.
    var stacks: [StackSample]
    /// The locks, with their owners, of workers that were found in futex(2).
    var locks: [LockFinding]

    /// How many workers are examined individually.
    static let workerLimit = 64
    /// How many workers are sampled before and after detection.
    static let sampleLimit = 8

    /// The cost of taking their stacks, and those of lock owners.
    var costs: [CapturedStack.Cost] { stacks.map(\.stack.cost) + locks.flatMap(\.costs) }
}

extension PoolObservation {
    /// Workers that wait for another worker, each with the worker at the end of its chain of waits.
    var waitingForOthers: [Int32: Int32] {
        let stalled = Set(workers.map(\.job.threadID))
        var found: [Int32: Int32] = [:]
        for lock in locks where lock.closing == nil {
            guard let first = lock.waits.first, stalled.contains(first.threadID) else { continue }
            let owners = lock.waits.compactMap(\.reading.owner).filter { stalled.contains($0) && $0 != first.threadID }
            if let last = owners.last { found[first.threadID] = last }
        }
        return found
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
        case .ended(let number, _, _), .abandoned(let number, _, _), .died(let number, _): .closes(number)
        case .checkpoint: .alone(latestIsEnough: true)
        default: .alone(latestIsEnough: false)
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
        case .began(let observation): 1024 + observation.allSamples.reduce(0) { $0 + $1.bytes }
        case .sampled(_, let sample): 128 + sample.bytes
        default: 256
        }
    }

    /// The notice without its stacks: the fact that the stall happened is more important than its place.
    var lightened: StallNotice? {
        guard case .began(var observation) = self, !observation.allSamples.isEmpty else { return nil }
        observation.stack = .unavailable("It was dropped: the reporter was too far behind to keep it in memory.")
        observation.samples = []
        (observation.others, observation.lock) = (nil, nil)
        observation.pool?.stacks = []
        observation.pool?.locks = []
        return .began(observation)
    }
}

extension StackSample {
    fileprivate var bytes: Int {
        256 + stack.frames.count * MemoryLayout<CapturedStack.Frame>.stride
            + (stack.asyncCallers?.addresses.count ?? 0) * MemoryLayout<UInt>.stride
    }
}
