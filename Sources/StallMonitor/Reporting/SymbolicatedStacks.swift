import RunLoopKit
import StackCapture
import StallReports
import Symbolication

/// All that was captured of one stall, with names: its stacks, the culprit, the fingerprint's frames.
struct SymbolicatedStacks {
    var stacks: [StallReport.Stack] = []
    var modules: [StallReport.Module] = []
    private(set) var culprit: StallReport.Culprit?
    /// Why names or lines are missing.
    private(set) var problems: [SymbolProblem] = []
    /// The frames from the culprit outwards, also those that await. Without a culprit, all of the first stack.
    private(set) var culpritFrames: [StallReport.Frame] = []

    /// Which of the samples shows the culprit best.
    private(set) var culpritSample: Int?
    /// Of each sample, which of the stacks is its. Nil: it was not kept.
    private(set) var places: [Int?] = []

    /// Distinct stacks kept: the detection's first, then those that lasted longest.
    private static let stackLimit = 5

    /// - Parameters:
    ///   - samples: the detection's first. May be empty.
    ///   - thread: whose they are.
    ///   - name: finds names for addresses, in their order.
    ///   - isOwn: whether a function is the server's own.
    ///   - pool: the threads of a pool's samples; none for those of one thread.
    ///   - companions: other threads' stacks; they come last, and none of their frames is the culprit.
    init(
        _ samples: [StackSample],
        pool: PoolThreads = PoolThreads(),
        companions: [CompanionStack] = [],
        thread: StallReport.Thread,
        clock: WallClockAnchor,
        name: ([ResolvableAddress]) -> Resolution,
        isOwn: (SymbolicatedFrame, LoadedModule?) -> Bool
    ) {
        let captured = samples.map(\.stack) + companions.compactMap(\.captured)
        let resolution = name(captured.flatMap(\.resolvableAddresses))
        let (named, loaded) = (resolution.frames, resolution.modules)
        problems = resolution.problems
        modules = loaded.map { .init(path: $0.path, buildID: $0.buildID, loadBase: Address(UInt64($0.loadBase))) }
        var rest = named[...]
        func told(_ capture: CapturedStack, _ thread: StallReport.Thread, _ time: MonotonicInstant) -> StallReport.Stack
        {
            let names = rest.prefix(capture.resolvableAddresses.count)
            rest = rest.dropFirst(names.count)
            let calls = zip(names, capture.frames).map { name, frame in
                StallReport.Frame.calls(name, found: frame.found) { isOwn($0, $0.moduleIndex.map { loaded[$0] }) }
            }
            let awaiting = names.dropFirst(calls.count).flatMap { name in
                StallReport.Frame.awaits(name) { isOwn($0, $0.moduleIndex.map { loaded[$0] }) }
            }
            return StallReport.Stack(capture, calls, awaiting, thread, clock.time(of: time))
        }
        let all = samples.weighted.map { sample, span in
            var stack = told(sample.stack, pool.thread(of: sample) ?? thread, sample.time)
            stack.count = sample.count
            stack.loop = sample.loopFrame.flatMap(stack.index(ofCall:))
            return CulpritSearch.Sample(stack: stack, span: span, states: sample.stack.frames.map(\.state))
        }
        let others = companions.map { companion in companion.told(clock) { told($0, $1, $2) } }
        var (distinct, detected) = Self.merged(all, detected: max(1, pool.size))
        let limit = max(Self.stackLimit, detected)
        culpritFrames = distinct.first?.stack.callers(from: 0) ?? []
        let order = pool.order(samples, all.map(\.stack))
        if let blame = CulpritSearch(order.map { all[$0] }) {
            let stack = all[order[blame.sample]].stack
            let position = distinct.firstIndex { $0.stack.identity == stack.identity } ?? 0
            // Kept, however short its stack lasted among the others.
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
        stacks += others
    }

    /// Equal stacks become one with a count. Those of detection stay first, then come those that lasted longest.
    ///
    /// - Parameter detected: how many of them are of detection: one, or a pool's workers.
    /// - Returns: them, and how many of them are of detection.
    private static func merged(_ all: [CulpritSearch.Sample], detected: Int) -> ([CulpritSearch.Sample], detected: Int) {
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

extension CapturedStack {
    /// The frames' own, then those of the awaiting functions.
    fileprivate var resolvableAddresses: [ResolvableAddress] {
        frames.map { ResolvableAddress(address: $0.address, isReturnAddress: $0.found != .register) }
            + awaiting.map { ResolvableAddress(address: $0, kind: .resumption) }
    }

    fileprivate var awaiting: [UInt] { asyncCallers?.addresses ?? [] }
}

extension StallReport.Stack {
    /// - Parameters:
    ///   - calls: of each frame of the stack.
    fileprivate init(
        _ capture: CapturedStack,
        _ calls: [[StallReport.Frame]],
        _ awaiting: [StallReport.Frame],
        _ thread: StallReport.Thread,
        _ time: Timestamp
    ) {
        self.init(
            thread: thread,
            capturedAt: time,
            method: capture.method.reportName,
            complete: capture.isComplete,
            frames: Array(calls.joined()),
            leftOut: capture.leftOut.map { .init(after: calls.prefix($0.after).joined().count, count: $0.count) },
            error: capture.truncation?.sentence,
            async: capture.asyncCallers.map { callers in
                .init(
                    from: calls.prefix(callers.frame + 1).joined().count - 1,
                    frames: awaiting,
                    ends: callers.end.reportName,
                    task: callers.taskNumber.map(UInt64.init)
                )
            }
        )
    }

    /// Another thread stood at the same.
    fileprivate mutating func join(_ other: StallReport.Thread) {
        guard other.id != thread.id, threads?.contains(where: { $0.id == other.id }) != true else { return }
        threads = (threads ?? [thread]) + [other]
    }

    /// Where the frame stands that is no inlined one and has so many such ones before it.
    fileprivate func index(ofCall number: Int) -> Int? {
        frames.indices.lazy.filter { frames[$0].kind == nil }.dropFirst(number).first
    }

    /// What is the same of two captures of one stall.
    var identity: [String] { frames.map(\.identity) + (async?.frames ?? []).map(\.identity) }
}

extension StallReport.Frame {
    /// What is the same of a function that is called twice.
    fileprivate var identity: String { symbol ?? "\(module ?? -1)+\(offset ?? address)" }
}

extension SymbolicatedStacks {
    /// Adds what the other threads were at, equal stacks once.
    mutating func add(
        _ others: ThreadStacks,
        at time: Timestamp,
        name: ([ResolvableAddress]) -> Resolution,
        isOwn: (SymbolicatedFrame, LoadedModule?) -> Bool
    ) {
        let addresses = others.groups.flatMap(\.stack.frames).map {
            ResolvableAddress(address: $0.address, isReturnAddress: $0.found != .register)
        }
        let resolution = name(addresses)
        let places = resolution.modules.map { place(of: $0) }
        var names = resolution.frames[...]
        for group in others.groups {
            let own = names.prefix(group.stack.frames.count)
            names = names.dropFirst(own.count)
            let calls = zip(own, group.stack.frames).map { name, frame in
                StallReport.Frame.calls(name, found: frame.found) {
                    isOwn($0, $0.moduleIndex.map { resolution.modules[$0] })
                }
                .map { $0.inModules(places) }
            }
            stacks.append(StallReport.Stack(group, calls, time))
        }
        stacks += others.missing.map {
            StallReport.Stack(
                role: .other,
                thread: .init(id: $0.threadID, name: $0.name.isEmpty ? nil : $0.name),
                capturedAt: time,
                complete: false,
                error: $0.error.description
            )
        }
    }

    /// Its place among the report's modules, which it joins unless it is there.
    private mutating func place(of loaded: LoadedModule) -> Int {
        let module = StallReport.Module(
            path: loaded.path,
            buildID: loaded.buildID,
            loadBase: Address(UInt64(loaded.loadBase))
        )
        if let known = modules.firstIndex(of: module) { return known }
        modules.append(module)
        return modules.count - 1
    }
}

extension StallReport.Frame {
    fileprivate func inModules(_ places: [Int]) -> Self {
        var frame = self
        frame.module = module.map { places[$0] }
        return frame
    }
}

extension StallReport.Stack {
    fileprivate init(_ group: ThreadStacks.Group, _ calls: [[StallReport.Frame]], _ time: Timestamp) {
        let threads = group.threads.map {
            StallReport.Thread(id: $0.threadID, name: $0.name.isEmpty ? nil : $0.name)
        }
        self.init(group.stack, calls, [], threads[0], time)
        (role, count, async) = (.other, threads.count, nil)
        self.threads = threads.count > 1 ? threads : nil
    }
}
