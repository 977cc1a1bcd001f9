internal import CRunLoopShims
import Locking
internal import Synchronization

/// What the workers of a task pool publish of the jobs they run, so that a watcher sees when no worker is free.
///
/// A *job* is what a worker runs from the moment it takes it until it is ready for the next: of a Swift task, what lies between two
/// suspensions. A suspended task is no job and keeps nobody busy.
///
/// Swift's own pool publishes itself where the library `StallMonitorLoops` is linked. An executor of your own does by two calls a job:
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
/// To its watcher a pool is a loop that rests while it has a free worker: it leaves its rest with the job that takes the last one, and each
/// job that then begins or ends is a transition. A pool with a free worker is not looked at, and wakes nobody.
///
/// Cost of a job: two looks at the clock, two atomic additions to one word that the workers share, two atomic writes to one that they do not.
/// No lock, no allocation.
@safe public final class TaskPoolHeartbeat: Sendable {
    /// What people call the pool.
    public let label: String
    /// How many jobs it runs at once.
    public let width: Int
    // Immutable; what it points at are atomics, and it is freed with this object, which whoever calls has.
    nonisolated(unsafe) private let pool: OpaquePointer?
    private let ended = Atomic<Bool>(false)
    /// Held while the watcher is called, so that ``detach()`` can promise that no call comes after it.
    private let watcher = ForkSafeMutex<(any LoopWatcher)?>(nil)
    /// Likewise, of who watches the jobs one by one.
    private let jobWatcher = ForkSafeMutex<(any LoopWatcher)?>(nil)

    /// A pool at rest. When memory is short it stays at rest: nothing is counted.
    ///
    /// - Parameters:
    ///   - label: not empty, or reports are hard to read.
    ///   - width: 1 to 4,096; another number is brought to the nearer end.
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

    /// For C code that begins and ends jobs by itself: a `task_pool`, as long as this object lives. Nil when memory is short.
    package var place: OpaquePointer? { unsafe pool }

    private static func wake(_ context: UnsafeMutableRawPointer?, _ wish: task_pool_wish) {
        // Whoever begins a job has the object.
        unsafe context.map { unsafe Unmanaged<TaskPoolHeartbeat>.fromOpaque($0).takeUnretainedValue().signal(wish) }
    }
}

// MARK: - The workers' side

extension TaskPoolHeartbeat {
    /// A job in progress: what ``willRun()`` gives and ``didRun(_:)`` takes.
    public struct Job: Sendable {
        fileprivate let place: Int32
    }

    /// A job begins on the calling thread. Any thread, also of a pool whose threads come and go; not from a signal handler.
    public func willRun() -> Job {
        Job(place: unsafe pool.map { unsafe task_pool_begin($0, nil) } ?? -1)
    }

    /// The job has ended. On the thread that began it, once: a second end, or a job of another pool, is ignored where that can be seen.
    public func didRun(_ job: Job) {
        unsafe pool.map { unsafe task_pool_end($0, job.place) }
    }

    /// Runs a job, between ``willRun()`` and ``didRun(_:)``.
    public func run<Result, Failure: Error>(_ job: () throws(Failure) -> Result) throws(Failure) -> Result {
        let running = willRun()
        defer { didRun(running) }
        return try job()
    }

    /// A job waits for a worker from now on. Optional: then a report tells how many waited. Any thread.
    public func didEnqueue() {
        unsafe pool.map { unsafe task_pool_enqueue($0) }
    }

    /// Says that the pool has ended: nothing will be published any more, and its watcher forgets it. Any thread.
    public func end() {
        // Sequentially consistent, as in `LoopHeartbeat.end()`.
        ended.store(true, ordering: .sequentiallyConsistent)
        signal(TASK_POOL_FULL)
        signal(TASK_POOL_BUSY)
    }

    private func signal(_ wish: task_pool_wish) {
        // Under the lock, so that a wish of a watcher that leaves is never granted to the one that comes after it.
        withWatcher(of: wish) { watcher in
            // The exchange decides who has the wish: this job, or a watcher that takes it back.
            if self.wish(wish, false) { watcher?.loopDidLeaveRest() }
        }
    }

    private func withWatcher<Result: Sendable>(
        of wish: task_pool_wish,
        _ body: (inout (any LoopWatcher)?) -> Result
    ) -> Result {
        wish == TASK_POOL_FULL ? watcher.withLock { body(&$0) } : jobWatcher.withLock { body(&$0) }
    }

    @discardableResult
    private func wish(_ wish: task_pool_wish, _ wished: Bool) -> Bool {
        unsafe pool.map { unsafe task_pool_wish_wake($0, wish, wished) } ?? false
    }
}

// MARK: - The watcher's side

extension TaskPoolHeartbeat {
    /// A job in progress, as its watcher sees it.
    package struct RunningJob: Hashable, Sendable {
        /// Of the worker.
        package var threadID: Int32
        package var since: MonotonicInstant
        /// Where it began; 0 if nobody said.
        package var function: UInt

        package init(threadID: Int32, since: MonotonicInstant, function: UInt = 0) {
            (self.threadID, self.since, self.function) = (threadID, since, function)
        }
    }

    private var word: UInt64 { unsafe pool.map { unsafe task_pool_word($0) } ?? 0 }

    /// Jobs in progress. Any thread; wait-free.
    package var runningCount: Int { Int(word & 0xffff) }

    /// Jobs begun so far. Any thread; wait-free.
    package var begunCount: UInt64 {
        let word = word
        return (word >> 16 &+ word & 0xffff) / 2
    }

    /// Whether anybody ever said that a job waits. Any thread; wait-free.
    package var countsWaiting: Bool { unsafe pool.map { unsafe task_pool_enqueued($0) != 0 } ?? false }

