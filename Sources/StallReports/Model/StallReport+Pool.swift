extension StallReport {
    /// A task pool that had no free worker: its width, the waiting jobs, and what each worker did. As of detection, except for
    /// ``Worker/standingNs``.
    public struct Pool: Codable, Hashable, Sendable {
        /// The number of jobs that the pool runs at once.
        public var width: Int
        /// The number of jobs in progress. More than `width` if the pool had created workers in place of waiting ones.
        public var running: Int
        /// The least number of jobs that waited for a worker: not all kinds of work are known in advance. Nil if unknown.
        public var waiting: UInt64?
        /// The number of workers that are in the culprit, or wait for a worker that is. Nil without a culprit.
        public var atCulprit: Int?
        /// Sorted by the time in their job, the longest first: all of them, or the first 64.
        public var workers: [Worker]

        /// Creates a pool. By default waiting jobs and culprit are unknown.
        public init(width: Int, running: Int, waiting: UInt64? = nil, atCulprit: Int? = nil, workers: [Worker]) {
            (self.width, self.running, self.waiting) = (width, running, waiting)
            (self.atCulprit, self.workers) = (atCulprit, workers)
        }

        private enum CodingKeys: String, CodingKey {
            case width, running, waiting, workers
            case atCulprit = "at_culprit"
        }
    }

    /// A worker of a task pool, and its job.
    public struct Worker: Codable, Hashable, Sendable {
        /// The thread that runs the job.
        public var thread: Thread
        /// How long it has been in this one job, according to the report: to the stall's end, or until the report was last
        /// written.
        public var standingNs: Int64
        /// The job's task number, as counted by the Swift runtime. Nil if it is not known, and for a job that does not belong
        /// to a task.
        public var task: UInt64?
        /// Why this worker was stalled, considered alone.
        public var verdict: Verdict
        /// The lock or other thread for which it waited.
        public var lock: Lock?
        /// The index in the report's stacks; workers with equal stacks share one. Nil: it has none.
        public var stack: Int?
        /// Why it has no stack.
        public var error: String?

        /// Creates a worker: by default without a task, a lock and a stack, and with an unknown reason.
        public init(
            thread: Thread,
            standingNs: Int64,
            task: UInt64? = nil,
            verdict: Verdict = .unknown,
            lock: Lock? = nil,
            stack: Int? = nil,
            error: String? = nil
        ) {
            (self.thread, self.standingNs, self.task) = (thread, standingNs, task)
            (self.verdict, self.lock) = (verdict, lock)
            (self.stack, self.error) = (stack, error)
        }

        private enum CodingKeys: String, CodingKey {
            case thread, task, verdict, lock, stack, error
            case standingNs = "standing_ns"
        }
    }

    /// The number of a pool's workers that are in the culprit, or wait for a worker that is. Nil without a pool or a culprit.
    package var workersAtCulprit: Int? {
        guard let pool, let culprit, let name = culpritFrame?.identity ?? culprit.symbol ?? culprit.function else {
            return nil
        }
        var found: Set<Int32> = []
        for stack in stacks where stack.role == .stalled {
            guard (stack.frames + (stack.async?.frames ?? [])).contains(where: { $0.identity == name }) else {
                continue
            }
            found.formUnion([stack.thread.id] + (stack.threads ?? []).map(\.id))
        }
        found.formIntersection(pool.workers.map(\.thread.id))
        // Each pass finds the workers that wait for one found before. Chains of waits are short.
        for _ in 0..<8 {
            let waiting = pool.workers.filter { $0.lock?.owner.map { found.contains($0.id) } == true }.map(\.thread.id)
            if found.isSuperset(of: waiting) { break }
            found.formUnion(waiting)
        }
        return found.count
    }
}

extension StallReport.Frame {
    fileprivate var identity: String { symbol ?? function ?? "\(module ?? -1)+\(offset ?? address)" }
}
