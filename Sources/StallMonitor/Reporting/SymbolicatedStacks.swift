import RunLoopKit
import StackCapture
import StallDiagnosis
import StallReports
import Symbolication

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

/// Names for the addresses of a stall, of this process or of another one that is watched from outside. Confined to the reporter's
/// thread.
struct StallSymbols {
    private let run: RunIdentity
    private let symbolicator = Symbolicator()
    private let ownCode: OwnCode

    init(run: RunIdentity, ownCode: OwnCode) { (self.run, self.ownCode) = (run, ownCode) }

    /// The process in which the loop stalled.
    func process(of stall: StallObservation) -> ProcessIdentity { stall.otherProcess?.identity ?? run.process }

    /// Finds names. Includes those that are known without symbols: the functions in which the loop itself calls out.
    func resolve(_ addresses: [ResolvableAddress], in process: OutsideProcess?) -> Resolution {
        if let process { return process.symbolicator.resolve(addresses, budget: .tool) }
        var resolution = symbolicator.resolve(addresses)
        for (index, frame) in resolution.frames.enumerated() where frame.symbol == nil {
            guard let offset = frame.functionOffset,
                let name = CalloutFrames.name(ofFunctionAt: frame.address &- offset)
            else { continue }
            resolution.frames[index].symbol = name
            (resolution.frames[index].function, resolution.frames[index].language) = (name, .c)
        }
        return resolution
    }

    func isOwn(_ frame: SymbolicatedFrame, _ module: LoadedModule?, of stall: StallObservation) -> Bool {
        let executable = process(of: stall).executable ?? ""
        if stall.otherProcess != nil {
            return ownCode.isOwnOfAnyMake(frame, module: module, executable: executable)
        }
        return ownCode.isOwn(frame, module: module, executable: executable)
    }

    /// The sample; if a signal interrupted its system call, the call gets its name from the stack.
    func settled(_ sample: StackSample, in process: OutsideProcess?) -> StackSample {
        guard let site = sample.site, !site.continued.isEmpty else { return sample }
        var sample = sample
        let innermost = sample.stack.frames.prefix(3).map(\.resolvableAddress)
        let names = (process?.symbolicator ?? symbolicator).resolve(innermost)
        sample.site = site.settled(by: names.frames.compactMap(\.symbol))
        return sample
    }

    /// The name of a job: the first own function among those in which it began and those that awaited it, otherwise the first
    /// that is not the runtime's. Nil if there is none. A new task begins in a function of the runtime, which calls the server's.
    func nameOfJob(at addresses: [UInt]) -> String? {
        let found = resolve(addresses.map { ResolvableAddress(address: $0, kind: .resumption) }, in: nil)
        let named = found.frames.filter { $0.function ?? $0.symbol != nil }
        let executable = run.process.executable ?? ""
        let own = named.first { frame in
            ownCode.isOwn(frame, module: frame.moduleIndex.map { found.modules[$0] }, executable: executable)
        }
        // Jobs begin in functions of Swift modules or of the runtime, which has some in other languages. Parts of the runtime are in the executable,
        // as copies for the types that they are used with, or all of it is.
        let other = named.first { ![nil, "Swift", "_Concurrency"].contains($0.swiftModule) }
        return (own ?? other).flatMap { $0.symbol.map(Demangler.shortName) ?? $0.function }
    }
}