    /// Jobs that wait for a worker, at least: of those that ``didEnqueue()`` told of. Any thread; wait-free.
    package var waitingCount: UInt64 { unsafe pool.map { unsafe task_pool_waiting($0) } ?? 0 }

    /// Busy as long as no worker is free. Its turn counts beginnings and ends. Any thread; wait-free.
    package var pulse: LoopHeartbeat.Pulse {
        let word = word
        return .init(phase: word & 0xffff >= width ? .beforeSources : .waiting, modeIndex: 0, turn: word >> 16)
    }

    /// The jobs in progress, the oldest first. Nil when one began or ended meanwhile. Any thread; wait-free.
    package var runningJobs: [RunningJob]? {
        guard let pool = unsafe pool else { return [] }
        let before = unsafe task_pool_word(pool)
        let jobs = unsafe (0..<task_pool_places(pool)).compactMap { number -> RunningJob? in
            var job = task_pool_job()
            guard unsafe task_pool_job_at(pool, number, &job) else { return nil }
            return RunningJob(threadID: job.thread, since: .init(nanoseconds: job.since), function: job.function)
        }
        guard unsafe task_pool_word(pool) == before, jobs.count == Int(before & 0xffff) else { return nil }
        return jobs.sorted { ($0.since, $0.threadID) < ($1.since, $1.threadID) }
    }

    /// Since when no worker has been free, CLOCK_MONOTONIC in nanoseconds; zero when one is, or it could not be told just now.
    package var turnStamp: UInt64 {
        guard !pulse.isAtRest, let jobs = runningJobs, jobs.count >= width else { return 0 }
        return jobs[width - 1].since.nanoseconds
    }

    /// How long the jobs took that have ended, and where the longest of them began, with those that awaited it, the nearest first: code, empty
    /// if nobody said. Any thread.
    package var jobLengths: (lengths: TurnHistogram, longestFunctions: [UInt]) {
        guard let pool = unsafe pool else { return (TurnHistogram(), []) }
        var counts = [UInt64](repeating: 0, count: TurnHistogram.Buckets.count)
        var (longest, functions) = (UInt64(0), [UInt](repeating: 0, count: Int(TASK_POOL_FUNCTIONS)))
        unsafe counts.withUnsafeMutableBufferPointer { counts in
            unsafe functions.withUnsafeMutableBufferPointer { functions in
                guard let start = counts.baseAddress, let first = functions.baseAddress else { return }
                unsafe task_pool_add_lengths(pool, start, &longest, first)
            }
        }
        guard longest > 0 else { return (TurnHistogram(), []) }
        return (TurnHistogram(counts: counts, longest: longest), functions.filter { $0 != 0 })
    }

    /// Whether it was said that the pool has ended. Any thread.
    package var hasEnded: Bool { ended.load(ordering: .acquiring) }

    /// See ``LoopHeartbeat/attach(_:)``. What is counted of the jobs goes on.
    package func attach(_ watcher: any LoopWatcher) -> Bool {
        guard attach(watcher, to: TASK_POOL_FULL) else { return false }
        _ = takeTransitionStamp()
        return true
    }

    /// See ``LoopHeartbeat/detach()``.
    package func detach() { detach(from: TASK_POOL_FULL) }

    /// See ``LoopHeartbeat/requestWakeSignal()``: asks that the next job that leaves no worker free call the watcher, once.
    package func requestWakeSignal() -> Bool { request(TASK_POOL_FULL) { pulse.isAtRest } }

    /// The job that has been in progress for longest. Nil: there is none, or it was just ending. Any thread; wait-free.
    package var oldestJob: RunningJob? {
        var job = task_pool_job()
        guard let pool = unsafe pool, unsafe task_pool_oldest_job(pool, &job) else { return nil }
        return RunningJob(threadID: job.thread, since: .init(nanoseconds: job.since), function: job.function)
    }

    /// As ``attach(_:)``, for a second watcher: of the jobs one by one.
    package func attachToJobs(_ watcher: any LoopWatcher) -> Bool { attach(watcher, to: TASK_POOL_BUSY) }

    /// As ``detach()``, for that watcher.
    package func detachFromJobs() { detach(from: TASK_POOL_BUSY) }

    /// As ``requestWakeSignal()``: asks that the next job that begins while none is in progress call that watcher, once.
    package func requestJobSignal() -> Bool { request(TASK_POOL_BUSY) { runningCount == 0 } }

    private func attach(_ watcher: any LoopWatcher, to wish: task_pool_wish) -> Bool {
        withWatcher(of: wish) { present in
            guard present == nil else { return false }
            present = watcher
            return true
        }
    }

    private func detach(from wish: task_pool_wish) {
        let former = withWatcher(of: wish) { present in
            self.wish(wish, false)
            return present.take()
        }
        // Released out here: its deinit is foreign code, and must not run under the lock.
        _ = consume former
    }

    private func request(_ wish: task_pool_wish, whileAtRest isAtRest: () -> Bool) -> Bool {
        self.wish(wish, true)
        // After the wish, in one order with the job's own steps: see `task_pool_begin`.
        if isAtRest() && !ended.load(ordering: .sequentiallyConsistent) { return true }
        // The rest is over. If the wish is gone, the job that we raced with has taken it and calls.
        return !self.wish(wish, false)
    }

    /// Asks the next job that begins or ends to record the time. Any thread.
    package func requestTransitionStamp() { unsafe pool.map { unsafe task_pool_wish_stamp($0) } }

    /// The recorded time if there is one, and clears it. Any thread.
    package func takeTransitionStamp() -> UInt64? {
        let stamp = unsafe pool.map { unsafe task_pool_take_stamp($0) } ?? 0
        return stamp == 0 ? nil : stamp
    }
}
