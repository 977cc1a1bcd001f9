/// Work that consists almost only of scheduling jobs of the task pool.
public enum PoolJobs: String, CaseIterable, Sendable {
    /// One task that yields repeatedly: each time a job is enqueued, and begins where the last one ended.
    case oneTask = "one task yields"
    /// As many yielding tasks as there are workers, at the same time: they share the pool's atomic word.
    case allWorkers = "all workers yield"
    /// Tasks that begin, do nothing and end.
    case newTasks = "new tasks"

    /// The wall time for one job, in nanoseconds.
    public func measure(_ jobs: Int, workers: Int) async -> Double {
        let start = ContinuousClock.now
        let count: Int
        switch self {
        case .oneTask: count = await Self.yield(jobs, tasks: 1)
        case .allWorkers: count = await Self.yield(jobs / workers, tasks: workers)
        case .newTasks:
            count = jobs
            await withDiscardingTaskGroup { group in
                for _ in 0..<jobs { group.addTask {} }
            }
        }
        return (ContinuousClock.now - start) / .nanoseconds(1) / Double(count)
    }

    private static func yield(_ times: Int, tasks: Int) async -> Int {
        await withDiscardingTaskGroup { group in
            for _ in 0..<tasks {
                group.addTask { for _ in 0..<times { await Task.yield() } }
            }
        }
        return times * tasks
    }

    /// Prints a line for each kind of work: its name and the nanoseconds for one job.
    public static func run(_ arguments: [String], workers: Int) async {
        let jobs = arguments.first.flatMap { Int($0) } ?? 200_000
        for work in allCases {
            _ = await work.measure(jobs / 10, workers: workers)
            print("\(work.rawValue)\t\(await work.measure(jobs, workers: workers))")
        }
    }
}
