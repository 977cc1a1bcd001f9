import RunLoopKit
import StackCapture
import StallDiagnosis

/// The workers of a pool at the moment when its stall was proven.
struct PoolObservation: Sendable {
    /// A worker, and the job that it stands at.
    struct Worker: Sendable {
        var job: TaskPoolHeartbeat.RunningJob
        /// The kernel's account of its thread since the pool was first seen to stand still. Nil when nobody looked then.
        var evidence: EvidenceWindow?
        /// Why there is no stack of it.
        var problem: String?
    }

    var width: Int
    /// Jobs in progress.
    var running: Int
    /// Jobs that waited for a worker, at least. Nil where nobody told of any.
    var waiting: UInt64?
    /// The one that has been at its job for longest first.
    var workers: [Worker]
    /// Their stacks, those that could be had. Each has its thread.
    var stacks: [StackSample]
    /// Whom those of them wait for that were found in futex(2).
    var locks: [LockFinding]

    /// More workers than these are not looked at one by one.
    static let workerLimit = 64
    /// How many stacks a sample of a pool has, before and after detection.
    static let sampleLimit = 8

    /// What it cost to take their stacks, and those of the locks' owners.
    var costs: [CapturedStack.Cost] { stacks.map(\.stack.cost) + locks.flatMap(\.costs) }
}

extension PoolObservation {
    /// Workers that wait for another one of them, each with that one: it is he who keeps them.
    var waitingForOthers: [Int32: Int32] {
        let standing = Set(workers.map(\.job.threadID))
        var found: [Int32: Int32] = [:]
        for lock in locks where lock.closing == nil {
            guard let first = lock.waits.first, standing.contains(first.threadID) else { continue }
            let owners = lock.waits.compactMap(\.sight.owner).filter { standing.contains($0) && $0 != first.threadID }
            if let last = owners.last { found[first.threadID] = last }
        }
        return found
    }
}
