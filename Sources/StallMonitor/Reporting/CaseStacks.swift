import RunLoopKit
import StackCapture
import StallDiagnosis
import StallReports
import Symbolication

/// All stacks captured of a stall so far, with names, and what they show: the culprit and the fault. When there are more samples,
/// the whole value is made again.
struct CaseStacks {
    /// The thread that the report is about. For a pool, a worker that shows the culprit.
    let thread: StallReport.Thread
    /// Contains at least one stack. If none could be taken, that one says why.
    private(set) var named: SymbolicatedStacks
    let fingerprint: Fingerprint
    /// The workers of a pool.
    private(set) var workers: [StallReport.Worker] = []
    /// The samples. A system call that a signal interrupted gets its name from the stack.
    let samples: [StackSample]
    /// The cost of taking and naming them.
    let cost: StallReport.MonitorCost

    /// Finds names for everything that was captured, the culprit and the fault.
    init(of stall: StallObservation, _ findings: CaseFindings, _ symbols: StallSymbols) {
        let captured = findings.tally.samples
        let pool = stall.pool.map(PoolThreads.init) ?? PoolThreads()
        let stalled = StallReport.Thread(stall.threadID ?? 0, stall.evidence?.after)
        let clock = ContinuousClock()
        let start = clock.now
        named = SymbolicatedStacks(
            captured,
            pool: pool,
            owners: findings.owners(stall.pool),
            thread: stalled,
            clock: stall.clock,
            name: { symbols.resolve($0, in: stall.otherProcess) },
            isOwn: { symbols.isOwn($0, $1, of: stall) }
        )
        let time = clock.now - start
        thread = (named.culpritSample ?? captured.indices.first).flatMap { pool.thread(of: captured[$0]) } ?? stalled
        fingerprint = .make(
            kind: stall.kind,
            fault: named.culpritFrames,
            modules: named.modules,
            executable: symbols.process(of: stall).executable
        )
        if named.stacks.isEmpty { named.stacks = [.missing(stall, stalled)] }
        samples = captured.map { symbols.settled($0, in: stall.otherProcess) }
        let locks = [findings.lock].compactMap { $0 } + findings.locks
        cost = .init(captured.map(\.stack.cost) + locks.flatMap(\.costs), naming: time)
        workers = stall.pool?.workers.map { worker($0, findings, processID: symbols.process(of: stall).pid) } ?? []
        if let others = stall.others {
            named.add(
                others,
                at: stall.clock.time(of: stall.othersTakenAt ?? stall.detectedAt),
                name: { symbols.resolve($0, in: stall.otherProcess) },
                isOwn: { symbols.isOwn($0, $1, of: stall) }
            )
        }
    }

    /// The waits of a thread. Samples without a thread belong to the loop's only thread.
    func waits(of threadID: Int32) -> WaitProfile {
        WaitProfile(samples.filter { $0.threadID.map { $0 == threadID } ?? true }.weighted)
    }
}

extension CaseFindings {
    /// The lock owners, each once. Workers of a pool are left out, because the report has their stacks anyway.
    fileprivate func owners(_ pool: PoolObservation?) -> [LockFinding.Owner] {
        guard let pool else { return lock?.owners ?? [] }
        var known = Set(pool.workers.map(\.job.threadID))
        return locks.flatMap(\.owners).filter { known.insert($0.threadID).inserted }
    }
}

extension StallReport.Stack {
    /// A placeholder for a stack that could not be taken.
    fileprivate static func missing(_ stall: StallObservation, _ thread: StallReport.Thread) -> Self {
        let reason =
            stall.stack.problem(raced: "The stall was over before it was looked at: the loop had moved on.")
            ?? "The stack was empty."
        let time = stall.clock.time(of: stall.detectedAt)
        return .init(thread: thread, capturedAt: time, complete: false, error: reason)
    }
}

extension StallReport.MonitorCost {
    fileprivate init(_ costs: [CapturedStack.Cost], naming: Duration) {
        self.init(
            heldNs: Int64(clamping: costs.reduce(0) { $0 + $1.heldNanoseconds }),
            unwindNs: Int64(clamping: costs.reduce(0) { $0 + $1.unwindNanoseconds }),
            symbolicationNs: naming.nanoseconds,
            copiedBytes: Int64(clamping: costs.reduce(0) { $0 + $1.bytesCopied })
        )
    }
}

/// The stacks of one stall with names, the culprit, and the frames for the fingerprint.
struct SymbolicatedStacks {
    var stacks: [StallReport.Stack] = []
    var modules: [StallReport.Module] = []
    private(set) var culprit: StallReport.Culprit?
    /// Why names or lines are missing.
    private(set) var problems: [SymbolProblem] = []
    /// The frames from the culprit outwards, including awaiting functions. Without a culprit, all frames of the first stack.
    private(set) var culpritFrames: [StallReport.Frame] = []

    /// Index of the sample that shows the culprit best.
    private(set) var culpritSample: Int?
    /// For each sample, the index of its stack. Nil: the stack was not kept.
    private(set) var places: [Int?] = []

