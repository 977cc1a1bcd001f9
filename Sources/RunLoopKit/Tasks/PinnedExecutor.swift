internal import Dispatch

/// The serial executor of the actors that are pinned to a loop: what ``EventRunLoop/asUnownedSerialExecutor()`` refers to. The loop owns it.
///
/// It is another object than the loop, which is the task executor, because the runtime does not say as which of the two it calls, but
/// must be told when a job runs: told wrongly, it sends a task through the queue again at each step that is not isolated.
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
