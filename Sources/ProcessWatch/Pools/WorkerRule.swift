import RunLoopKit

/// Decides since when a worker of a task pool has been at one job. Pure.
///
/// A worker that does not rest gets a one-shot breakpoint at the beginning of the function that runs a job. As long as it is not hit, the
/// worker has begun no other job: if its stack then shows that function, it has been at the same job since the breakpoint was set. A stack
/// alone proves nothing, because a worker with many short jobs shows the same frames again and again. Without a breakpoint, only a single
/// system call in which the thread sleeps without running proves it.
struct WorkerRule: Sendable {
    /// Nil while the worker rests.
    private(set) var job: Job?
    /// When it was last known to be free. It may have begun its present job just after that.
    private var lastFree: MonotonicInstant
    private var lastLook: Look?
    /// How much of the time before the present look the watcher has missed, and was excluded.
    private var missed = Duration.zero
    private var begun = 0

    /// What the worker is at while it does not rest. It need not be a job: see `shows`.
    struct Job: Hashable, Sendable {
        let number: Int
        /// It did not begin earlier.
        var earliest: MonotonicInstant
        /// Since when it is proven to be the same job, if it is one. Nil without a proof.
        var since: MonotonicInstant?
        /// Since when the thread has slept in one system call without running.
        var callSince: MonotonicInstant?
        var isArmed = false
        /// The parts of the time since `since` that do not count: the thread was stopped, or the watcher did not run.
        var stopped = Duration.zero
        var unobserved = Duration.zero
        /// What a stack has shown. Nil: none was taken yet.
        var shows: Shown?

        /// How much of the time since `since` does not count.
        var excluded: Duration { stopped + unobserved }

        /// For how long the worker has provably been at it.
        func length(at time: MonotonicInstant) -> Duration {
            since.map { max(.zero, time - $0 - excluded) } ?? .zero
        }
    }

    enum Shown: Hashable, Sendable {
        /// A job of Swift's pool.
        case job
        /// Something else: a block of a dispatch queue, or nothing that can be recognized.
        case other
    }

    /// What was read in one look.
    struct Look: Hashable, Sendable {
        var time: MonotonicInstant
        var schedule: Schedule
        /// Nil if it was not read because the thread has not run.
        var position: ThreadPosition?
        /// Whether it waits for its next job.
        var rests: Bool
        /// Whether the thread is stopped, by a signal or a debugger.
        var isStopped = false
        /// When it began another job since the last look. Nil if it has begun none, and without a breakpoint.
        var began: MonotonicInstant?
    }

    /// What the caller has to do.
    enum Order: Hashable, Sendable {
        /// Set the breakpoint again.
        case arm
        /// Remove the breakpoint.
        case release
    }

    init(freeAt time: MonotonicInstant) { lastFree = time }

    /// Whether this look has to read the thread's position.
    func needsPosition(_ schedule: Schedule) -> Bool { job != nil || schedule != lastLook?.schedule }

    /// - Returns: what to do. If the worker has left the job that it was at, `job` has another number now.
    mutating func look(_ look: Look) -> Order? {
        let before = lastLook
        var look = look
        // The thread has not run, so it is where it was before.
        if look.position == nil { (look.position, look.rests) = (before?.position, before?.rests ?? false) }
        defer { (lastLook, missed) = (look, .zero) }
        guard !look.rests else {
            defer { (job, lastFree) = (nil, look.time) }
            return job == nil ? nil : .release
        }
        if let began = look.began { lastFree = max(lastFree, min(began, look.time)) }
        guard look.began == nil, job != nil else {
            begin()
            return .arm
        }
        follow(look, before)
        return job?.isArmed == true ? nil : .arm
    }

    /// Whether the breakpoint was set.
    mutating func armed(_ isArmed: Bool, at time: MonotonicInstant) {
        guard isArmed, job?.isArmed == false else { return }
        job?.isArmed = true
        job?.since = time
    }

    /// A stack was taken.
    mutating func saw(_ shown: Shown) { job?.shows = shown }

    /// The watcher was late by this much: the machine may have been stopped. That time does not count.
    mutating func exclude(_ lateness: Duration) {
        guard job?.since != nil || job?.callSince != nil else { return }
        job?.unobserved += lateness
        missed = lateness
    }

    private mutating func begin() {
        begun += 1
        job = Job(number: begun, earliest: lastFree)
    }

    /// Takes into account what the kernel's counts say about the time since the last look.
    private mutating func follow(_ look: Look, _ before: Look?) {
        guard var next = job else { return }
        defer { job = next }
        if look.isStopped, let before { next.stopped += max(.zero, look.time - before.time - missed) }
        let sleptOn = look.schedule == before?.schedule && look.position == before?.position
        if sleptOn, case .calling? = look.position {
            next.callSince = next.callSince ?? before?.time
        } else {
            next.callSince = nil
        }
        guard !next.isArmed, next.since != next.callSince else { return }
        // It may be at another job by now, which began when the call was last seen or later.
        if next.callSince == nil {
            begun += 1
            next = Job(number: begun, earliest: next.earliest)
        } else {
            // A stack from before the call may show another job.
            next.shows = nil
        }
        next.since = next.callSince
    }
}
