import StallReports
import Symbolication

/// A function that can be the culprit: one on a stack, or one that awaits the stack's functions.
struct CulpritCandidate: Hashable, Sendable {
    /// Index into the stack's frames, or into the frames of its awaiting functions.
    var frame: Int
    var isAwaiting = false
}

/// The kinds of candidates, best first.
enum CandidateKind: CaseIterable {
    /// Own functions, with two exceptions. Some are called by a library once for each value, through a protocol of the standard
    /// library: a `Decodable`'s `init(from:)`, a `Comparable`'s `<`. Others were merged by the compiler from several functions, and
    /// may have the name of any of these.
    case sureOwn
    case own
    /// Library functions, except those of the language and the system.
    case library
    case named
}

extension StallReport.Stack {
    func frame(_ candidate: CulpritCandidate) -> StallReport.Frame {
        candidate.isAwaiting ? async?.frames[candidate.frame] ?? frames[0] : frames[candidate.frame]
    }

    /// The chain of callers, innermost first: the frames up to the innermost asynchronous function, then the functions that await
    /// it, then the executor's frames.
    private var calls: [CulpritCandidate] {
        guard let async, frames.indices.contains(async.from) else {
            return frames.indices.map { CulpritCandidate(frame: $0) }
        }
        return frames[...async.from].indices.map { CulpritCandidate(frame: $0) }
            + async.frames.indices.map { CulpritCandidate(frame: $0, isAwaiting: true) }
            + frames[async.from...].indices.dropFirst().map { CulpritCandidate(frame: $0) }
    }

    /// What the loop called, innermost first, up to its innermost callout. Frames beyond, such as a server's `main`, run the loop
    /// and are in every stall. All frames, if the loop is of another kind or was not in a callout.
    private var callout: [CulpritCandidate] {
        let calls = calls
        if let loop, loop > 0 {
            let end = scriptFunction(calledFrom: loop).map { $0 + 1 } ?? loop
            return Array(calls.prefix { $0.isAwaiting || $0.frame < end })
        }
        let inner = calls.prefix { !frame($0).isCallOfLoop }
        return inner.contains { frame($0).function != nil } ? Array(inner) : calls
    }

    /// The own function of a Python script that runs in the frame of the loop, as far as the addresses show. Python's interpreter makes
    /// all calls at the same places, so what the script called to wait and what it calls now look like one call that goes on.
    private func scriptFunction(calledFrom loop: Int) -> Int? {
        let function = frames.indices.dropFirst(loop).first { frames[$0].symbol?.hasPrefix("py::") == true }
        return function.flatMap { frames[$0].own ? $0 : nil }
    }

    /// The frames from one outwards, including awaiting functions. If the frame is not an own one, only what the loop called
    /// follows.
    func frames(from candidate: CulpritCandidate) -> [StallReport.Frame] {
        guard frame(candidate).own else { return callout.drop { $0 != candidate }.map { frame($0) } }
        guard candidate.isAwaiting, let async else { return callers(from: candidate.frame) }
        return Array(async.frames[candidate.frame...] + frames.dropFirst(async.from + 1))
    }

    /// The candidates of a kind, innermost first, each with its place among all calls.
    func candidates(of kind: CandidateKind) -> [(candidate: CulpritCandidate, place: Int)] {
        callout.enumerated().filter { isCandidate($0.element, kind) }.map { ($0.element, $0.offset) }
    }

    private func isCandidate(_ call: CulpritCandidate, _ kind: CandidateKind) -> Bool {
        let frame = frame(call)
        switch kind {
        case .sureOwn:
            return frame.own && !frame.isMerged && (call.isAwaiting || !isCalledByStandardWitness(call.frame))
        case .own: return frame.own
        case .library: return !call.isAwaiting && frame.isOfLibrary
        case .named: return !call.isAwaiting && frame.function != nil
        }
    }

    /// The index of the frame with this distance from the thread's first one. Calls inlined into it are included.
    func start(ofLevel level: Int) -> Int? {
        var left = level
        guard
            var index = frames.indices.last(where: { index in
                guard frames[index].kind == nil else { return false }
                left -= 1
                return left < 0
            })
        else { return nil }
        while index > 0, frames[index - 1].kind == .inlined { index -= 1 }
        return calls.firstIndex(of: CulpritCandidate(frame: index))
    }

    /// Whether a witness calls it. A function that begins inside the witness and continues outside is on the stack twice.
    private func isCalledByStandardWitness(_ index: Int) -> Bool {
        let function = frames[index].function
        let caller = frames[index...].dropFirst().first { $0.kind != .inlined || $0.function != function }
        return caller?.isStandardWitness == true
    }
}

extension StallReport.Culprit {
    init(_ frame: StallReport.Frame, stack: Int, _ candidate: CulpritCandidate) {
        self.init(
            function: frame.function,
            symbol: frame.symbol,
            module: frame.symbol.flatMap(Demangler.swiftModule),
            file: frame.file,
            line: frame.line,
            stack: stack,
            frame: candidate.frame,
            isAwaiting: candidate.isAwaiting ? true : nil
        )
    }
}

extension StallReport.Frame {
    /// Whether it is a function of the engine between the loop and what it calls.
    fileprivate var isCallOfLoop: Bool { symbol?.hasPrefix("event_run_loop_is_") == true }

    /// Whether it is one body for several functions, with the name of one of them.
    var isMerged: Bool { symbol.map { $0.contains("Tm") && SourceFunction(symbol: $0).isMerged } ?? false }

    /// Whether it is in a Swift module other than the language's own.
    fileprivate var isOfLibrary: Bool {
        guard let module = symbol.flatMap(Demangler.swiftModule) else { return false }
        return module != "Swift" && module != "Synchronization" && !module.hasPrefix("_")
    }

    /// Whether it is the compiler's thunk from a protocol of the standard library to a type's own function.
    fileprivate var isStandardWitness: Bool {
        symbol.map(Demangler.demangle)?.hasPrefix("protocol witness for Swift.") == true
    }
}
