import RunLoopKit
package import StackCapture
import StallDetection
import StallDiagnosis
import StallReports

/// A stall as the watchdog saw it when it began.
struct StallObservation: Sendable {
    /// The stall's number in this run. Later notices refer to it.
    let number: Int
    /// The id of its report. It is chosen now, because the process may die before the report is written.
    let reportID: ULID
    let watch: WatchIdentity
    /// Lets the reporter read the loop on its own thread. Nil if it is in another process.
    let loop: WatchedThing?
    let category: StallCategory
    let rule: StallRule
    /// Nil for a loop of another process.
    let pulse: LoopHeartbeat.Pulse?
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
    /// CPU time of the watchdog's thread when the loop was first found not to move, or when the stall began, in nanoseconds.
    var watchdogCPU: UInt64?
    /// The process in which the loop stalled, if that is not this one.
    var otherProcess: OutsideProcess?
    /// What the loop waits for while it rests, if it is known. The clients that wait there are counted.
    var awaited: AwaitedDescriptors?
    /// See ``WatchedLoop/lengthsBefore``.
    var lengthsBefore = TurnHistogram()
    /// The index into `stack`: see ``StackSample/loopFrame``.
    var loopFrame: Int?
}

extension StallObservation {
    /// The kind under which it is reported.
    var kind: StallKind { if case .job? = loop { .longJob } else { category.kind } }

    /// What was watched, as it was when the stall began. Without its mode, and without what is unknown of a loop of another process.
    var watched: StallReport.Watched {
        .init(
            type: watch.name.type,
            label: watch.name.label,
            activity: watch.name.type == .runLoop ? pulse?.phase.reportName : nil,
            turn: pool == nil ? pulse?.turn : nil
        )
    }

    /// The part of the rule by which it is a stall.
    var reportRule: StallReport.Rule {
        let tick = rule.tick.nanoseconds
        return switch category {
        case .blocked: .init(name: kind, tickNs: tick, ticks: rule.ticks)
        case .congested: .init(name: kind, tickNs: tick, ticks: rule.congested?.ticks ?? rule.ticks)
        case .repeated:
            .init(name: kind, tickNs: tick, ticks: rule.repeated?.ticks ?? 1, turns: rule.repeated?.turns)
        }
    }

    /// Whether the loop had moved on before its stack could be taken.
    var isOver: Bool { if case .raced = stack { true } else { false } }

    /// The same, but only if there are no samples from before either.
    var isOverUnseen: Bool { isOver && samples.isEmpty }

    /// Whether the loop is at another place now than where it was found. False for a loop that moves during its stall, for a pool, and for a loop
    /// of another process. Any thread.
    var hasMovedOn: Bool {
        guard category == .blocked, case .loop(let loop)? = loop, let pulse else { return false }
        return loop.heartbeat.pulse != pulse
    }

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

/// A thread's stack, or why there is none.
package enum CaptureOutcome<Stack: Sendable>: Sendable {
    case captured(Stack)
    case failed(CaptureError)
    /// The loop moved on, or the worker left its job, before or while the stack was taken. A stack that was taken shows something else,
    /// and is discarded.
    case raced
    /// Stacks cannot be taken, the budget is used up, or the thread is unknown. The text says so.
    case unavailable(String)

    init(_ result: Result<Stack, CaptureError>) {
        switch result {
        case .success(let stack): self = .captured(stack)
        case .failure(let error): self = .failed(error)
        }
    }

    var captured: Stack? {
        if case .captured(let stack) = self { stack } else { nil }
    }

    /// Why there is no stack. Nil if there is one.
    ///
    /// - Parameter raced: The reason if the outcome is `raced`.
    func problem(raced: String) -> String? {
        switch self {
        case .captured: nil
        case .failed(let error): error.description
        case .raced: raced
        case .unavailable(let reason): reason
        }
    }
}

/// The stack of a thread of this process.
typealias StackOutcome = CaptureOutcome<CapturedStack>

/// The workers of a pool when its stall began.
struct PoolObservation: Sendable {
    /// A worker, and its present job.
    struct Worker: Sendable {
        var job: TaskPoolHeartbeat.RunningJob
        /// The kernel's account of its thread since the pool was first found not to move. Nil if nothing was read then.
        var evidence: EvidenceWindow?
        /// Why it has no stack.
        var problem: String?

        /// The problem if it has left the job.
        static let gone = "The job was over before it was looked at."
    }

    var width: Int
    /// How many jobs are running.
    var running: Int
    /// How many jobs waited for a worker, at least. Nil if waiting jobs are not counted.
    var waiting: UInt64?
    /// Sorted: the worker that has been at its job for longest is first.
    var workers: [Worker] = []
    /// The stacks that could be taken, each with its thread.
    var stacks: [StackSample] = []
    /// The locks, with their owners, of workers that were found in futex(2).
    var locks: [LockFinding] = []

    /// How many workers are examined individually.
    static let workerLimit = 64
    /// How many workers are sampled before and after detection.
    static let sampleLimit = 8

    /// The cost of taking their stacks, and those of lock owners.
    var costs: [CapturedStack.Cost] { stacks.map(\.stack.cost) + locks.flatMap(\.costs) }
}

extension PoolObservation {
    /// The threads of workers that wait for another worker.
    var waitingForOthers: Set<Int32> {
        let stalled = Set(workers.map(\.job.threadID))
        let waiting = locks.filter { lock in
            let owners = lock.waits.compactMap(\.reading.owner).filter { $0 != lock.waits.first?.threadID }
            return lock.closing == nil && !stalled.isDisjoint(with: owners)
        }
        return stalled.intersection(waiting.compactMap { $0.waits.first?.threadID })
    }
}
