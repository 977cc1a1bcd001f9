import RunLoopKit
import StallDiagnosis
import StallReports

/// What is watched: a loop; a task pool, which the watchdog treats as a loop that rests while a worker is free; or the single
/// jobs of a pool.
enum WatchedThing: Sendable {
    case loop(any WatchableLoop)
    case pool(TaskPoolHeartbeat)
    case job(OldestJob)

    var heartbeat: any WatchedHeartbeat {
        switch self {
        case .loop(let loop): loop.heartbeat
        case .pool(let pool): pool
        case .job(let job): job
        }
    }

    /// Nil for a loop, and for single jobs.
    var pool: TaskPoolHeartbeat? { if case .pool(let pool) = self { pool } else { nil } }

    /// The jobs that are stalled when a pool is, the one that has run for longest first. Empty for a loop.
    var jobs: [TaskPoolHeartbeat.RunningJob] {
        switch self {
        case .loop: []
        case .pool(let pool): pool.runningJobs ?? []
        case .job(let job): job.pool.oldestJob.map { [$0] } ?? []
        }
    }

    /// The loop's thread. For a pool, the thread of the worker that has been at its job for longest.
    var thread: LoopThread? {
        if case .loop(let loop) = self { return loop.thread }
        return jobs.first.map { LoopThread(id: $0.threadID, stack: 0..<0) }
    }

    /// All threads that are stalled when the thing is stalled.
    var threadIDs: [Int32] {
        if case .loop(let loop) = self { return loop.thread.map { [$0.id] } ?? [] }
        return jobs.prefix(PoolObservation.workerLimit).map(\.threadID)
    }

    /// Nil for a pool, which has no modes.
    func modeName(at index: Int) -> String? { if case .loop(let loop) = self { loop.modeName(at: index) } else { nil } }

    /// What it waits for while it rests. Nil if it is not a loop, or if that is unknown.
    func awaited(at pulse: LoopHeartbeat.Pulse) -> AwaitedDescriptors? {
        guard case .loop(let loop) = self else { return nil }
        if let set = loop.waitSet(inMode: pulse.modeIndex) { return .set(set) }
        return (loop as? any PollingLoop).map { .list($0.polledDescriptors) }
    }

    /// Whether a wait on this descriptor is the loop's own. Always false for a worker, which rests elsewhere.
    func waits(on descriptor: Int32) -> Bool {
        if case .loop(let loop) = self { loop.waits(on: descriptor) } else { false }
    }
}

/// What the watchdog reads and requests. The members are documented at ``LoopHeartbeat``.
protocol WatchedHeartbeat: AnyObject, Sendable {
    var pulse: LoopHeartbeat.Pulse { get }
    var turnStamp: UInt64 { get }
    var busySince: UInt64 { get }
    var calloutCount: UInt64 { get }
    var calloutsAtTurnStamp: UInt64 { get }
    var hasEnded: Bool { get }

    /// The lengths of ended turns. For a pool, of its jobs.
    var turnHistogram: TurnHistogram { get }
    /// The function in which a pool's longest job began, then those that awaited it, by address. Empty if unknown, or if it is
    /// not a pool.
    var longestFunctions: [UInt] { get }
    /// How many turns, or jobs, have begun so far, modulo 2^40.
    var turnCount: UInt64 { get }
    var longTurnCount: UInt64 { get }
    func longTurns(from first: UInt64) -> (turns: [BusyTurn], next: UInt64)
    func keepTurns(longerThan length: Duration)

    func attach(_ watcher: any LoopWatcher) -> Bool
    func detach()
    func detachInChild()
    func requestWakeSignal() -> Bool
    func requestTransitionStamp()
    func takeTransitionStamp() -> UInt64?
}

extension LoopHeartbeat: WatchedHeartbeat {
    var turnCount: UInt64 { pulse.turn }
    var longestFunctions: [UInt] { [] }
}

/// Pools have no callouts. Their turns are not kept: between two times without a free worker, a pool may have done any amount of
/// work.
protocol PoolHeartbeat: WatchedHeartbeat {}

extension PoolHeartbeat {
    var busySince: UInt64 { turnStamp }
    var calloutCount: UInt64 { 0 }
    var calloutsAtTurnStamp: UInt64 { 0 }
    var longTurnCount: UInt64 { 0 }
    func longTurns(from first: UInt64) -> (turns: [BusyTurn], next: UInt64) { ([], 0) }
    func keepTurns(longerThan length: Duration) {}
}

extension TaskPoolHeartbeat: PoolHeartbeat {
    var turnHistogram: TurnHistogram { jobLengths.lengths }
    var longestFunctions: [UInt] { jobLengths.longestFunctions }
    var turnCount: UInt64 { begunCount }
}

/// The single jobs of a task pool. The watchdog treats them as a loop that rests while no job runs, and that does not move while
/// the same job is the oldest.
///
/// So a long job is found even if others begin and end beside it. A job that has already run for a while when it becomes the
/// oldest counts from then on: if two long jobs overlap, the second may be missed.
final class OldestJob: PoolHeartbeat, Sendable {
    let pool: TaskPoolHeartbeat

    init(of pool: TaskPoolHeartbeat) { self.pool = pool }

    /// Its turn identifies the job.
    var pulse: LoopHeartbeat.Pulse {
        guard let job = pool.oldestJob else { return .init(phase: .waiting, modeIndex: 0, turn: 0) }
        let turn = job.since.nanoseconds ^ UInt64(truncatingIfNeeded: job.threadID) << 24
        return .init(phase: .beforeSources, modeIndex: 0, turn: turn)
    }

    var turnStamp: UInt64 { pool.oldestJob?.since.nanoseconds ?? 0 }
    var hasEnded: Bool { pool.hasEnded }

    func attach(_ watcher: any LoopWatcher) -> Bool { pool.attachToJobs(watcher) }
    func detach() { pool.detachFromJobs() }
    func detachInChild() { pool.detachFromJobsInChild() }
    func requestWakeSignal() -> Bool { pool.requestJobSignal() }

    // The end of a job has no stamp: from the next look on another job is the oldest. The pool counts the jobs.
    func requestTransitionStamp() {}
    func takeTransitionStamp() -> UInt64? { nil }
    var turnHistogram: TurnHistogram { TurnHistogram() }
    var longestFunctions: [UInt] { [] }
    var turnCount: UInt64 { 0 }
}

/// The name of a watched loop in reports.
struct WatchName: Hashable, Sendable {
    var type: WatchedType
    var label: String
    /// The service of another process whose loop it is. Nil for a loop of this process.
    var service: String?
    /// Whether it is the second watch of a pool, of its jobs one by one.
    var isOfJobs = false
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
