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
    init(
        _ samples: [StackSample],
        thread: StallReport.Thread,
        clock: WallClockAnchor,
        name: ([ResolvableAddress]) -> Resolution,
        isOwn: (SymbolicatedFrame, LoadedModule?) -> Bool
    ) {
        let resolution = name(samples.flatMap(\.stack.resolvableAddresses))
        let (named, loaded) = (resolution.frames, resolution.modules)
        problems = resolution.problems
        modules = loaded.map { .init(path: $0.path, buildID: $0.buildID, loadBase: Address(UInt64($0.loadBase))) }
        var rest = named[...]
        let all = zip(samples, Self.spans(of: samples)).map { sample, span in
            let names = rest.prefix(sample.stack.resolvableAddresses.count)
            rest = rest.dropFirst(names.count)
            let calls = zip(names, sample.stack.frames).map { name, frame in
                StallReport.Frame.calls(name, found: frame.found) { isOwn($0, $0.moduleIndex.map { loaded[$0] }) }
            }
            let awaiting = names.dropFirst(calls.count).flatMap { name in
                StallReport.Frame.awaits(name) { isOwn($0, $0.moduleIndex.map { loaded[$0] }) }
            }
            let stack = StallReport.Stack(sample.stack, calls, awaiting, thread, clock.time(of: sample.time))
            return TimedStack(stack: stack, span: span)
        }
        var distinct = Self.merged(all)
        culpritFrames = distinct.first?.stack.callers(from: 0) ?? []
        if let (position, frame) = Self.culprit(of: distinct) {
            // Kept, however short its stack lasted among the others.
            let place = min(position, Self.stackLimit - 1)
            distinct.swapAt(position, place)
            let frames = distinct[place].stack.frames
            culpritFrames = distinct[place].stack.callers(from: frame)
            culprit = .init(
                function: frames[frame].function,
                symbol: frames[frame].symbol,
                module: frames[frame].symbol.flatMap(Demangler.swiftModule),
                file: frames[frame].file,
                line: frames[frame].line,
                stack: place,
                frame: frame
            )
        }
        stacks = distinct.prefix(Self.stackLimit).map(\.stack)
    }

    /// How long each sample stands for: since the one before it. The first stands for as long as the shortest of the others.
    private static func spans(of samples: [StackSample]) -> [Duration] {
        let times = samples.map(\.time).sorted()
        let gaps = zip(times.dropFirst(), times).map { $0 - $1 }
        let spans = Dictionary(zip(times.dropFirst(), gaps)) { first, _ in first }
        return samples.map { spans[$0.time] ?? gaps.min() ?? .milliseconds(1) }
    }

    /// Equal stacks become one with a count. The detection's stays first, then come those that lasted longest.
    private static func merged(_ all: [TimedStack]) -> [TimedStack] {
        var distinct: [TimedStack] = []
        for next in all {
            let identity = next.stack.identity
            if let index = distinct.firstIndex(where: { $0.stack.identity == identity }) {
                distinct[index].stack.count += 1
                distinct[index].span += next.span
            } else {
                distinct.append(next)
            }
        }
        return distinct.prefix(1) + distinct.dropFirst().sorted { $0.span > $1.span }
    }

    /// The own function that was on the stack for longest; among equals, the innermost. What a library calls for each of many
    /// values comes and goes; the function that called the library stays.
    private static func culprit(of all: [TimedStack]) -> (stack: Int, frame: Int)? {
        var spans: [String: Duration] = [:]
        for timed in all {
            for symbol in Set(timed.stack.suspects.compactMap { timed.stack.frames[$0].symbol }) {
                spans[symbol, default: .zero] += timed.span
            }
        }
        guard let longest = spans.values.max() else { return nil }
        for (position, timed) in all.enumerated() {
            let frame = timed.stack.suspects.first { timed.stack.frames[$0].symbol.flatMap { spans[$0] } == longest }
            if let frame { return (position, frame) }
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

    /// The frames that may be to blame, innermost first: own ones, but for those that a library calls through a protocol of the
    /// standard library (a `Decodable`'s `init(from:)`, a `Comparable`'s `<`), once for each of its values. Where nothing is own,
    /// all that have a name.
    var suspects: [Int] {
        let own = frames.indices.filter { frames[$0].own }
        guard !own.isEmpty else { return frames.indices.filter { frames[$0].function != nil } }
        let callers = own.filter { !frames[$0...].dropFirst().prefix(1).contains(where: \.isStandardWitness) }
        return callers.isEmpty ? own : callers
    }
}

extension StallReport.Frame {
    /// What is the same of a function that is called twice.
    fileprivate var identity: String { symbol ?? "\(module ?? -1)+\(offset ?? address)" }

    /// The compiler's bridge from a protocol of the standard library to a type's own function.
    fileprivate var isStandardWitness: Bool {
        symbol.map(Demangler.demangle)?.hasPrefix("protocol witness for Swift.") == true
    }
}
