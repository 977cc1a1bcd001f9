import StallReports
import Symbolication

/// A function that may be to blame: on a stack, or awaiting what is on it.
struct CulpritCandidate: Hashable, Sendable {
    /// Index into the stack's frames, or into those of its awaiting functions.
    var frame: Int
    var isAwaiting = false
}

/// Which functions may be to blame, the best first.
enum CandidateKind: CaseIterable {
    /// Own ones, but for those that a library calls through a protocol of the standard library (a `Decodable`'s `init(from:)`, a
    /// `Comparable`'s `<`), once for each of its values, and those that the compiler made one of several, which bear the name of any.
    case sureOwn
    case own
    /// Of a library, but not the language's or the system's.
    case library
    case named
}

extension StallReport.Stack {
    func frame(_ candidate: CulpritCandidate) -> StallReport.Frame {
        candidate.isAwaiting ? async?.frames[candidate.frame] ?? frames[0] : frames[candidate.frame]
    }

    /// Who called whom, innermost first: the frames up to the innermost asynchronous function, those that await it, then the executor's.
    private var calls: [CulpritCandidate] {
        guard let async, frames.indices.contains(async.from) else {
            return frames.indices.map { CulpritCandidate(frame: $0) }
        }
        return frames[...async.from].indices.map { CulpritCandidate(frame: $0) }
            + async.frames.indices.map { CulpritCandidate(frame: $0, isAwaiting: true) }
            + frames[async.from...].indices.dropFirst().map { CulpritCandidate(frame: $0) }
    }

    /// What the loop called, innermost first: up to its innermost call to the outside. What is beyond runs the loop, as a server's `main`
    /// does, and is there in every stall. All, where the loop is another one or was not calling out.
    private var callout: [CulpritCandidate] {
        let calls = calls
        if let loop, loop > 0 {
            return Array(calls.prefix { $0.isAwaiting || $0.frame < loop })
        }
        let inner = calls.prefix { !frame($0).isCallOfLoop }
        return inner.contains { frame($0).function != nil } ? Array(inner) : calls
    }

    /// From one on outwards, those that await included. One that is not own is followed by what the loop called alone.
    func frames(from candidate: CulpritCandidate) -> [StallReport.Frame] {
        guard frame(candidate).own else { return callout.drop { $0 != candidate }.map { frame($0) } }
        guard candidate.isAwaiting, let async else { return callers(from: candidate.frame) }
        return Array(async.frames[candidate.frame...] + frames.dropFirst(async.from + 1))
    }

    /// The calls of a kind that may be to blame, innermost first, each with its place among all calls.
    func candidates(of kind: CandidateKind) -> [(candidate: CulpritCandidate, place: Int)] {
        callout.enumerated().filter { isSuspect($0.element, kind) }.map { ($0.element, $0.offset) }
    }

    private func isSuspect(_ call: CulpritCandidate, _ kind: CandidateKind) -> Bool {
        let frame = frame(call)
        switch kind {
        case .sureOwn:
            return frame.own && !frame.isMerged && (call.isAwaiting || !isCalledByStandardWitness(call.frame))
        case .own: return frame.own
        case .library: return !call.isAwaiting && frame.isOfLibrary
        case .named: return !call.isAwaiting && frame.function != nil
        }
    }

    /// Where in its calls the frame begins, the calls inlined into it included, that is so many frames from the thread's first one.
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

    /// Where the function begins inside of the witness, and goes on outside of it, it is on the stack twice.
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
    /// One of the engine's functions that stand between the loop and whatever it calls.
    fileprivate var isCallOfLoop: Bool { symbol?.hasPrefix("event_run_loop_is_") == true }

    /// One body for several functions, under the name of one of them.
    var isMerged: Bool { symbol.map { $0.contains("Tm") && SourceFunction(symbol: $0).isMerged } ?? false }

    /// In a Swift module that is not the language's own.
    fileprivate var isOfLibrary: Bool {
        guard let module = symbol.flatMap(Demangler.swiftModule) else { return false }
        return module != "Swift" && module != "Synchronization" && !module.hasPrefix("_")
    }

    /// The compiler's bridge from a protocol of the standard library to a type's own function.
    fileprivate var isStandardWitness: Bool {
        symbol.map(Demangler.demangle)?.hasPrefix("protocol witness for Swift.") == true
    }
}
