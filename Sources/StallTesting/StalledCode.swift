import Glibc
import StallReports

/// What was found stalled: the tasks, the functions on the stacks, and those that awaited them.
struct StalledCode {
    let tasks: Set<UInt64>
    let functions: [(name: FunctionName, file: String?)]
    /// All of them, for one search: most tests are in none of them.
    let whole: FunctionName

    init(of stall: StallReport) {
        self.init(in: stall.stalledStacks, tasks: stall.pool?.workers.compactMap(\.task) ?? [])
    }

    /// - Parameter tasks: Tasks that are known without a stack.
    init(in stacks: [StallReport.Stack], tasks others: [UInt64] = []) {
        tasks = Set(stacks.compactMap { $0.async?.task } + others)
        let frames = stacks.flatMap { $0.frames + ($0.async?.frames ?? []) }
        functions = frames.compactMap { frame in frame.function.map { (FunctionName($0), frame.file) } }
        whole = FunctionName(frames.compactMap(\.function).joined(separator: "\n"))
    }
}

/// A function's name. At the end of a test, the name of each test that ran meanwhile is searched for in each function of a stack: in a suite
/// that runs all its tests at once, these are many searches.
struct FunctionName: Sendable {
    /// UTF-8 that ends with a zero, without backticks: a name with spaces has them in a function's full name, and not in `#function`.
    private let text: [CChar]

    init(_ name: String) { text = name.utf8CString.filter { $0 != CChar(UInt8(ascii: "`")) } }

    private var count: Int { text.count - 1 }

    /// Whether this full name contains the other one as a whole: `load()` is in `closure #1 in Suite.load()`, and not in `reload()`.
    func contains(_ name: FunctionName) -> Bool {
        // A name with parentheses is complete.
        let isComplete = name.text.dropLast().last == CChar(UInt8(ascii: ")"))
        var start = 0
        while let found = position(of: name, from: start) {
            let startsName = found == 0 || !Self.isPartOfName(text[found - 1])
            if startsName, isComplete || !Self.isPartOfName(text[found + name.count]) { return true }
            start = found + 1
        }
        return false
    }

    private func position(of name: FunctionName, from start: Int) -> Int? {
        unsafe text.withUnsafeBufferPointer { text in
            unsafe name.text.withUnsafeBufferPointer { name in
                guard start < text.count, let first = text.baseAddress, let name = name.baseAddress,
                    let found = unsafe strstr(first + start, name)
                else { return nil }
                return unsafe UnsafePointer(found) - first
            }
        }
    }

    private static func isPartOfName(_ character: CChar) -> Bool {
        switch UInt8(bitPattern: character) {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "_"), 0x80...:
            true
        default: false
        }
    }
}
