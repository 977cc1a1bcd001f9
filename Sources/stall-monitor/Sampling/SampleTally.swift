import StackCapture
import StallMonitor
import StallReports

/// Stacks by what they have in common: the same functions in the same order, taken in the same way.
struct SampleTally {
    private struct Key: Hashable {
        var functions: [Function]
        /// Of the functions that await, and how their chain ends.
        var awaiting: [Function]
        var end: AsyncEnd?
        var method: CapturedStack.Method
        var truncation: CapturedStack.Truncation?
        var systemCall: Int?
    }

    /// Two places in one function are the same; without a name only the address is.
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

    /// Those seen most often first.
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
                method: stack.method.name,
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
