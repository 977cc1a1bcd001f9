import StackCapture
import StallReports
import Symbolication

/// All that was captured of one stall, with names: its stacks, the culprit, the fingerprint's frames.
struct Casebook {
    private(set) var stacks: [StallReport.Stack] = []
    private(set) var modules: [StallReport.Module] = []
    private(set) var culprit: StallReport.Culprit?
    /// The frames from the culprit outwards.
    private(set) var culpritFrames: [StallReport.Frame] = []

    /// Distinct stacks kept: the detection's first, then the most frequent.
    private static let stackLimit = 5

    /// - Parameters:
    ///   - captures: the detection's first. May be empty.
    ///   - thread: whose they are.
    ///   - name: finds names for addresses, in their order.
    ///   - isOwn: whether a function is the server's own.
    init(
        _ captures: [CapturedStack],
        thread: StallReport.Thread,
        time: Timestamp,
        name: ([ResolvableAddress]) -> (frames: [SymbolicatedFrame], modules: [LoadedModule]),
        isOwn: (SymbolicatedFrame, LoadedModule?) -> Bool
    ) {
        let (named, loaded) = name(captures.flatMap(\.resolvableAddresses))
        modules = loaded.map { .init(path: $0.path, buildID: $0.buildID, loadBase: Address(UInt64($0.loadBase))) }
        var rest = named[...]
        for capture in captures {
            let frames = Array(rest.prefix(capture.frames.count))
            rest = rest.dropFirst(frames.count)
            let own = frames.map { isOwn($0, $0.moduleIndex.map { loaded[$0] }) }
            add(StallReport.Stack(capture, frames, own: own, thread, time))
        }
        let others = stacks.dropFirst().sorted { $0.count > $1.count }
        stacks = Array(stacks.prefix(1) + others.prefix(Self.stackLimit - 1))
        findCulprit(swiftModules: Dictionary(named.map { ($0.symbol, $0.swiftModule) }) { first, _ in first })
    }

    /// Equal stacks become one with a count.
    private mutating func add(_ stack: StallReport.Stack) {
        if let index = stacks.firstIndex(where: { $0.frames.map(\.symbol) == stack.frames.map(\.symbol) }) {
            stacks[index].count += 1
        } else {
            stacks.append(stack)
        }
    }

    /// The own function that was on the stack most often; among equals, the innermost. What a library calls for each of many
    /// values comes and goes; the function that called the library stays.
    private mutating func findCulprit(swiftModules: [String?: String?]) {
        var counts: [String: Int] = [:]
        for stack in stacks {
            for symbol in Set(stack.suspects.compactMap { stack.frames[$0].symbol }) {
                counts[symbol, default: 0] += stack.count
            }
        }
        let most = counts.values.max()
        for (position, stack) in stacks.enumerated() {
            let index = stack.suspects.first { stack.frames[$0].symbol.flatMap { counts[$0] } == most }
            guard let index, most != nil else { continue }
            let frame = stack.frames[index]
            culprit = .init(
                function: frame.function,
                symbol: frame.symbol,
                module: swiftModules[frame.symbol].flatMap { $0 },
                stack: position,
                frame: index
            )
            culpritFrames = Array(stack.frames[index...])
            return
        }
    }
}

extension CapturedStack {
    fileprivate var resolvableAddresses: [ResolvableAddress] {
        frames.map { ResolvableAddress(address: $0.address, isReturnAddress: $0.found != .register) }
    }
}

extension StallReport.Stack {
    fileprivate init(
        _ capture: CapturedStack,
        _ frames: [SymbolicatedFrame],
        own: [Bool],
        _ thread: StallReport.Thread,
        _ time: Timestamp
    ) {
        self.init(
            thread: thread,
            capturedAt: time,
            method: capture.method == .quiet ? .quiet : .signal,
            complete: capture.isComplete,
            frames: frames.indices.map { .init(frames[$0], found: capture.frames[$0].found, own: own[$0]) },
            error: capture.truncation?.sentence
        )
    }

    /// The frames that may be to blame, innermost first: own ones, but for those that a library calls through a protocol of the
    /// standard library (a `Decodable`'s `init(from:)`, a `Comparable`'s `<`), once for each of its values. Where nothing is own,
    /// all that have a name.
    fileprivate var suspects: [Int] {
        let own = frames.indices.filter { frames[$0].own }
        guard !own.isEmpty else { return frames.indices.filter { frames[$0].function != nil } }
        let callers = own.filter { !frames[$0...].dropFirst().prefix(1).contains(where: \.isStandardWitness) }
        return callers.isEmpty ? own : callers
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

    /// The compiler's bridge from a protocol of the standard library to a type's own function.
    fileprivate var isStandardWitness: Bool {
        symbol.map(Demangler.demangle)?.hasPrefix("protocol witness for Swift.") == true
    }
}
