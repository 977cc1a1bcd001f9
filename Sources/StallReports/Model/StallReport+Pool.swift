extension StallReport {
    /// A task pool that had no worker free: how wide it is, who waited, and what each worker stood at. As of detection, but for
    /// ``Worker/standingNs``.
    public struct Pool: Codable, Hashable, Sendable {
        /// How many jobs the pool runs at once.
        public var width: Int
        /// How many were in progress. More than `width` where the pool had made workers in the place of some that wait.
        public var running: Int
        /// How many jobs waited for a worker, at least: not all kinds of work are known of beforehand. Nil: nothing is known of it.
        public var waiting: UInt64?
        /// How many of the workers stand at the culprit, or wait for one that does. Nil without a culprit.
        public var atCulprit: Int?
        /// The one that has been at its job for longest first: all of them, or the first 64.
        public var workers: [Worker]

        /// Nothing is known of waiting jobs, nor of the culprit, unless given.
        public init(width: Int, running: Int, waiting: UInt64? = nil, atCulprit: Int? = nil, workers: [Worker]) {
            (self.width, self.running, self.waiting) = (width, running, waiting)
            (self.atCulprit, self.workers) = (atCulprit, workers)
        }

        private enum CodingKeys: String, CodingKey {
            case width, running, waiting, workers
            case atCulprit = "at_culprit"
        }
    }

    /// A worker of a task pool, and the job that it stood at.
    public struct Worker: Codable, Hashable, Sendable {
        /// The thread that runs the job.
        public var thread: Thread
        /// For how long it has been at this one job, as far as the report tells: to the stall's end, or until it was last written.
        public var standingNs: Int64
        /// The job's task, as the Swift runtime counts them. Nil if it is not known, and for a job that is no task's.
        public var task: UInt64?
        /// Why this worker stood, by itself.
        public var verdict: Verdict
        /// What it waited for that another thread has or gives.
        public var lock: Lock?
        /// Index into the report's stacks; workers with equal stacks share one. Nil: it has none.
        public var stack: Int?
        /// Why it has no stack.
        public var error: String?

        /// Without a task, a lock and a stack, for an unknown reason, unless given.
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
}

extension StallReport {
    /// How many of a pool's workers stand at the culprit, or wait for one that does. Nil without a pool or a culprit.
    package var workersAtCulprit: Int? {
        guard let pool, let culprit, let name = culpritIdentity(culprit) else { return nil }
        var found: Set<Int32> = []
        for stack in stacks where stack.role == .stalled {
            guard (stack.frames + (stack.async?.frames ?? [])).contains(where: { $0.identity == name }) else {
                continue
            }
            found.formUnion([stack.thread.id] + (stack.threads ?? []).map(\.id))
        }
        found.formIntersection(pool.workers.map(\.thread.id))
        // Each pass finds those that wait for one found before. Chains of waits are short.
        for _ in 0..<8 {
            let waiting = pool.workers.filter { $0.lock?.owner.map { found.contains($0.id) } == true }.map(\.thread.id)
            if found.isSuperset(of: waiting) { break }
            found.formUnion(waiting)
        }
        return found.count
    }

    private func culpritIdentity(_ culprit: Culprit) -> String? {
        guard stacks.indices.contains(culprit.stack) else { return culprit.symbol ?? culprit.function }
        let stack = stacks[culprit.stack]
        let frames = culprit.isAwaiting == true ? stack.async?.frames ?? [] : stack.frames
        return frames.indices.contains(culprit.frame)
            ? frames[culprit.frame].identity : culprit.symbol ?? culprit.function
    }
}

extension StallReport.Frame {
    fileprivate var identity: String { symbol ?? function ?? "\(module ?? -1)+\(offset ?? address)" }
}
