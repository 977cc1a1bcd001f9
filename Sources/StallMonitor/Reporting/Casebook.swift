import RunLoopKit
import StackCapture
import StallReports
import Symbolication

/// All that was captured of one stall, with names: its stacks, the culprit, the fingerprint's frames.
struct Casebook {
    private(set) var stacks: [StallReport.Stack] = []
    private(set) var modules: [StallReport.Module] = []
    private(set) var culprit: StallReport.Culprit?
    /// Why names or lines are missing.
    private(set) var problems: [SymbolProblem] = []
    /// The frames from the culprit outwards, also those that await. Without a culprit, all of the first stack.
    private(set) var culpritFrames: [StallReport.Frame] = []

    /// Distinct stacks kept: the detection's first, then those that lasted longest.
    private static let stackLimit = 5

    /// - Parameters:
    ///   - samples: the detection's first. May be empty.
    ///   - thread: whose they are.
    ///   - name: finds names for addresses, in their order.
    ///   - isOwn: whether a function is the server's own.
    ///   - companions: other threads' stacks; they come last, and none of their frames is the culprit.
    init(
        _ samples: [StackSample],
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
            var stack = told(sample.stack, thread, sample.time)
            stack.count = sample.count
            return TimedStack(stack: stack, span: span)
        }
        let others = companions.map { companion in companion.told(clock) { told($0, $1, $2) } }
        var distinct = Self.merged(all)
        culpritFrames = distinct.first?.stack.callers(from: 0) ?? []
        if let (position, suspect) = Self.culprit(of: distinct) {
            // Kept, however short its stack lasted among the others.
            let place = min(position, Self.stackLimit - 1)
            distinct.swapAt(position, place)
            let stack = distinct[place].stack
            culpritFrames = stack.frames(from: suspect)
            culprit = .init(stack.frame(suspect), stack: place, suspect)
        }
        stacks = distinct.prefix(Self.stackLimit).map { timed in
            var stack = timed.stack
            stack.sampledNs = timed.span.nanoseconds
            return stack
        }
        stacks += others
    }

    /// Equal stacks become one with a count. The detection's stays first, then come those that lasted longest.
    private static func merged(_ all: [TimedStack]) -> [TimedStack] {
        var distinct: [TimedStack] = []
        for next in all {
            let identity = next.stack.identity
            if let index = distinct.firstIndex(where: { $0.stack.identity == identity }) {
                distinct[index].stack.count += next.stack.count
                distinct[index].span += next.span
            } else {
                distinct.append(next)
            }
        }
        return distinct.prefix(1) + distinct.dropFirst().sorted { $0.span > $1.span }
    }

    /// The own function that was on the stack for longest; among equals, the innermost. What a library calls for each of many
    /// values comes and goes; the function that called the library stays.
    private static func culprit(of all: [TimedStack]) -> (stack: Int, suspect: Suspect)? {
        var spans: [String: Duration] = [:]
        for timed in all {
            for symbol in Set(timed.stack.suspects.compactMap { timed.stack.frame($0).symbol }) {
                spans[symbol, default: .zero] += timed.span
            }
        }
        guard let longest = spans.values.max() else { return nil }
        for (position, timed) in all.enumerated() {
            let suspect = timed.stack.suspects.first { timed.stack.frame($0).symbol.flatMap { spans[$0] } == longest }
            if let suspect { return (position, suspect) }
        }
        return nil
    }
}

/// A stack, and how long it stands for.
private struct TimedStack {
    var stack: StallReport.Stack
    var span: Duration
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
            method: capture.method == .quiet ? .quiet : .signal,
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

    /// What is the same of two captures of one stall.
    fileprivate var identity: [String] { frames.map(\.identity) + (async?.frames ?? []).map(\.identity) }
}

extension StallReport.Frame {
    /// What is the same of a function that is called twice.
    fileprivate var identity: String { symbol ?? "\(module ?? -1)+\(offset ?? address)" }
}
