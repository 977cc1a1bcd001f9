import StackCapture
import StallMonitor
import StallReports
import Symbolication

/// Groups stacks: the same functions in the same order, captured by the same method.
struct SampleTally {
    private struct Key: Hashable {
        var functions: [Function]
        /// The functions that await, and how their chain ends.
        var awaiting: [Function]
        var end: AsyncEnd?
        var method: CapturedStack.Method
        var truncation: CapturedStack.Truncation?
        var systemCall: Int?
    }

    /// Two addresses in one named function are equal. Unnamed functions are compared by address.
    private enum Function: Hashable {
        case named(module: Int?, symbol: String)
        case unnamed(Address)
    }

    private struct FailureKey: Hashable {
        var thread: Int32
        var code: CaptureError.Code
    }

    private var places: [Key: Int] = [:]
    private var threadPlaces: [[Int32: Int]] = []
    private var stacks: [SampleDocument.Stack] = []
    private var failed: [FailureKey: SampleDocument.Failure] = [:]

    mutating func add(_ stack: CapturedStack, _ calls: SampledCalls, of thread: ProcessThread) {
        let key = Key(
            functions: calls.frames.map(Self.function),
            awaiting: (calls.async?.frames ?? []).map(Self.function),
            end: calls.async?.ends,
            method: stack.method,
            truncation: stack.truncation,
            systemCall: stack.systemCall?.number
        )
        let place = places[key] ?? addPlace(for: key, stack, calls)
        stacks[place].count += 1
        stacks[place].heldNs += Int64(clamping: stack.cost.heldNanoseconds)
        if let sighting = threadPlaces[place][thread.threadID] {
            stacks[place].threads[sighting].count += 1
        } else {
            threadPlaces[place][thread.threadID] = stacks[place].threads.count
            stacks[place].threads.append(.init(thread: StallReport.Thread(thread), count: 1))
        }
    }

    mutating func add(_ error: CaptureError, _ message: String, of thread: ProcessThread) {
        let key = FailureKey(thread: thread.threadID, code: error.code)
        let first = SampleDocument.Failure(
            thread: StallReport.Thread(thread),
            code: error.code.name,
            message: message,
            count: 0
        )
        failed[key, default: first].count += 1
    }

    /// Most frequent first.
    var document: (stacks: [SampleDocument.Stack], failures: [SampleDocument.Failure]) {
        let sorted = stacks.enumerated().sorted { ($1.element.count, $0.offset) < ($0.element.count, $1.offset) }
        return (sorted.map(\.element), failed.values.sorted { ($0.thread.id, $0.code) < ($1.thread.id, $1.code) })
    }

    private mutating func addPlace(
        for key: Key,
        _ stack: CapturedStack,
        _ calls: SampledCalls
    ) -> Int {
        stacks.append(
            SampleDocument.Stack(
                count: 0,
                threads: [],
                method: stack.method.reportName.rawValue,
                systemCall: stack.systemCall.map(StallReport.SystemCall.init(_:)),
                heldNs: 0,
                complete: stack.isComplete,
                error: stack.truncation?.sentence,
                frames: calls.frames,
                leftOut: calls.leftOut,
                async: calls.async
            )
        )
        threadPlaces.append([:])
        places[key] = stacks.count - 1
        return stacks.count - 1
    }

    private static func function(of frame: StallReport.Frame) -> Function {
        guard let symbol = frame.symbol else { return .unnamed(frame.address) }
        return .named(module: frame.module, symbol: symbol)
    }
}

/// A stack with names.
struct SampledCalls {
    /// Innermost first.
    var frames: [StallReport.Frame]
    var leftOut: StallReport.LeftOut?
    var async: StallReport.AsyncCallers?
}

/// Names the frames of one process. Each address is named once, without delay: after the process has ended, that is impossible.
struct SampleNames {
    private var symbolicator: Symbolicator
    private var known: [CapturedStack.Frame: [StallReport.Frame]] = [:]
    /// The awaiting functions by their resumption address.
    private var awaits: [UInt: [StallReport.Frame]] = [:]
    private(set) var modules: [StallReport.Module] = []

    init(processID: Int32) { symbolicator = Symbolicator(processID: processID) }

    /// Call this when the process runs another program: then addresses have other meanings.
    mutating func forgetAddresses() {
        symbolicator = Symbolicator(ofSameProcessAs: symbolicator)
        (known, awaits) = ([:], [:])
    }

    mutating func calls(of stack: CapturedStack) -> SampledCalls {
        let awaiting = stack.asyncCallers?.addresses ?? []
        resolve(stack.frames.filter { known[$0] == nil }, awaiting.filter { awaits[$0] == nil })
        let calls = stack.frames.map { known[$0] ?? [] }
        let count = { (frames: Int) in calls.prefix(frames).reduce(0) { $0 + $1.count } }
        return SampledCalls(
            frames: Array(calls.joined()),
            leftOut: stack.leftOut.map { .init(after: count($0.after), count: $0.count) },
            async: stack.asyncCallers.map { callers in
                .init(
                    from: count(callers.frame + 1) - 1,
                    frames: awaiting.flatMap { awaits[$0] ?? [] },
                    ends: callers.end.reportName,
                    task: callers.taskNumber.map(UInt64.init)
                )
            }
        )
    }

    private mutating func resolve(_ frames: [CapturedStack.Frame], _ awaiting: [UInt]) {
        guard !frames.isEmpty || !awaiting.isEmpty else { return }
        let resolved = symbolicator.resolve(
            frames.map(\.resolvableAddress)
                + awaiting.map { ResolvableAddress(address: $0, kind: .resumption) },
            budget: .tool
        )
        let places = resolved.modules.map { place(of: StallReport.Module($0)) }
        let named = resolved.frames.map { frame in
            var frame = frame
            frame.moduleIndex = frame.moduleIndex.map { places[$0] }
            return frame
        }
        for (frame, named) in zip(frames, named) {
            known[frame] = StallReport.Frame.calls(named, found: frame.found) { _ in false }
        }
        for (address, named) in zip(awaiting, named.dropFirst(frames.count)) {
            awaits[address] = StallReport.Frame.awaits(named) { _ in false }
        }
    }

    private mutating func place(of module: StallReport.Module) -> Int {
        if let index = modules.firstIndex(of: module) { return index }
        modules.append(module)
        return modules.count - 1
    }
}

// Captures converted to report types.

extension StallReport.Thread {
    init(_ thread: ProcessThread) {
        self.init(id: thread.threadID, name: thread.name, state: thread.state.map(String.init))
    }
}

extension SampleDocument.Cost {
    /// - Parameter samplerCPU: The processor time of this process.
    init(_ cost: SamplingCost, samplerCPU: Int64) {
        self.init(
            stops: Int64(clamping: cost.stops),
            heldNs: Int64(clamping: cost.heldNanoseconds),
            longestHeldNs: Int64(clamping: cost.longestHeldNanoseconds),
            waitedNs: Int64(clamping: cost.waitedNanoseconds),
            callsRestarted: Int64(clamping: cost.callsRestarted),
            stopsGivenUp: Int64(clamping: cost.stopsGivenUp),
            samplerCPUNs: samplerCPU
        )
    }
}