    /// How many distinct stacks are kept: those at detection first, then those with the most time.
    private static let stackLimit = 5

    /// - Parameters:
    ///   - samples: Those at detection first. May be empty.
    ///   - pool: The threads of a pool's samples. Empty for a loop.
    ///   - owners: Lock owners. Their stacks come last, and none of their frames is the culprit.
    ///   - thread: The thread of samples that do not name one.
    ///   - name: Finds names for addresses, in their order.
    ///   - isOwn: Whether a function is the server's own.
    init(
        _ samples: [StackSample],
        pool: PoolThreads = PoolThreads(),
        owners: [LockFinding.Owner] = [],
        thread: StallReport.Thread,
        clock: WallClockAnchor,
        name: ([ResolvableAddress]) -> Resolution,
        isOwn: @escaping (SymbolicatedFrame, LoadedModule?) -> Bool
    ) {
        let captured = samples.map(\.stack) + owners.compactMap(\.captured)
        let resolution = name(captured.flatMap(\.resolvableAddresses))
        problems = resolution.problems
        modules = resolution.modules.map { StallReport.Module($0) }
        var maker = StackMaker(resolution, clock: clock, isOwn: isOwn)
        let all = samples.weighted.map { sample, span in
            var stack = maker.stack(sample.stack, pool.thread(of: sample) ?? thread, sample.time)
            stack.count = sample.count
            stack.loop = sample.loopFrame.flatMap(stack.index(ofCall:))
            return CulpritSearch.Sample(stack: stack, span: span, states: sample.stack.frames.map(\.state))
        }
        let ownerStacks = owners.map { owner in owner.reportStack(clock) { maker.stack($0, $1, $2) } }
        choose(from: all, in: pool.order(samples, all.map(\.stack)), detected: max(1, pool.size))
        stacks += ownerStacks
    }

    /// Finds the culprit, and keeps the distinct stacks that matter most.
    ///
    /// - Parameters:
    ///   - order: indices of the samples in which the culprit is looked for.
    ///   - detected: how many samples are from the detection: one, or a pool's workers.
    private mutating func choose(from all: [CulpritSearch.Sample], in order: [Int], detected: Int) {
        var (distinct, detected) = Self.merged(all, detected: detected)
        let limit = max(Self.stackLimit, detected)
        culpritFrames = distinct.first?.stack.callers(from: 0) ?? []
        if let blame = CulpritSearch(order.map { all[$0] }) {
            let stack = all[order[blame.sample]].stack
            let position = distinct.firstIndex { $0.stack.identity == stack.identity } ?? 0
            // Kept even if its stack lasted for less time than the others.
            let place = min(position, limit - 1)
            distinct.swapAt(position, place)
            culpritFrames = blame.frames
            culpritSample = order[blame.sample]
            culprit = .init(distinct[place].stack.frame(blame.candidate), stack: place, blame.candidate)
        }
        stacks = distinct.prefix(limit).map { timed in
            var stack = timed.stack
            stack.sampledNs = timed.span.nanoseconds
            return stack
        }
        let identities = stacks.map(\.identity)
        places = all.map { identities.firstIndex(of: $0.stack.identity) }
    }

    /// Merges equal stacks into one with a count. Those at detection come first, then those with the most time.
    ///
    /// - Parameter detected: how many samples are from the detection: one, or a pool's workers.
    /// - Returns: the merged samples, and how many of them are from the detection.
    private static func merged(_ all: [CulpritSearch.Sample], detected: Int) -> ([CulpritSearch.Sample], detected: Int)
    {
        var distinct: [CulpritSearch.Sample] = []
        var first = 0
        for (number, next) in all.enumerated() {
            let identity = next.stack.identity
            if let index = distinct.firstIndex(where: { $0.stack.identity == identity }) {
                distinct[index].stack.count += next.stack.count
                distinct[index].stack.join(next.stack.thread)
                distinct[index].span += next.span
            } else {
                distinct.append(next)
            }
            if number < detected { first = distinct.count }
        }
        return (distinct.prefix(first) + distinct.dropFirst(first).sorted { $0.span > $1.span }, first)
    }
}

extension StallReport.Stack {
    /// Adds another thread with the same stack.
    fileprivate mutating func join(_ other: StallReport.Thread) {
        guard other.id != thread.id, threads?.contains(where: { $0.id == other.id }) != true else { return }
        threads = (threads ?? [thread]) + [other]
    }

    /// The index of the frame that is not inlined and has this many such frames before it.
    fileprivate func index(ofCall number: Int) -> Int? {
        frames.indices.lazy.filter { frames[$0].kind == nil }.dropFirst(number).first
    }

    /// Equal for two captures of the same stack.
    var identity: [String] { frames.map(\.identity) + (async?.frames ?? []).map(\.identity) }
}

extension StallReport.Frame {
    /// Equal for two calls of the same function.
    fileprivate var identity: String { symbol ?? "\(module ?? -1)+\(offset ?? address)" }
}
