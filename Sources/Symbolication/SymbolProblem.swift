/// Why names or lines are missing, or a symbol file was not used.
public struct SymbolProblem: Error, Hashable, Sendable {
    /// For programs to decide by.
    public let code: Code
    /// The module whose names are missing, or the symbol file that was rejected. Nil if no file is concerned.
    public let path: String?
    /// The specifics of this case.
    public let detail: String?

    /// Without path and detail by default.
    public init(_ code: Code, path: String? = nil, detail: String? = nil) {
        (self.code, self.path, self.detail) = (code, path, detail)
    }

    /// The kind of problem. More codes may be added: a `switch` needs a `default`.
    public struct Code: Hashable, Sendable {
        let rawValue: String
        let sentence: String

        /// A name for logs and JSON output; stable.
        public var name: String { rawValue }
    }
}

extension SymbolProblem.Code {
    /// There is no file at the module's path, nor a symbol file for its build.
    public static let missingFile = Self(
        rawValue: "missing_file",
        sentence: "there is no such file, nor a symbol file for it"
    )
    /// The system refused to open or read the file.
    public static let unreadable = Self(rawValue: "unreadable", sentence: "cannot be read")
    /// A pipe, a directory or something else that is not a regular file.
    public static let notAFile = Self(rawValue: "not_a_file", sentence: "is no regular file")
    /// Not ELF, 32-bit, of the other byte order, or damaged.
    public static let notELF = Self(rawValue: "not_elf", sentence: "is no 64-bit ELF file, or is damaged")
    /// The file is of another build than the code that ran: its names and lines would be wrong.
    public static let otherBuild = Self(rawValue: "other_build", sentence: "is of another build and is not used")
    /// Neither the code nor the file has a build id, so they cannot be matched.
    public static let noBuildID = Self(
        rawValue: "no_build_id",
        sentence: "has no build id, so no symbol file can be checked"
    )
    /// A file that `.gnu_debuglink` names does not have the checksum given there.
    public static let checksum = Self(rawValue: "checksum", sentence: "has not the checksum that .gnu_debuglink gives")
    /// Function names only: neither the module nor a symbol file has lines.
    public static let noLines = Self(
        rawValue: "no_lines",
        sentence: "has no debug information, and no symbol file was found"
    )
    /// There is debug information, but it is compressed, and the budget does not permit inflating it.
    public static let compressed = Self(
        rawValue: "compressed",
        sentence: "has compressed debug information, which is not read here"
    )
    /// The debug information is inconsistent.
    public static let damaged = Self(rawValue: "damaged", sentence: "has damaged debug information")
    /// The file changed while it was read.
    public static let changed = Self(rawValue: "changed", sentence: "changed while it was read")
    /// The budget's time is used up.
    public static let outOfTime = Self(rawValue: "out_of_time", sentence: "there was no time left to read its symbols")
    /// The budget's memory is used up.
    public static let outOfMemory = Self(
        rawValue: "out_of_memory",
        sentence: "its symbols need more memory than permitted"
    )
    /// A debuginfod server did not answer in time, or not with a file.
    public static let download = Self(rawValue: "download", sentence: "could not be had from the debuginfod server")
}

extension SymbolProblem: CustomStringConvertible {
    /// One line, beginning with the path.
    public var description: String {
        let text = detail.map { "\(code.sentence) (\($0))" } ?? code.sentence
        return path.map { "\($0): \(text)" } ?? text
    }
}

extension SymbolProblem {
    /// Whether the same request may succeed with another budget.
    public var isOfBudget: Bool { [.outOfTime, .outOfMemory, .compressed].contains(code) }
}
