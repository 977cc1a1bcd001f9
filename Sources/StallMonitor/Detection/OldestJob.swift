import RunLoopKit

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
