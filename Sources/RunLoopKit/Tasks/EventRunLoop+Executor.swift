internal import Dispatch
internal import Synchronization

/// A loop runs Swift tasks: an actor can be pinned to its thread, and a task can prefer it (R61).
///
///     actor Camera {
///         let loop: EventRunLoop  // keeps the executor alive
///         nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }
///     }
///     Task(executorPreference: loop) { … }
///
/// Jobs run on the loop's thread in runs of common modes, first in, first out, whatever their priority; each drain point of a turn
/// (R14 c, e, j) runs those that are there when it comes, so that tasks cannot starve timers and descriptors. Enqueuing wakes the loop.
/// A job keeps a mode from being empty, as a block does, and is no source handled (R9, R19): a loop that lives for its actors needs a
/// source to stay in its run.
///
/// A run nested inside a job runs no other jobs: an actor is not entered twice. A job that waits there for another of the same loop
/// waits in vain. (A run nested in a timer or a source does run jobs. If such a callback has assumed an actor's isolation, it must not
/// nest a run before it is done with the actor's state.)
///
/// When the thread ends, it runs the jobs that are there. Later ones, which have no thread to run on, run one at a time and in order on a
/// dispatch queue, with a complaint on stderr: isolation holds, and no task hangs (R3).
extension EventRunLoop: SerialExecutor, TaskExecutor {
    /// For the runtime: queues a job of a task that prefers this loop. Any thread.
    public func enqueue(_ job: consuming ExecutorJob) {
        let job = JobQueue.Job(job: UnownedJob(job), isOfActor: false)
        guard let successor = jobs.append(job) else { return }
        successor.async { self.run(job) }
    }

    /// The executor of an actor that is to be pinned to the loop's thread. The actor must hold the loop. Any thread.
    ///
    /// The main loop's is the main actor's own: calls between the two need no hop, and R58 holds for both.
    public func asUnownedSerialExecutor() -> UnownedSerialExecutor {
        unsafe isMain ? MainActor.sharedUnownedExecutor : pinned.asUnownedSerialExecutor()
    }

    /// Whether the caller is on the loop's thread. `preconditionIsolated()` and `assumeIsolated(_:)` of pinned actors go by this.
    public func isIsolatingCurrentContext() -> Bool? { isOnOwnThread || jobs.isOnSuccessor }

    /// Traps if the caller is not on the loop's thread. For the runtime.
    public func checkIsolated() { require(isIsolatingCurrentContext() == true, EventRunLoop.notIsolated) }

    static let notIsolated = "This must run on the run loop's thread; await the actor that is pinned to it."
}

// MARK: - The loop's side

extension EventRunLoop {
    /// Whether there are jobs for a run of this mode.
    func hasJobs(for mode: LoopMode) -> Bool { jobs.hasJobs && mode.isCommon.load(ordering: .acquiring) }

    /// Runs the jobs that are there now, if they may run in this mode.
    func runJobs(in mode: LoopMode) {
        guard hasJobs(for: mode) else { return }
        jobs.drain { job in
            heartbeat.noteCallout()
            callOut(job, loop: self)
        }
    }

    /// Runs the last jobs on the thread that ends, and sees that later ones are not lost.
    func endJobs() {
        if jobs.hasJobs { jobs.drain { callOut($0, loop: self) } }
        jobs.close { job in self.run(job) }
    }

    func run(_ job: JobQueue.Job) {
        if job.isOfActor { return pinned.run(job) }
        unsafe job.job.runSynchronously(on: asUnownedTaskExecutor())
    }
}
