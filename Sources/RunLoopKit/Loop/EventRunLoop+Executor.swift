import Dispatch
import Locking
import Synchronization

/// A loop runs Swift tasks: an actor can be pinned to its thread, and a task can prefer it (R61).
///
///     actor Camera {
///         let loop: EventRunLoop  // keeps the executor alive
///         nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }
///     }
///     Task(executorPreference: loop) { … }
///
/// Jobs run on the loop's thread in runs of common modes, first in, first out, whatever their priority. Each drain point of a
/// turn (R14 c, e, j) runs the jobs that are queued when it begins, so that tasks cannot starve timers and descriptors.
/// Enqueuing wakes the loop. A job keeps a mode from being empty, as a block does, and does not count as a source handled (R9,
/// R19): a loop that exists for its actors needs a source to stay in its run.
///
/// A run nested inside a job runs no other jobs, because an actor must not be entered twice. A job that waits there for another
/// job of the same loop waits forever. (A run nested in a timer or a source does run jobs. If such a callback has assumed an
/// actor's isolation, it must not nest a run before it is done with the actor's state.)
///
/// When the thread ends, it runs the jobs that are queued. Later jobs have no thread to run on; they run one at a time and in
/// order on a dispatch queue, with a warning on stderr: isolation holds, and no task hangs (R3).
extension EventRunLoop: SerialExecutor, TaskExecutor {
    /// Called by the runtime: queues a job of a task that prefers this loop. Any thread.
    public func enqueue(_ job: consuming ExecutorJob) {
        let job = JobQueue.Job(job: UnownedJob(job), isOfActor: false)
        guard let successor = jobs.append(job) else { return }
        successor.async { self.run(job) }
    }

    /// The executor for an actor that is pinned to the loop's thread. The actor must retain the loop. Any thread.
    ///
    /// The main loop's executor is the main actor's own: calls between the two need no hop, and R58 holds for both.
    public func asUnownedSerialExecutor() -> UnownedSerialExecutor {
        unsafe isMain ? MainActor.sharedUnownedExecutor : pinned.asUnownedSerialExecutor()
    }

    /// Whether the caller is on the loop's thread. `preconditionIsolated()` and `assumeIsolated(_:)` of pinned actors use this.
    public func isIsolatingCurrentContext() -> Bool? { isOnOwnThread || jobs.isOnSuccessor }

    /// Traps if the caller is not on the loop's thread. Called by the runtime.
    public func checkIsolated() { require(isIsolatingCurrentContext() == true, EventRunLoop.notIsolated) }

    static let notIsolated = "This must run on the run loop's thread; await the actor that is pinned to it."
}

// MARK: - The loop's side

extension EventRunLoop {
    /// Whether there are jobs for a run of this mode.
    func hasJobs(for mode: LoopMode) -> Bool { jobs.hasJobs && mode.isCommon.load(ordering: .acquiring) }

    /// Runs the jobs that are queued now, if they may run in this mode.
    func runJobs(in mode: LoopMode) {
        guard hasJobs(for: mode) else { return }
        jobs.drain { job in
            heartbeat.noteCallout()
            callOut(job, loop: self)
        }
    }

    /// Runs the last jobs on the ending thread, and ensures that later ones are not lost.
    func endJobs() {
        if jobs.hasJobs { jobs.drain { callOut($0, loop: self) } }
        jobs.close { job in self.run(job) }
    }

    func run(_ job: JobQueue.Job) {
        if job.isOfActor { return pinned.run(job) }
        unsafe job.job.runSynchronously(on: asUnownedTaskExecutor())
    }
}

/// The serial executor of the actors that are pinned to a loop; ``EventRunLoop/asUnownedSerialExecutor()`` refers to it. The
/// loop owns it.
///
/// It is a different object from the loop, which is the task executor. When a job runs, the caller must pass the runtime the
/// executor that the job was enqueued on, and the runtime does not say which of the two it enqueues on. With the wrong executor
/// it sends a task through the queue again at each step that is not isolated.
final class PinnedExecutor: SerialExecutor {
    private let jobs: JobQueue

    init(jobs: JobQueue) { self.jobs = jobs }

    func enqueue(_ job: consuming ExecutorJob) {
        let job = JobQueue.Job(job: UnownedJob(job), isOfActor: true)
        guard let successor = jobs.append(job) else { return }
        successor.async { self.run(job) }
    }

