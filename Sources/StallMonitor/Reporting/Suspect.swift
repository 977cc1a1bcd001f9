import StallReports
import Symbolication

/// A function that may be to blame: on a stack, or awaiting what is on it.
struct Suspect: Hashable, Sendable {
    /// Index into the stack's frames, or into those of its awaiting functions.
    var frame: Int
    var isAwaiting = false
}

extension StallReport.Stack {
    func frame(_ suspect: Suspect) -> StallReport.Frame {
        suspect.isAwaiting ? async?.frames[suspect.frame] ?? frames[0] : frames[suspect.frame]
    }

    /// Who called whom, innermost first: the frames up to the innermost asynchronous function, those that await it, then the executor's.
    private var calls: [Suspect] {
        guard let async, frames.indices.contains(async.from) else { return frames.indices.map { Suspect(frame: $0) } }
        return frames[...async.from].indices.map { Suspect(frame: $0) }
            + async.frames.indices.map { Suspect(frame: $0, isAwaiting: true) }
            + frames[async.from...].indices.dropFirst().map { Suspect(frame: $0) }
    }

    /// What the loop called, innermost first: up to its innermost call to the outside. What is beyond runs the loop, as a server's `main`
    /// does, and is there in every stall. All, where the loop is another one or was not calling out.
    private var callout: [Suspect] {
        let calls = calls
        let inner = calls.prefix { !frame($0).isCallOfLoop }
        return inner.contains { frame($0).function != nil } ? Array(inner) : calls
    }

    /// From one on outwards, those that await included. One that is not own is followed by what the loop called alone.
    func frames(from suspect: Suspect) -> [StallReport.Frame] {
        guard frame(suspect).own else { return callout.drop { $0 != suspect }.map { frame($0) } }
        guard suspect.isAwaiting, let async else { return callers(from: suspect.frame) }
        return Array(async.frames[suspect.frame...] + frames.dropFirst(async.from + 1))
    }

    /// The calls that may be to blame, innermost first: own ones, but for those that a library calls through a protocol of the
    /// standard library (a `Decodable`'s `init(from:)`, a `Comparable`'s `<`), once for each of its values. Where nothing is own,
    /// all on the stack that have a name, but for the language's and the system's that a library calls.
    var suspects: [Suspect] {
        let calls = callout
        let own = calls.filter { frame($0).own }
        guard !own.isEmpty else {
            let named = calls.filter { !$0.isAwaiting && frame($0).function != nil }
            let libraries = named.filter { frame($0).isOfLibrary }
            return libraries.isEmpty ? named : libraries
        }
        let callers = own.filter { $0.isAwaiting || !isCalledByStandardWitness($0.frame) }
        return callers.isEmpty ? own : callers
    }

    /// Where the function begins inside of the witness, and goes on outside of it, it is on the stack twice.
    private func isCalledByStandardWitness(_ index: Int) -> Bool {
        let function = frames[index].function
        let caller = frames[index...].dropFirst().first { $0.kind != .inlined || $0.function != function }
        return caller?.isStandardWitness == true
    }
}

extension StallReport.Culprit {
    init(_ frame: StallReport.Frame, stack: Int, _ suspect: Suspect) {
        self.init(
            function: frame.function,
            symbol: frame.symbol,
            module: frame.symbol.flatMap(Demangler.swiftModule),
            file: frame.file,
            line: frame.line,
            stack: stack,
            frame: suspect.frame,
            isAwaiting: suspect.isAwaiting ? true : nil
        )
    }
}

extension StallReport.Frame {
    /// One of the engine's functions that stand between the loop and whatever it calls.
    fileprivate var isCallOfLoop: Bool { symbol?.hasPrefix("event_run_loop_is_") == true }

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
