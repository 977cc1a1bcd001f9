import CRunLoopShims
import Locking
import Synchronization

/// What the workers of a task pool publish about the jobs they run, so that a watcher sees when no worker is free.
///
/// A *job* is what a worker runs from the moment it takes it until it is ready for the next. For a Swift task, it is the code
/// between two suspensions. A suspended task is not a job and keeps no worker busy.
///
/// Swift's own pool is published automatically where the library `StallMonitorLoops` is linked. An executor of your own
/// publishes with two calls per job:
///
///     final class Workers: TaskExecutor {
///         let heartbeat = TaskPoolHeartbeat(label: "workers", width: 4)
///         func enqueue(_ job: consuming ExecutorJob) {
///             let job = UnownedJob(job)
///             heartbeat.didEnqueue()
///             queue.async { self.heartbeat.run { job.runSynchronously(on: self.asUnownedTaskExecutor()) } }
///         }
///     }
///
/// To its watcher a pool is a loop that is at rest while it has a free worker. It leaves its rest with the job that takes the
/// last free worker, and each job that then begins or ends is a transition. A pool with a free worker is not sampled and wakes
/// no watcher.
///
/// Cost of a job: two clock reads, two atomic additions to a word that all workers share, two atomic writes to a word that they
/// do not share. No lock, no allocation.
@safe public final class TaskPoolHeartbeat: Sendable {
    /// The pool's name in reports.
    public let label: String
    /// The number of jobs it runs at once.
    public let width: Int
    // Immutable. It points at atomics, and is freed with this object, to which each caller holds a reference.
    nonisolated(unsafe) let pool: OpaquePointer?
    let ended = Atomic<Bool>(false)
    /// Held while the watcher is called, so that ``detach()`` can promise that no call comes after it.
    private let watcher = ForkSafeMutex<(any LoopWatcher)?>(nil)
    /// Likewise, for the watcher that follows the jobs one by one.
    private let jobWatcher = ForkSafeMutex<(any LoopWatcher)?>(nil)

    /// Creates a pool at rest. If memory is short the pool stays at rest and counts nothing.
    ///
    /// - Parameters:
    ///   - label: Should not be empty, or reports are hard to read.
    ///   - width: 1 to 4,096; other numbers are clamped to that range.
    public init(label: String, width: Int) {
        self.label = label
        unsafe pool = task_pool_create(UInt32(clamping: width))
        self.width = unsafe pool.map { Int(unsafe task_pool_width($0)) } ?? min(max(width, 1), 4_096)
        unsafe pool.map { pool in
            unsafe task_pool_call(
                pool,
                { unsafe TaskPoolHeartbeat.wake($0, $1) },
                Unmanaged.passUnretained(self).toOpaque()
            )
        }
    }

    deinit { unsafe pool.map { unsafe task_pool_destroy($0) } }

    /// For C code that begins and ends jobs itself: a `task_pool`, valid as long as this object lives. Nil when memory is
    /// short.
    package var cPool: OpaquePointer? { unsafe pool }

    private static func wake(_ context: UnsafeMutableRawPointer?, _ event: task_pool_event) {
        // The thread that begins a job holds a reference to the object.
        unsafe context.map { unsafe Unmanaged<TaskPoolHeartbeat>.fromOpaque($0).takeUnretainedValue().signal(event) }
    }
}

// MARK: - The workers' side

extension TaskPoolHeartbeat {
    /// A job in progress: ``willRun()`` returns it and ``didRun(_:)`` takes it.
    public struct Job: Sendable {
        fileprivate let place: Int32
    }

    /// Begins a job on the calling thread. Any thread, also of a pool whose threads come and go; not from a signal handler.
    public func willRun() -> Job {
        Job(place: unsafe pool.map { unsafe task_pool_begin($0, nil) } ?? -1)
    }

    /// Ends the job. Call it on the thread that began the job, once: a second end, or a job of another pool, is ignored where
    /// it can be detected.
    public func didRun(_ job: Job) {
        unsafe pool.map { unsafe task_pool_end($0, job.place) }
    }

    /// Runs a job between ``willRun()`` and ``didRun(_:)``.
    public func run<Result, Failure: Error>(_ job: () throws(Failure) -> Result) throws(Failure) -> Result {
        let running = willRun()
        defer { didRun(running) }
        return try job()
    }

    /// Counts a job that waits for a worker from now on. Optional: a report then gives the number that waited. Any thread.
    public func didEnqueue() {
        unsafe pool.map { unsafe task_pool_enqueue($0) }
    }

    /// Publishes that the pool has ended: nothing more is published, and its watcher removes it. Any thread.
    public func end() {
        // Sequentially consistent, as in `LoopHeartbeat.end()`.
        ended.store(true, ordering: .sequentiallyConsistent)
        signal(TASK_POOL_FULL)
        signal(TASK_POOL_BUSY)
    }

    private func signal(_ event: task_pool_event) {
        // Under the lock, so that a departing watcher's request is never answered to the watcher that follows it.
        withWatcher(of: event) { watcher in
            // The exchange decides who owns the request: this job, or a watcher that withdraws it.
            if setRequest(event, false) { watcher?.loopDidLeaveRest() }
        }
    }

    func withWatcher<Result: Sendable>(
        of event: task_pool_event,
        _ body: (inout (any LoopWatcher)?) -> Result
    ) -> Result {
        event == TASK_POOL_FULL ? watcher.withLock { body(&$0) } : jobWatcher.withLock { body(&$0) }
    }

    /// The same in a fork's child. Nil if the lock is held, perhaps forever, by a thread of the parent.
    func withWatcherIfAvailable<Result: Sendable>(
        of event: task_pool_event,
        _ body: (inout (any LoopWatcher)?) -> Result
    ) -> Result? {
        event == TASK_POOL_FULL
            ? watcher.withLockIfAvailable { body(&$0) } : jobWatcher.withLockIfAvailable { body(&$0) }
    }

    @discardableResult
    func setRequest(_ event: task_pool_event, _ wanted: Bool) -> Bool {
        unsafe pool.map { unsafe task_pool_request_wake($0, event, wanted) } ?? false
    }
}
