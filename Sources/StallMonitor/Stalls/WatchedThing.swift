import RunLoopKit
import StallReports

/// What is watched: a loop, or a task pool, which to the watchdog is a loop that rests while it has a free worker; or a pool's jobs one by one.
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

    /// Nil for a loop, and for one job.
    var pool: TaskPoolHeartbeat? { if case .pool(let pool) = self { pool } else { nil } }

    /// The loop's; of a pool, the worker's that has been at its job for longest.
    var thread: LoopThread? {
        switch self {
        case .loop(let loop): loop.thread
        case .pool(let pool): pool.runningJobs?.first.map { LoopThread(id: $0.threadID, stack: 0..<0) }
        case .job(let job): job.pool.oldestJob.map { LoopThread(id: $0.threadID, stack: 0..<0) }
        }
    }

    /// All that stand if it does.
    var threadIDs: [Int32] {
        switch self {
        case .loop(let loop): loop.thread.map { [$0.id] } ?? []
        case .pool(let pool): pool.runningJobs?.prefix(PoolObservation.workerLimit).map(\.threadID) ?? []
        case .job(let job): job.pool.oldestJob.map { [$0.threadID] } ?? []
        }
    }

    /// Nil for a pool, which has no modes.
    func modeName(at index: Int) -> String? { if case .loop(let loop) = self { loop.modeName(at: index) } else { nil } }

    /// The epoll set that it rests on at a pulse, if it is a loop and that is known.
    func waitSet(at pulse: LoopHeartbeat.Pulse) -> Int32? {
        if case .loop(let loop) = self { loop.waitSet(inMode: pulse.modeIndex) } else { nil }
    }

    /// Whether a wait on this descriptor is the loop's own. A worker's never is: it rests elsewhere.
    func waits(on descriptor: Int32) -> Bool {
        if case .loop(let loop) = self { loop.waits(on: descriptor) } else { false }
    }
}

/// What the watchdog reads off a watched thing, and asks of it. What each member promises is said at ``LoopHeartbeat``.
protocol WatchedHeartbeat: AnyObject, Sendable {
    var pulse: LoopHeartbeat.Pulse { get }
    var turnStamp: UInt64 { get }
    var busySince: UInt64 { get }
    var calloutCount: UInt64 { get }
    var calloutsAtTurnStamp: UInt64 { get }
    var hasEnded: Bool { get }

    /// How long the turns took that have ended; of a pool, its jobs.
    var turnHistogram: TurnHistogram { get }
    /// Where the longest of a pool's jobs began, then those that awaited it: code. Empty: nobody said, or it is no pool.
    var longestFunctions: [UInt] { get }
    /// Turns, or jobs, begun so far; modulo 2^40.
    var turnCount: UInt64 { get }
    var longTurnCount: UInt64 { get }
    func longTurns(from first: UInt64) -> (turns: [BusyTurn], next: UInt64)
    func keepTurns(longerThan length: Duration)

    func attach(_ watcher: any LoopWatcher) -> Bool
    func detach()
    func requestWakeSignal() -> Bool
    func requestTransitionStamp()
    func takeTransitionStamp() -> UInt64?
}

extension LoopHeartbeat: WatchedHeartbeat {
    var turnCount: UInt64 { pulse.turn }
    var longestFunctions: [UInt] { [] }
}

/// A pool has no callouts, and what it calls its turns is not kept: between two times without a free worker it may have done a lot.
extension TaskPoolHeartbeat: WatchedHeartbeat {
    var busySince: UInt64 { turnStamp }
    var calloutCount: UInt64 { 0 }
    var calloutsAtTurnStamp: UInt64 { 0 }
    var turnHistogram: TurnHistogram { jobLengths.lengths }
    var longestFunctions: [UInt] { jobLengths.longestFunctions }
    var turnCount: UInt64 { begunCount }
    var longTurnCount: UInt64 { 0 }
    func longTurns(from first: UInt64) -> (turns: [BusyTurn], next: UInt64) { ([], 0) }
    func keepTurns(longerThan length: Duration) {}
}

/// The jobs of a task pool one by one: to the watchdog a loop that rests while none is in progress, and stands as long as the oldest is the same.
///
/// So a job that lasts is found although others come and go beside it. One that becomes the oldest when it has lasted for a while is counted
/// from then on: of two long jobs that overlap the second may be missed.
final class OldestJob: WatchedHeartbeat, Sendable {
    let pool: TaskPoolHeartbeat

    init(of pool: TaskPoolHeartbeat) { self.pool = pool }

    /// Its turn tells one job from another.
    var pulse: LoopHeartbeat.Pulse {
        guard let job = pool.oldestJob else { return .init(phase: .waiting, modeIndex: 0, turn: 0) }
        let turn = job.since.nanoseconds ^ UInt64(truncatingIfNeeded: job.threadID) << 24
        return .init(phase: .beforeSources, modeIndex: 0, turn: turn)
    }

    var turnStamp: UInt64 { pool.oldestJob?.since.nanoseconds ?? 0 }
    var busySince: UInt64 { turnStamp }
    var hasEnded: Bool { pool.hasEnded }

    func attach(_ watcher: any LoopWatcher) -> Bool { pool.attachToJobs(watcher) }
    func detach() { pool.detachFromJobs() }
    func requestWakeSignal() -> Bool { pool.requestJobSignal() }

    // The end of one job is not stamped: another is the oldest then, and known from a look on. What is counted of jobs is the pool's.
    func requestTransitionStamp() {}
    func takeTransitionStamp() -> UInt64? { nil }
    var calloutCount: UInt64 { 0 }
    var calloutsAtTurnStamp: UInt64 { 0 }
    var turnHistogram: TurnHistogram { TurnHistogram() }
    var longestFunctions: [UInt] { [] }
    var turnCount: UInt64 { 0 }
    var longTurnCount: UInt64 { 0 }
    func longTurns(from first: UInt64) -> (turns: [BusyTurn], next: UInt64) { ([], 0) }
    func keepTurns(longerThan length: Duration) {}
}
