public import StallMonitor

extension WatchSelection {
    /// The pool of workers that runs Swift's tasks: a stall when each of its workers has stood in one job for the threshold.
    ///
    ///     let monitor = StallMonitor.start(watching: [.main, .taskPool])
    ///
    /// There is one such pool for each priority, and one of them may be starved while the others work: each is watched for itself, from its
    /// first job on, and called by its priority in reports (`medium-priority tasks`). What counts as a job: see `TaskPoolHeartbeat`. One long job
    /// among free workers is no stall: it is counted in the run record, and reported if `reportsJobsLongerThan` of the configuration says so. More
    /// stands in the article "The task pool" of `StallMonitor`.
    /// Not among them are the main actor, which is the main loop's, and executors of the server's own: see ``WatchSelection/pools(_:)``.
    ///
    /// Where it cannot work (a program linked with `-static-stdlib`, the thread sanitizer) the monitor tells `taskPoolNotFound`, once.
    public static var taskPool: WatchSelection { .found(by: TaskPools.shared) }

    /// Every loop of the process, the main loop among them, and the task pool.
    public static var everything: WatchSelection { [.everyLoop, .taskPool] }
}
