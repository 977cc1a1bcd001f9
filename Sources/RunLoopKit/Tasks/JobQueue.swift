internal import Dispatch
internal import Synchronization

/// The jobs of Swift tasks that wait for a loop, in the order of their coming (R61). Any thread enqueues; the loop's thread takes.
///
/// A job is an unowned pointer that must be run exactly once: one that is dropped is a task that never goes on. So a queue whose loop
/// has ended does not refuse: it names a successor, a serial dispatch queue, which keeps what an actor is promised but the thread.
final class JobQueue: Sendable {
    struct Job: Sendable {
        let job: UnownedJob
        /// Of an actor that is pinned to the loop; else of a task that prefers the loop.
        let isOfActor: Bool
    }

    private struct State: Sendable {
        var jobs: [Job] = []
        /// A second buffer, to be swapped with `jobs`, so that turns do not allocate.
        var spare: [Job] = []
        var hasEnded = false
        /// Made when there is something for it to do.
        var successor: DispatchQueue?
    }

    private let state = Mutex(State())
    /// Written under the lock; read without it by the loop's thread, for which a job that comes in that moment is one for the next
    /// drain point.
    private let count = Atomic<Int>(0)
    /// A job is on the stack. The loop's thread; relaxed.
    private let isRunningFlag = Atomic<Bool>(false)
    private let wake: WakeUp

    init(wake: WakeUp) { self.wake = wake }

    /// Queues a job and wakes the loop, or returns the queue that is to run it because the loop has ended.
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
        Complaint.taskAfterEnd.make()
        return successor
    }

    private func makeSuccessor(_ state: inout State) -> DispatchQueue {
        if let present = state.successor { return present }
        let made = DispatchQueue(label: "RunLoopKit.successor")
        made.setSpecific(key: JobQueue.successorKey, value: ObjectIdentifier(self))
        state.successor = made
        return made
    }

    /// Whether the caller is a job that the successor runs.
    var isOnSuccessor: Bool { DispatchQueue.getSpecific(key: JobQueue.successorKey) == ObjectIdentifier(self) }

    private static let successorKey = DispatchSpecificKey<ObjectIdentifier>()
}

// MARK: - The loop's side

extension JobQueue {
    /// Whether there are jobs that may run now: never inside a job, whose actor would be entered a second time.
    var hasJobs: Bool { count.load(ordering: .acquiring) > 0 && !isRunningFlag.load(ordering: .relaxed) }

    /// Runs the jobs that are there now. Not inside a job.
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

    /// Leaves what is queued, and all that comes later, to the successor.
    func close(_ run: @escaping @Sendable (Job) -> Void) {
        state.withLock { state in
            state.hasEnded = true
            count.store(0, ordering: .releasing)
            // Under the lock, so that a later job does not overtake these. It runs nothing here.
            for job in state.jobs.take() { makeSuccessor(&state).async { run(job) } }
        }
    }
}
