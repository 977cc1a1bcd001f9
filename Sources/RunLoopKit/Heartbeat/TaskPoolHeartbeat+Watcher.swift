import CRunLoopShims
import Synchronization

// What a watcher reads of a task pool, and what it requests of it.

extension TaskPoolHeartbeat {
    /// A job in progress, as its watcher sees it.
    package struct RunningJob: Hashable, Sendable {
        /// The worker's thread id.
        package var threadID: Int32
        /// When the job began.
        package var since: MonotonicInstant
        /// The function in which the job began; 0 if it is not known.
        package var function: UInt

        package init(threadID: Int32, since: MonotonicInstant, function: UInt = 0) {
            (self.threadID, self.since, self.function) = (threadID, since, function)
        }
    }

    private var word: UInt64 { unsafe pool.map { unsafe task_pool_word($0) } ?? 0 }

    /// Jobs in progress. Any thread; wait-free.
    package var runningCount: Int { Int(task_pool_jobs_of(word)) }

    /// Jobs begun so far. Any thread; wait-free.
    package var begunCount: UInt64 { task_pool_begun_of(word) }

    /// Whether ``didEnqueue()`` was ever called. Any thread; wait-free.
    package var countsWaiting: Bool { unsafe pool.map { unsafe task_pool_enqueued($0) != 0 } ?? false }

    /// The least number of jobs that wait for a worker, as counted by ``didEnqueue()``. Any thread; wait-free.
    package var waitingCount: UInt64 { unsafe pool.map { unsafe task_pool_waiting($0) } ?? 0 }

    /// Busy as long as no worker is free. Its turn counts beginnings and ends of jobs. Any thread; wait-free.
    package var pulse: LoopHeartbeat.Pulse {
        let word = word
        let isFull = task_pool_jobs_of(word) >= width
        return .init(phase: isFull ? .beforeSources : .waiting, modeIndex: 0, turn: task_pool_changes_of(word))
    }

    /// The jobs in progress, oldest first. Nil if a job began or ended during the reading. Any thread; wait-free.
    package var runningJobs: [RunningJob]? {
        guard let pool = unsafe pool else { return [] }
        let before = unsafe task_pool_word(pool)
        let jobs = unsafe (0..<task_pool_places(pool)).compactMap { number -> RunningJob? in
            var job = task_pool_job()
            guard unsafe task_pool_job_at(pool, number, &job) else { return nil }
            return RunningJob(threadID: job.thread, since: .init(nanoseconds: job.since), function: job.function)
        }
        guard unsafe task_pool_word(pool) == before, jobs.count == Int(task_pool_jobs_of(before)) else { return nil }
        return jobs.sorted { ($0.since, $0.threadID) < ($1.since, $1.threadID) }
    }

    /// Since when no worker has been free, CLOCK_MONOTONIC in nanoseconds; zero if one is free or the time could not be
    /// determined.
    package var turnStamp: UInt64 {
        guard !pulse.isAtRest, let jobs = runningJobs, jobs.count >= width else { return 0 }
        return jobs[width - 1].since.nanoseconds
    }

    /// The lengths of the jobs that have ended, and where the longest of them began, followed by the functions that awaited it,
    /// the nearest first: code addresses, empty if they are not known. Any thread.
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
        return (TurnHistogram(counts: counts, longest: longest), Array(functions.prefix { $0 != 0 }))
    }

    /// Whether ``end()`` was called. Any thread.
    package var hasEnded: Bool { ended.load(ordering: .acquiring) }

    /// See ``LoopHeartbeat/attach(_:)``. The counts of the jobs are not reset.
    package func attach(_ watcher: any LoopWatcher) -> Bool {
        guard attach(watcher, to: TASK_POOL_FULL) else { return false }
        _ = takeTransitionStamp()
        return true
    }

    /// See ``LoopHeartbeat/detach()``.
    package func detach() { detach(from: TASK_POOL_FULL) }

    /// See ``LoopHeartbeat/detachInChild()``.
    package func detachInChild() { detachInChild(from: TASK_POOL_FULL) }

    /// See ``LoopHeartbeat/requestWakeSignal()``: requests that the next job that leaves no worker free call the watcher, once.
    package func requestWakeSignal() -> Bool { request(TASK_POOL_FULL) { pulse.isAtRest } }

    /// The job that has been in progress for the longest time. Nil if there is none, or it was just ending. Any thread;
    /// wait-free.
    package var oldestJob: RunningJob? {
        var job = task_pool_job()
        guard let pool = unsafe pool, unsafe task_pool_oldest_job(pool, &job) else { return nil }
        return RunningJob(threadID: job.thread, since: .init(nanoseconds: job.since), function: job.function)
    }

    /// Like ``attach(_:)``, for a second watcher, which follows each job.
    package func attachToJobs(_ watcher: any LoopWatcher) -> Bool { attach(watcher, to: TASK_POOL_BUSY) }

    /// Like ``detach()``, for that watcher.
    package func detachFromJobs() { detach(from: TASK_POOL_BUSY) }

    /// Like ``detachInChild()``, for that watcher.
    package func detachFromJobsInChild() { detachInChild(from: TASK_POOL_BUSY) }

    /// Like ``requestWakeSignal()``: requests that the next job that begins while none is in progress call that watcher, once.
    package func requestJobSignal() -> Bool { request(TASK_POOL_BUSY) { runningCount == 0 } }

    private func attach(_ watcher: any LoopWatcher, to event: task_pool_event) -> Bool {
        withWatcher(of: event) { present in
            guard present == nil else { return false }
            present = watcher
            return true
        }
    }

    private func detach(from event: task_pool_event) {
        let former = withWatcher(of: event) { present in
            setRequest(event, false)
            return present.take()
        }
        // Released outside the lock: its deinit is foreign code and must not run under the lock.
        _ = consume former
    }

    private func detachInChild(from event: task_pool_event) {
        setRequest(event, false)
        let former = withWatcherIfAvailable(of: event) { present in present.take() }
        _ = consume former
    }

    private func request(_ event: task_pool_event, whileAtRest isAtRest: () -> Bool) -> Bool {
        setRequest(event, true)
        // After the request, in one order with the steps of the job: see `task_pool_begin`.
        if isAtRest() && !ended.load(ordering: .sequentiallyConsistent) { return true }
        // The rest is over. If the bit is already cleared, the job that we raced with has taken the request and makes the call.
        return !setRequest(event, false)
    }

    /// Requests that the next job that begins or ends record the time. Any thread.
    package func requestTransitionStamp() { unsafe pool.map { unsafe task_pool_request_stamp($0) } }

    /// Returns the recorded time and clears it; nil if there is none. Any thread.
    package func takeTransitionStamp() -> UInt64? {
        let stamp = unsafe pool.map { unsafe task_pool_take_stamp($0) } ?? 0
        return stamp == 0 ? nil : stamp
    }
}
