extension StallReport {
    /// The frame to check first: the own function that was on the stack for the longest time, and among equals the innermost. Without an own
    /// function it is a library's, or any that has a name.
    public struct Culprit: Codable, Hashable, Sendable {
        /// The demangled name in that frame. Nil if it has no name.
        public var function: String?
        /// The mangled name in that frame. Nil if it has none.
        public var symbol: String?
        /// The Swift module whose source contains it. Nil for other languages.
        public var module: String?
        /// As in that frame.
        public var file: String?
        /// As in that frame.
        public var line: Int?
        /// The index in the report's `stacks`.
        public var stack: Int
        /// The index in that stack's `frames`, or in those of its awaiting functions.
        public var frame: Int
        /// Whether `frame` is an index in the awaiting functions (`async.frames`). Nil means no.
        public var isAwaiting: Bool?

        /// Creates a culprit, by default without names. It is not checked that the indices fit the report.
        public init(
            function: String? = nil,
            symbol: String? = nil,
            module: String? = nil,
            file: String? = nil,
            line: Int? = nil,
            stack: Int,
            frame: Int,
            isAwaiting: Bool? = nil
        ) {
            (self.function, self.symbol, self.module) = (function, symbol, module)
            (self.file, self.line) = (file, line)
            (self.stack, self.frame, self.isAwaiting) = (stack, frame, isAwaiting)
        }

        private enum CodingKeys: String, CodingKey {
            case function, symbol, module, file, line, stack, frame
            case isAwaiting = "awaiting"
        }
    }

    /// Which names of own functions are missing, and the command that finds them: one sentence. Nil if none are missing.
    public var missingNames: String? {
        guard isProvisional == true else { return nil }
        let module = culpritFrame.flatMap { modules.module(of: $0) }
        let name = module.map { fileName(ofPath: $0.path) } ?? "The program"
        let build = module?.buildID.map { " (build id \($0))" } ?? ""
        // Programs that export functions to their modules, as redis does, have the names of these.
        let missing =
            hasNames(inModule: culpritFrame?.module)
            ? "symbols of only some functions here, so the others have no names"
            : "no symbols here, so its functions have no names"
        return "\(name) has \(missing) and the culprit is a guess; "
            + "'stall-monitor symbolicate DIR --symbols FILE' names them, with a FILE of the same build\(build)"
            + (module.map { Self.isOfPackage($0.path) } == true ? Self.packageRemedy : ".")
    }

    /// Whether a function of this module on a stack has a name.
    private func hasNames(inModule index: Int?) -> Bool {
        guard let index else { return false }
        return stacks.contains { stack in
            stack.frames.contains { $0.module == index && ($0.function ?? $0.symbol) != nil }
        }
    }

    /// Whoever has a program from a distribution has no such file.
    private static let packageRemedy =
        "; without --symbols, if the debug symbols of its package are installed (-dbgsym, -debuginfo) or $DEBUGINFOD_URLS names "
        + "the distribution's server."

    private static func isOfPackage(_ path: String) -> Bool {
        path.hasPrefix("/usr/") && !path.hasPrefix("/usr/local/")
    }

    /// The frame to which the culprit refers.
    package var culpritFrame: Frame? {
        guard let culprit, stacks.indices.contains(culprit.stack) else { return nil }
        let stack = stacks[culprit.stack]
        let frames = culprit.isAwaiting == true ? stack.async?.frames ?? [] : stack.frames
        return frames.indices.contains(culprit.frame) ? frames[culprit.frame] : nil
    }

    /// The culprit for display: the function, or without a name its place: `shop+0x1a2b0 (no symbols)`. Nil without a culprit.
    public var culpritName: String? {
        if let name = culprit?.function ?? culprit?.symbol { return name }
        guard let frame = culpritFrame else { return culprit?.module }
        return frame.placeName(in: modules.module(of: frame)?.path)
    }
}

extension StallReport.Culprit {
    /// `Stalls.swift:17`; `app.py` if the line is not known. Nil without a file.
    public var place: String? { placeText(file, line) }
}

extension StallReport.Frame {
    /// `Stalls.swift:17`; `app.py` if the line is not known. Nil without a file.
    package var sourcePlace: String? { placeText(file, line) }

    /// A placeholder for a missing name. It does not depend on where the module is loaded.
    public func placeName(in path: String?) -> String {
        guard let path, offset != nil else { return "code at \(address)" }
        return "\(fileName(ofPath: path))+\(functionStart) (no symbols)"
    }
}

private func placeText(_ file: String?, _ line: Int?) -> String? {
    file.map { fileName(ofPath: $0) + (line.map { ":\($0)" } ?? "") }
}
