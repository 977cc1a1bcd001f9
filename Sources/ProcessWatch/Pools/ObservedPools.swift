import RunLoopKit
import StackCapture
import StallMonitor
import StallReports
import Symbolication

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

    /// Whether threads may turn out to be workers. The program's own file is looked at once a thread has a worker's name.
    var mayHaveWorkers: Bool { if case .none = code { false } else { true } }

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
    func release(as state: StallState, _ context: WatchContext) {
        for pool in pools.values { pool.release(as: state, context) }
        (pools, workers) = ([:], [:])
    }

    private func workers(of pool: ObservedPool) -> [ObservedWorker] {
        workers.values.filter { $0.priority == pool.priority }
    }
}

/// Where the code of Swift's task pools is in a process. Its workers are threads of libdispatch, which call a function of Swift's runtime for
/// each job.
struct PoolCode: Hashable, Sendable {
    /// The runtime's function that runs a job. It is entered once for each.
    let job: Range<UInt>
    /// The function that a worker runs from its start to its end.
    private let worker: Range<UInt>
    /// The function that runs an item of a concurrent queue. Swift's pool is such a queue.
    private let item: Range<UInt>
    /// libdispatch's code and data.
    private let dispatch: Range<UInt>

    /// The result of a search.
    enum Search: Hashable, Sendable {
        case found(PoolCode)
        /// The process has no task pool.
        case absent
        /// It has one, but its libdispatch has no symbol table, so its stacks cannot be understood.
        case nameless
    }

    private static let (jobName, workerName, itemName) = (
        "swift_job_run", "_dispatch_worker_thread", "_dispatch_async_redirect_invoke"
    )

    /// - Parameter isLinkedIn: whether to look in the program's own file, too. Its symbol table may be large.
    static func search(in process: OutsideProcess, isLinkedIn: Bool) -> Search {
        func look(_ names: Set<String>, _ library: String) -> [String: FunctionPlace] {
            let found = process.functions(names, inModule: library)
            return found.isEmpty && isLinkedIn ? process.functions(names, inModule: nil) : found
        }
        guard let job = look([jobName], "libswift_Concurrency")[jobName] else { return .absent }
        let dispatch = look([workerName, itemName], "libdispatch")
        guard let worker = dispatch[workerName], let item = dispatch[itemName] else { return .nameless }
        return .found(.init(job: job.range, worker: worker.range, item: item.range, dispatch: worker.module))
    }

    init(job: Range<UInt>, worker: Range<UInt>, item: Range<UInt>, dispatch: Range<UInt>) {
        (self.job, self.worker, self.item, self.dispatch) = (job, worker, item, dispatch)
    }

    /// Whether a worker waits for its next job there. The workers of a pool share a semaphore, which is in libdispatch's own data, unlike any
    /// lock or semaphore for which a job waits. If libdispatch is linked into the program, the program's global locks are there, too. What tells
    /// them apart is the timeout: a worker waits for its next job for some seconds, and then ends; it waits for a lock without a timeout.
    ///
    /// - Parameter readCall: Reads the call in which the thread sleeps, with all its arguments.
    func isRest(_ position: ThreadPosition, _ readCall: () -> SystemCall?) -> Bool {
        guard case .calling(let wait) = position, Self.waits.contains(wait.call),
            dispatch.contains(UInt(truncatingIfNeeded: wait.argument))
        else { return false }
        // The fourth is the address of futex(2)'s timeout. If the thread has gone on since, the next look decides.
        guard let call = readCall(), call.number == wait.call, call.arguments.count > 3 else { return false }
        return call.arguments[0] == UInt(truncatingIfNeeded: wait.argument) && call.arguments[3] != 0
    }

    /// A stopped thread continues its wait by restart_syscall(2), with the arguments of the first call in its registers.
    private static let waits = Set(SystemCall.numbers(of: ["futex", "restart_syscall"]))

    /// The frame that has called the job, if the stack is that of a worker at a job of the pool. Only libdispatch's functions may be between
    /// the worker's first and the job: a block of some queue that runs a job itself belongs to no pool.
    func caller(ofJobIn stack: CapturedStack) -> Int? {
        let addresses = stack.frames.map { $0.found == .register ? $0.address : $0.address &- 1 }
        guard let first = addresses.lastIndex(where: worker.contains),
            let job = addresses[..<first].lastIndex(where: job.contains)
        else { return nil }
        let between = addresses[(job + 1)...first]
        guard between.allSatisfy(dispatch.contains), between.contains(where: item.contains) else { return nil }
        return job + 1
    }
}

/// The task pool of one priority, known by the names that libdispatch gives to its workers.
struct PoolPriority: Hashable, Sendable {
    /// As in the reports of a monitor inside the process.
    let label: String

    /// By the ends of the queues' names. The kernel keeps 15 characters of a thread's name, and libdispatch passes the last ones. Workers of the
    /// queues that end in `overcommit` serve serial queues.
    private static let labels = [
        ".background-qos": "background-priority tasks", "oot.utility-qos": "low-priority tasks",
        "oot.default-qos": "medium-priority tasks", "r-initiated-qos": "high-priority tasks",
        "interactive-qos": "user-interactive-priority tasks",
    ]

    /// Nil if the thread is no worker of such a pool.
    init?(ofThreadNamed name: String) {
        guard let label = Self.labels[name] else { return nil }
        self.label = label
    }
}
