package import RunLoopKit
import StackCapture
import StallDiagnosis

/// The workers of another process's task pool when no worker was free any more.
package struct OutsidePool: Sendable {
    /// The number of jobs that the pool runs at once.
    package var width: Int
    /// The worker that has been at its job for longest first.
    package var workers: [Worker]

    package init(width: Int, workers: [Worker]) { (self.width, self.workers) = (width, workers) }

    /// A worker that stays at one job.
    package struct Worker: Sendable {
        package var threadID: Int32
        /// Since when at the latest.
        package var since: MonotonicInstant
        /// The kernel's counts from when it had been at that job for a short time.
        package var account: OutsideProcess.Account?
        package var stack: OutsideStack

        package init(
            threadID: Int32,
            since: MonotonicInstant,
            account: OutsideProcess.Account?,
            stack: OutsideStack
        ) {
            (self.threadID, self.since, self.account, self.stack) = (threadID, since, account, stack)
        }
    }

    /// How many workers have their stacks taken at detection, and how many before and after it.
    package static let (workerLimit, sampleLimit) = (PoolObservation.workerLimit, PoolObservation.sampleLimit)
}

extension PoolObservation {
    /// - Parameter excluded: how much of the stall does not count.
    init(_ pool: OutsidePool, of process: OutsideProcess, at time: MonotonicInstant, leavingOut excluded: Duration) {
        self.init(width: pool.width, running: pool.workers.count, waiting: nil, workers: [], stacks: [], locks: [])
        for worker in pool.workers {
            let window = worker.account.flatMap {
                process.window(since: $0, threadID: worker.threadID, at: time, leavingOut: excluded)
            }
            var row = Worker(job: .init(threadID: worker.threadID, since: worker.since), evidence: window)
            if let sample = worker.stack.sample {
                stacks.append(sample.ofWorker(worker.threadID))
            } else {
                row.problem = worker.stack.problem
            }
            workers.append(row)
        }
    }

    /// The locks for which its first workers wait, with their owners.
    func locks(in process: OutsideProcess) -> [LockFinding] {
        stacks.prefix(Self.sampleLimit).compactMap { sample in
            sample.threadID.flatMap { process.lock(holding: $0, sample.stack) }
        }
    }
}

extension StackSample {
    /// The same, as one of a pool.
    func ofWorker(_ threadID: Int32?) -> StackSample {
        var sample = self
        sample.threadID = threadID
        return sample
    }
}

extension OutsideStack {
    /// Why there is no stack.
    fileprivate var problem: String? {
        switch self {
        case .taken: nil
        case .failed(let error): error.description
        case .refused(let reason): reason
        case .raced: "The job was over before it was looked at."
        }
    }
}
