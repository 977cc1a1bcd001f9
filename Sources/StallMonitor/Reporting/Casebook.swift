import StackCapture
import StallReports
import Symbolication

/// All that was captured of one stall, with names: its stacks, the culprit, the fingerprint.
struct Casebook {
    private(set) var stacks: [StallReport.Stack] = []
    private(set) var modules: [StallReport.Module] = []
    private(set) var culprit: StallReport.Culprit?
    /// The own frames from the culprit outwards: what the fingerprint is made of.
    private(set) var culpritFrames: [StallReport.Frame] = []

    /// Distinct stacks kept, the detection's first, then the most frequent.
    private static let stackLimit = 5

    /// - Parameters:
    ///   - captures: the detection's first. May be empty.
    ///   - thread: whose they are.
    init(
        _ captures: [CapturedStack],
        thread: StallReport.Thread,
        time: Timestamp,
        name: ([ResolvableAddress]) -> (frames: [SymbolicatedFrame], modules: [LoadedModule]),
        isOwn: (SymbolicatedFrame, LoadedModule?) -> Bool
    ) {
        let addresses = captures.flatMap { capture in
            capture.frames.map { ResolvableAddress(address: $0.address, isReturnAddress: $0.found != .register) }
        }
        let (named, loaded) = name(addresses)
        modules = loaded.map { .init(path: $0.path, buildID: $0.buildID, loadBase: Address(UInt64($0.loadBase))) }
        var rest = named[...]
        let all = captures.map { capture in
            defer { rest = rest.dropFirst(capture.frames.count) }
            return StallReport.Stack(capture, thread, time) { index in
                let frame = rest[rest.startIndex + index]
                let module = frame.moduleIndex.map { loaded[$0] }
                return StallReport.Frame(frame, found: capture.frames[index].found, own: isOwn(frame, module))
            }
        }
        stacks = Self.merged(all)
        chooseCulprit(all, swiftModules: Dictionary(zip(named.map(\.symbol), named.map(\.swiftModule))) { a, _ in a })
    }

    /// The culprit is the own function that was on the stack most often; among equals, the innermost. A function that a library
    /// calls again and again comes and goes; the one that called the library stays. Where nothing is own, the innermost function
    /// of the detection that has a name.
    private mutating func chooseCulprit(_ all: [StallReport.Stack], swiftModules: [String?: String?]) {
        var counts: [String: Int] = [:]
        for stack in all {
            for symbol in Set(stack.frames.filter(\.own).compactMap(\.symbol)) { counts[symbol, default: 0] += 1 }
        }
        let most = counts.values.max()
        let isCulprit: (StallReport.Frame) -> Bool = { frame in
            guard let most else { return frame.function != nil }
            return frame.own && frame.symbol.flatMap { counts[$0] } == most
        }
        for (position, stack) in stacks.enumerated() {
            guard let index = stack.frames.firstIndex(where: isCulprit) else { continue }
            let frame = stack.frames[index]
            let module = swiftModules[frame.symbol].flatMap { $0 }
            culprit = .init(
                function: frame.function,
                symbol: frame.symbol,
                module: module,
                stack: position,
                frame: index
            )
            culpritFrames = Array(stack.frames[index...])
            return
        }
    }

    /// Equal stacks become one with a count.
    private static func merged(_ all: [StallReport.Stack]) -> [StallReport.Stack] {
        var distinct: [StallReport.Stack] = []
        for stack in all {
            if let index = distinct.firstIndex(where: { $0.frames.map(\.symbol) == stack.frames.map(\.symbol) }) {
                distinct[index].count += 1
            } else {
                distinct.append(stack)
            }
        }
        let others = distinct.dropFirst().sorted { $0.count > $1.count }
        return Array(distinct.prefix(1) + others.prefix(stackLimit - 1))
    }
}

extension StallReport.Stack {
    fileprivate init(
        _ capture: CapturedStack,
        _ thread: StallReport.Thread,
        _ time: Timestamp,
        frame: (Int) -> StallReport.Frame
    ) {
        self.init(
            thread: thread,
            capturedAt: time,
            method: capture.method == .quiet ? .quiet : .signal,
            complete: capture.isComplete,
            frames: capture.frames.indices.map(frame),
            error: capture.truncation?.sentence
        )
    }
}

extension StallReport.Frame {
    fileprivate init(_ frame: SymbolicatedFrame, found: CapturedStack.Frame.Found, own: Bool) {
        self.init(
            address: Address(UInt64(frame.address)),
            module: frame.moduleIndex,
            offset: frame.moduleIndex.map { _ in Address(UInt64(frame.moduleOffset)) },
            function: frame.symbol.map(Demangler.shortName),
            symbol: frame.symbol,
            functionOffset: frame.functionOffset.map { Address(UInt64($0)) },
            own: own,
            foundBy: found.origin
        )
    }
}