    func run(_ job: JobQueue.Job) { unsafe job.job.runSynchronously(on: asUnownedSerialExecutor()) }

    func isIsolatingCurrentContext() -> Bool? { isOnThreadOfLoop || jobs.isOnSuccessor }

    func checkIsolated() { require(isIsolatingCurrentContext() == true, EventRunLoop.notIsolated) }

    private var isOnThreadOfLoop: Bool { LoopRegistry.existing?.pinned === self }
}

/// The jobs of Swift tasks that wait for a loop, in the order in which they were enqueued (R61). Any thread enqueues; the
/// loop's thread takes.
///
/// A job is an unowned pointer that must be run exactly once: if a job is dropped, its task never continues. So a queue whose
/// loop has ended does not refuse jobs: it names a successor, a serial dispatch queue, which keeps all guarantees of an actor
/// except the thread.
final class JobQueue: Sendable {
    struct Job: Sendable {
        let job: UnownedJob
        /// Whether the job belongs to an actor that is pinned to the loop; otherwise to a task that prefers the loop.
        let isOfActor: Bool
    }

    private struct State: Sendable {
        var jobs: [Job] = []
        /// A second buffer, swapped with `jobs`, so that turns do not allocate.
        var spare: [Job] = []
        var hasEnded = false
        /// Created when the first job needs it.
        var successor: DispatchQueue?
    }

    private let state = ForkSafeMutex(State())
    /// Written under the lock and read without it by the loop's thread: a job that is enqueued at that moment is left for the
    /// next drain point.
    private let count = Atomic<Int>(0)
    /// A job is on the stack. The loop's thread; relaxed.
    private let isRunningFlag = Atomic<Bool>(false)
    private let wake: WakeUp

    init(wake: WakeUp) { self.wake = wake }

    /// Queues a job and wakes the loop, or returns the queue that has to run it because the loop has ended.
    func append(_ job: Job) -> DispatchQueue? {
        let successor: DispatchQueue? = state.withLock { state in
            if state.hasEnded { return makeSuccessor(&state) }
            state.jobs.append(job)
            count.store(state.jobs.count, ordering: .releasing)
            return nil
        }
        guard let successor else {
            wake.post()
            return nil
        }
        LoopWarning.taskAfterEnd.printOnce()
        return successor
    }

    private func makeSuccessor(_ state: inout State) -> DispatchQueue {
        if let present = state.successor { return present }
        let made = DispatchQueue(label: "RunLoopKit.successor")
        made.setSpecific(key: JobQueue.successorKey, value: ObjectIdentifier(self))
        state.successor = made
        return made
    }

    /// Whether the caller is a job run by the successor.
    var isOnSuccessor: Bool { DispatchQueue.getSpecific(key: JobQueue.successorKey) == ObjectIdentifier(self) }

    private static let successorKey = DispatchSpecificKey<ObjectIdentifier>()
}

// MARK: - The loop's side

extension JobQueue {
    /// Whether there are jobs that may run now: never inside a job, because its actor would be entered a second time.
    var hasJobs: Bool { count.load(ordering: .acquiring) > 0 && !isRunningFlag.load(ordering: .relaxed) }

    /// Runs the jobs that are queued now. Not inside a job.
    func drain(_ run: (Job) -> Void) {
        let batch = take()
        isRunningFlag.store(true, ordering: .relaxed)
        for job in batch { run(job) }
        isRunningFlag.store(false, ordering: .relaxed)
        recycle(batch)
    }

    private func take() -> [Job] {
        state.withLock { state in
            var taken = state.spare.take()
            swap(&taken, &state.jobs)
            count.store(0, ordering: .releasing)
            return taken
        }
    }

    private func recycle(_ buffer: consuming [Job]) {
        buffer.removeAll(keepingCapacity: true)
        state.withLock { state in
            if state.spare.capacity < buffer.capacity { swap(&state.spare, &buffer) }
        }
    }

    /// Leaves the queued jobs, and all later ones, to the successor.
    func close(_ run: @escaping @Sendable (Job) -> Void) {
        state.withLock { state in
            state.hasEnded = true
            count.store(0, ordering: .releasing)
            // Under the lock, so that a later job does not overtake these. No job runs here.
            for job in state.jobs.take() { makeSuccessor(&state).async { run(job) } }
        }
    }
}
