import Glibc

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
        /// For logs and JSON; stable: `missing_file`.
        public let name: String
        /// What is wrong with the module or file, for the end of a sentence that begins with its path.
        let advice: String

        init(_ name: String, _ advice: String) {
            self.name = name
            self.advice = advice
        }
    }
}

extension SymbolProblem.Code {
    /// There is no file at the module's path, nor a symbol file for its build.
    public static let missingFile = Self("missing_file", "there is no such file, nor a symbol file for it")
    /// The system refused to open or read the file.
    public static let unreadable = Self("unreadable", "cannot be read")
    /// The process has as many files open as it may, or the system has: this passes.
    public static let outOfDescriptors = Self("out_of_descriptors", "no file descriptor was left to read it")
    /// A pipe, a directory or something else that is not a regular file.
    public static let notAFile = Self("not_a_file", "is no regular file")
    /// Not ELF, 32-bit, of the other byte order, or damaged.
    public static let notELF = Self("not_elf", "is no 64-bit ELF file, or is damaged")
    /// The file is of another build than the code that ran: its names and lines would be wrong.
    public static let otherBuild = Self("other_build", "is of another build and is not used")
    /// Neither the code nor the file has a build id, so they cannot be matched.
    public static let noBuildID = Self("no_build_id", "has no build id, so no symbol file can be checked")
    /// A file that `.gnu_debuglink` names does not have the checksum given there.
    public static let checksum = Self("checksum", "has not the checksum that .gnu_debuglink gives")
    /// Function names only: neither the module nor a symbol file has lines.
    public static let noLines = Self("no_lines", "has no debug information, and no symbol file was found")
    /// There is debug information, but it is compressed, and the budget does not permit inflating it.
    public static let compressed = Self("compressed", "has compressed debug information, which is not read here")
    /// The debug information is inconsistent.
    public static let damaged = Self("damaged", "has damaged debug information")
    /// The file changed while it was read.
    public static let changed = Self("changed", "changed while it was read")
    /// The budget's time is used up.
    public static let outOfTime = Self("out_of_time", "there was no time left to read its symbols")
    /// The budget's memory is used up.
    public static let outOfMemory = Self("out_of_memory", "its symbols need more memory than permitted")
    /// A directory of symbol files has more folders or entries than are searched, and a module's file was not among these.
    public static let tooManyFiles = Self(
        "too_many_files",
        "is searched six folders deep and up to 20,000 entries only: name the folder that has the file"
    )
    /// A debuginfod server did not answer in time, or not with a file.
    public static let download = Self("download", "could not be had from the debuginfod server")
}

extension SymbolProblem: CustomStringConvertible {
    /// One line, beginning with the path.
    public var description: String {
        let text = detail.map { "\(code.advice) (\($0))" } ?? code.advice
        return path.map { "\($0): \(text)" } ?? text
    }
}

extension SymbolProblem {
    /// The same problem; if it concerns no file, then of this one.
    func at(_ path: String?) -> SymbolProblem { SymbolProblem(code, path: self.path ?? path, detail: detail) }

    /// Only the end of a generator's file is used.
    static func cutMap(of size: Int) -> SymbolProblem {
        SymbolProblem(
            .outOfMemory,
            path: "/tmp/perf-PID.map",
            detail: "only the end of its \(size >> 20) MiB is used"
        )
    }

    /// Whether the same request may succeed with another budget, or later.
    public var isOfBudget: Bool { [.outOfTime, .outOfMemory, .outOfDescriptors, .compressed].contains(code) }
}

/// What one call may spend on names. Addresses beyond the budget get no name, but are still reported by module and offset.
public struct SymbolicationBudget: Hashable, Sendable {
    /// CPU time of the calling thread: on a busy machine a low-priority thread gets the same result as on an idle one, only
    /// later. The elapsed time, including waits for processors and disks, may be ten times as long. Checked between steps of
    /// some ten microseconds; a read from a slow disk is one step.
    public var time: Duration
    /// Bytes of symbol tables and debug information that the call may read into memory, besides what earlier calls have read.
    public var memory: Int
    /// Whether compressed debug information is read. It has to be inflated as a whole: the C library's alone takes 50
    /// milliseconds and 17 MB, for lines that are rarely needed. Distributions compress it, compilers usually do not. Function
    /// names do not depend on it.
    public var inflates: Bool

    /// Creates a budget with the given limits.
    public init(time: Duration, memory: Int, inflates: Bool) {
        (self.time, self.memory, self.inflates) = (time, memory, inflates)
    }

    /// For a low-priority thread in a server: 2 seconds, 64 MiB, nothing inflated.
    public static let server = SymbolicationBudget(time: .seconds(2), memory: 64 << 20, inflates: false)
    /// For a tool: 60 seconds, 2 GiB, everything inflated.
    public static let tool = SymbolicationBudget(time: .seconds(60), memory: 2 << 30, inflates: true)
}

/// The remainder of one call's budget.
final class Allowance {
    /// This clock stands still while the machine is suspended: work that goes on afterwards has not used that time.
    private let start = SuspendingClock.now
    private let processorStart = processorTime()
    private let time: Duration
    private(set) var memoryLeft: Int
    let inflates: Bool
    private var steps = 0

    /// - Parameter budget: For the calling thread, which must do the work.
    init(_ budget: SymbolicationBudget) {
        time = budget.time
        memoryLeft = budget.memory
        inflates = budget.inflates
    }

    /// Call it in loops: it reads the clock every 256th time.
    func step() throws(SymbolProblem) {
        steps &+= 1
        if steps & 0xff == 0 { try checkTime() }
    }

    func checkTime() throws(SymbolProblem) {
        guard processorTime() - processorStart <= time, SuspendingClock.now - start <= time * 10 else {
            throw SymbolProblem(.outOfTime)
        }
    }

    /// For waiting, which takes no CPU time.
    var timeLeft: Duration { max(.zero, time - (.now - start)) }

    func spend(_ bytes: Int) throws(SymbolProblem) {
        guard bytes <= memoryLeft else { throw SymbolProblem(.outOfMemory) }
        memoryLeft -= bytes
    }
}

/// The CPU time of the calling thread.
func processorTime() -> Duration {
    var time = timespec()
    unsafe clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
    return .seconds(time.tv_sec) + .nanoseconds(time.tv_nsec)
}
