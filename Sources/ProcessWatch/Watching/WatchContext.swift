import RunLoopKit
import StallDetection
import StallMonitor

/// What all loops and pools of one process have in common. Confined to the watcher's thread.
struct WatchContext {
    let processID: Int32
    let process: OutsideProcess
    let reporter: OutsideReporter
    let rule: LoopRule
    /// By which rows of long turns are stalls.
    let stallRule: StallRule
    /// Whether breakpoints can be set.
    let hasBreakpoints: Bool
    /// By how much the watcher was late for this look.
    var lateness: Duration = .zero
    /// Whether another thread of the process waits on this descriptor right now. If so, that thread serves its events.
    var isServed: (Int32, _ except: Int32) -> Bool = { _, _ in false }
    /// Called for a loop that is busy, and of which nothing shows whether it turns.
    var tellUnproven: (ObservedLoop) -> Void = { _ in }
    var tellPool: (ObservedPool) -> Void = { _ in }
    /// The same for a pool of which no worker rests.
    var tellUnprovenPool: (ObservedPool) -> Void = { _ in }
    /// The process has a task pool whose workers' stacks cannot be understood.
    var tellNamelessPools: () -> Void = {}
}

/// When to take another stack sample of a stall: every tick at first, later less and less often.
struct SamplePace {
    private var first: MonotonicInstant?
    private var last: MonotonicInstant?

    func isDue(at time: MonotonicInstant, _ tick: Duration) -> Bool {
        guard let first, let last else { return true }
        return time - last >= max(tick - tick / 25, (time - first) / 4)
    }

    mutating func note(_ time: MonotonicInstant) { (first, last) = (first ?? time, time) }
}

extension OutsideSpan {
    init(_ times: LoopRule.StallTimes) {
        self.init(began: times.began, ended: times.ended, excluded: times.unproven)
    }
}
