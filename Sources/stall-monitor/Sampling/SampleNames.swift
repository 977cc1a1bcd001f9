import StackCapture
import StallMonitor
import StallReports
import Symbolication

/// A stack with names.
struct SampledCalls {
    /// Innermost first.
    var frames: [StallReport.Frame]
    var leftOut: StallReport.LeftOut?
    var async: StallReport.AsyncCallers?
}

/// Names for the frames of one process, asked for once per address: of a process that ends, nothing can be named any more.
struct SampleNames {
    private let processID: Int32
    private var symbolicator: Symbolicator
    private var known: [CapturedStack.Frame: [StallReport.Frame]] = [:]
    /// By where they go on.
    private var awaits: [UInt: [StallReport.Frame]] = [:]
    private(set) var modules: [StallReport.Module] = []

    init(processID: Int32) {
        self.processID = processID
        symbolicator = Symbolicator(processID: processID)
    }

    /// The process runs another program: the same address is something else now.
    mutating func forgetAddresses() {
        symbolicator = Symbolicator(processID: processID)
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
            frames.map { ResolvableAddress(address: $0.address, isReturnAddress: $0.found != .register) }
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
