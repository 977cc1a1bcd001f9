import StackCapture

/// Whether the captured chain equals the shape's chain.
struct Verdict {
    let trial: Judge.Captured
    let names: Names

    private var expected: [Awaiting] { trial.expected.awaiting.filter { $0.task == trial.expected.task } }
    private var callers: AsyncCallers? { trial.stack.asyncCallers }
    private var found: [Names.Place] { callers?.addresses.compactMap { names.places[$0] } ?? [] }

    var isRight: Bool { faults.isEmpty }

    var faults: [String] {
        var faults: [String] = []
        if !comparison.isRight { faults.append("chain") }
        if callers.map({ "\($0.end)" }) != "\(trial.shape.end)" { faults.append("end") }
        if callers?.taskNumber.map(UInt64.init) != trial.expected.task { faults.append("task") }
        return faults
    }

    /// Awaiting functions found without a line.
    var missingLines: Int { comparison.missingLines }

    private var comparison: Comparison {
        var comparison = Comparison(expected: expected[...])
        for place in found { comparison.take(place) }
        return comparison
    }

    var text: String {
        """
        \(isRight ? "right" : "WRONG") \(trial.shape.name) (\(trial.standstill)) \(faults.joined(separator: ", "))
            expected \(expected.map { "\($0.function):\($0.line)" })
            found    \(found.map { "\($0.function):\($0.line ?? 0)\($0.isOwn ? "" : " aside")" })
            stack    \(names.functions(of: trial.stack)) \(callers.map { "\($0.end) frame \($0.frame)" } ?? "no async frame")
        """
    }
}

/// Compares two chains from the innermost function outwards. Transformations by the optimiser are allowed, and nothing else.
private struct Comparison {
    var expected: ArraySlice<Awaiting>
    private var isAstray = false
    private var last = ""
    private(set) var missingLines = 0

    init(expected: ArraySlice<Awaiting>) {
        self.expected = expected
    }

    var isRight: Bool { !isAstray && expected.allSatisfy(\.isOptional) }

    mutating func take(_ place: Names.Place) {
        // Functions that the libraries or the compiler add are in no source file of this program.
        guard place.isOwn else { return }
        skipOptional(before: place)
        guard let next = expected.first else {
            isAstray = isAstray || place.line != nil && place.function != last
            return
        }
        if next.function == place.function, next.matches(place) {
            missingLines += place.line == nil ? 1 : 0
            expected.removeFirst()
        } else if next.function == place.builtIn || next.isClosure(in: place.function) {
            // The closure has been merged into the function that calls it, or that contains it.
            let around = expected.dropFirst().first { $0.function == place.function }
            isAstray = isAstray || !(next.matches(place) || around?.matches(place) == true)
            expected.removeFirst()
            if expected.first == around { expected = expected.dropFirst() }
        } else if place.line != nil && place.function != last {
            isAstray = true
        }
        last = place.function
    }

    private mutating func skipOptional(before place: Names.Place) {
        if let next = expected.first, next.isOptional, next.function != place.function {
            expected = expected.dropFirst()
        }
    }
}

extension Awaiting {
    fileprivate func matches(_ place: Names.Place) -> Bool {
        let lines = place.inlinedLines + [place.line].compactMap { $0 }
        return lines.isEmpty || lines.contains { (line...line + slack).contains($0) }
    }

    fileprivate func isClosure(in function: String) -> Bool {
        self.function.hasPrefix("closure #") && self.function.hasSuffix(" in " + function)
    }
}
