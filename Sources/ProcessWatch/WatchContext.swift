import RunLoopKit
package import StackCapture
import StallDetection
import StallMonitor

/// What all loops and pools of one process have in common. Confined to the watcher's thread.
struct WatchContext {
    let processID: Int32
    let process: OutsideProcess
    let reporter: OutsideReporter
    let rule: LoopRule
    /// The rule by which several long turns in a row are a stall.
    let stallRule: StallRule
    /// Whether what a main thread polls does not matter: see ``WatchOptions/takesPollsForLoops``.
    let takesPollsForLoops: Bool
    /// Whether breakpoints can be set.
    let hasBreakpoints: Bool
    /// By how much the watcher was late for this look.
    let lateness: Duration
    /// Whether another thread of the process waits on this descriptor right now. If so, that thread serves its events.
    let isServed: (Int32, _ except: Int32) -> Bool
    let tell: (WatchNote) -> Void
}

/// A message about the watching itself.
package enum WatchNote: Sendable {
    case watching(processID: Int32, name: String)
    case foundLoop(processID: Int32, threadID: Int32, loop: String)
    /// The task pool of one priority of Swift's tasks, and how many jobs it runs at once.
    case foundPool(processID: Int32, pool: String, width: Int)
    /// No worker of a pool is free, and nothing shows whether they go from job to job. Once for each pool.
    case unprovenPool(processID: Int32, pool: String, hasBreakpoints: Bool)
    /// The process has a task pool, but its libdispatch has no symbol table, so it cannot be judged.
    case namelessPools(processID: Int32)
    /// No loop was found for some seconds. `threads` says what its threads do instead, and how many do so. `children` is the number of its
    /// child processes if these are not followed. `mainPolls`: its main thread waits in poll or select, but not for what only loops wait for.
    case noLoop(
        processID: Int32,
        name: String,
        threads: [(what: String, count: Int)],
        mainPolls: Bool,
        children: Int
    )
    /// Threads that may run a loop, although none was found for some seconds, and what each of them does. Other threads of the
    /// process have loops.
    case unjudged(processID: Int32, threads: [(name: String, what: String)], mainPolls: Bool)
    /// Several threads wait for one descriptor in turn, of an epoll set or an io_uring: none of them runs a loop of its own.
    case sharedDescriptor(processID: Int32, descriptor: Int32, threads: Int)
    /// A loop is busy, and nothing shows whether it turns. Sent once for each loop. If there are breakpoints, none could be set on its thread.
    case unproven(processID: Int32, threadID: Int32, loop: String, hasBreakpoints: Bool)
    case newProgram(processID: Int32, name: String)
    case ended(processID: Int32, name: String)
    /// A watched process lives, but can no longer be read. Once for each program.
    case unreadable(processID: Int32, name: String)
    /// This process may open no more files, so some threads of a process are not watched. Once for each program.
    case crowded(processID: Int32, openFiles: Int)
    /// The process runs a script, whose functions have no names without these options of its interpreter.
    case namelessScript(processID: Int32, name: String, options: String)
    /// A child that cannot be watched.
    case refused(processID: Int32, error: CaptureError)
    /// Breakpoints cannot be set: why not, and what to do.
    case unarmed(String)
}

extension SamplePace {
    /// Looks are planned a tick apart, and come closer together if the first one was late.
    func isDue(at time: MonotonicInstant, _ tick: Duration) -> Bool { isDue(at: time, least: tick - tick / 25) }
}
