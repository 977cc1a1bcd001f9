import RunLoopKit
import StackCapture
import StallDiagnosis
import StallReports

/// The workers of a pool that stands, for those who look at their stacks together. Empty for a loop, which has one thread.
struct PoolThreads {
    private let threads: [Int32: StallReport.Thread]
    /// Those that wait for another one of them: what they are at is not what keeps the pool.
    private let waiting: Set<Int32>
    /// How many stacks of them were taken at detection.
    let size: Int

    init() { (threads, waiting, size) = ([:], [], 0) }

    init(_ pool: PoolObservation) {
        let known = pool.workers.map { StallReport.Thread($0.job.threadID, $0.evidence?.after) }
        threads = Dictionary(known.map { ($0.id, $0) }) { first, _ in first }
        waiting = Set(pool.waitingForOthers.keys)
        size = pool.stacks.count
    }

    /// Nil for the one thread of a loop.
    func thread(of sample: StackSample) -> StallReport.Thread? {
        sample.threadID.map { threads[$0] ?? StallReport.Thread(id: $0) }
    }

    /// In which order the samples show who is to blame: by time; those of a pool, taken at the same times, so that what is alike lies side
    /// by side, without the workers that wait for others, unless all do.
    func order(_ samples: [StackSample], _ stacks: [StallReport.Stack]) -> [Int] {
        let byTime = samples.indices.sorted { samples[$0].time < samples[$1].time }
        guard size > 0 else { return byTime }
        let going = byTime.filter { samples[$0].threadID.map(waiting.contains) != true }
        return Self.alikeSideBySide(going.isEmpty ? byTime : going) { stacks[$0] }
    }

    /// The same for the stacks of a report.
    static func order(_ byTime: [Int], _ stacks: [StallReport.Stack], _ pool: StallReport.Pool) -> [Int] {
        let standing = Set(pool.workers.map(\.thread.id))
        let waiting = pool.workers.filter { worker in
            worker.verdict != .deadlock && worker.lock?.owner.map { standing.contains($0.id) } == true
        }
        let ids = Set(waiting.map(\.thread.id))
        let going = byTime.filter { index in
            !([stacks[index].thread.id] + (stacks[index].threads ?? []).map(\.id)).allSatisfy(ids.contains)
        }
        return alikeSideBySide(going.isEmpty ? byTime : going) { stacks[$0] }
    }

    /// By the stacks from their outermost functions on: those that have these in common stay together.
    static func alikeSideBySide(_ indices: [Int], _ stack: (Int) -> StallReport.Stack) -> [Int] {
        let keys = indices.map { index in stack(index).identity.reversed() }
        let order = indices.indices.sorted { a, b in
            if keys[a].elementsEqual(keys[b]) { return a < b }
            return keys[a].lexicographicallyPrecedes(keys[b])
        }
        return order.map { indices[$0] }
    }
}
