import RunLoopKit
import StallMonitor

/// The task pools of one process, for as long as it runs one program. Confined to the watcher's thread.
final class ObservedPools {
    private enum Code {
        /// Not looked for yet in the program's own file.
        case unknown
        case found(PoolCode)
        case none
    }

    private var code = Code.unknown
    private var pools: [PoolPriority: ObservedPool] = [:]
    private var workers: [Int32: ObservedWorker] = [:]
    /// When workers whose threads have ended left their jobs, since the last look.
    private var ended: [Int32: ClosedRange<MonotonicInstant>] = [:]

    /// Looks for the runtime's library. A process without it has no pools, unless the runtime is linked into the program.
    init(_ context: WatchContext) {
        note(PoolCode.search(in: context.process, isLinkedIn: false), isFinal: false, context)
    }

    /// Whether the process may have pools, so that new threads have to be found soon.
    var areThere: Bool { if case .found = code { true } else { false } }

    /// Whether they may also be in the program's own file, which is looked at once a thread has a worker's name.
    var areUnlikely: Bool { if case .none = code { true } else { false } }

    /// The workers of known pools, and their number.
    var known: [ObservedPool] { pools.values.filter(\.isKnown) }

    func isWorker(_ threadID: Int32) -> Bool { workers[threadID].map { pools[$0.priority]?.isKnown == true } ?? false }

    func maturity() -> MonotonicInstant? { pools.values.compactMap { $0.maturity(workers(of: $0)) }.min() }

    func isSuspect(at time: MonotonicInstant) -> Bool {
        pools.values.contains { $0.isSuspect(workers(of: $0), at: time) }
    }

    /// A new thread, or one whose name may have changed.
    ///
    /// - Parameter time: when it was not there yet, or was last looked at.
    func add(_ threadID: Int32, _ files: ThreadFiles, freeAt time: MonotonicInstant, _ context: WatchContext) {
        guard workers[threadID] == nil, let priority = PoolPriority(ofThreadNamed: files.name) else { return }
        if case .unknown = code { note(PoolCode.search(in: context.process, isLinkedIn: true), isFinal: true, context) }
        guard case .found(let code) = code else { return }
        workers[threadID] = ObservedWorker(threadID: threadID, files, priority, code, freeAt: time)
        if pools[priority] == nil {
            pools[priority] = ObservedPool(priority, width: context.process.poolWidth, context)
        }
    }

    private func note(_ search: PoolCode.Search, isFinal: Bool, _ context: WatchContext) {
        switch search {
        case .found(let found): code = .found(found)
        case .nameless:
            code = .none
            context.tell(.namelessPools(processID: context.processID))
        case .absent: if isFinal { code = .none }
        }
    }

    /// Looks at a thread, if it is a worker.
    ///
    /// - Returns: false once the thread has ended.
    func look(_ threadID: Int32, _ context: WatchContext) -> Bool { workers[threadID]?.look(context) ?? true }

    /// A thread has ended. If it is a worker, it has left its job.
    func remove(_ threadID: Int32) {
        guard let worker = workers.removeValue(forKey: threadID) else { return }
        ended[threadID] = worker.lastLook...max(worker.lastLook, .now)
    }

    /// Decides, after the threads were looked at.
    func decide(_ context: WatchContext) {
        for pool in pools.values { pool.look(workers(of: pool), ended: ended, context) }
        ended = [:]
    }

    /// The process is no longer watched, or runs another program.
    func release(_ end: OutsideEnd, _ context: WatchContext) {
        for pool in pools.values { pool.release(end, context) }
        (pools, workers) = ([:], [:])
    }

    private func workers(of pool: ObservedPool) -> [ObservedWorker] {
        workers.values.filter { $0.priority == pool.priority }
    }
}
