import Glibc
import StallReports

/// What /proc tells of a process as a whole.
struct ProcessFiles: Hashable, Sendable {
    let processID: Int32

    private var directory: String { "/proc/\(processID)" }
    /// Where its memory and its program are: of a process whose first thread has ended, another thread's directory.
    private var livingDirectory: String { ProcessIdentity.directory(of: processID) }

    /// Nil once it has ended.
    var threads: [Int32]? { readNumbers(directory + "/task").flatMap { $0.isEmpty ? nil : $0 } }

    /// As it calls itself.
    var name: String? { readText(directory + "/comm") }

    /// The program's file, as it is called now.
    var executable: String? {
        let bytes = unsafe [UInt8](unsafeUninitializedCapacity: Int(PATH_MAX)) { buffer, count in
            count = unsafe buffer.withMemoryRebound(to: CChar.self) {
                unsafe max(0, readlink(livingDirectory + "/exe", $0.baseAddress!, $0.count))
            }
        }
        return bytes.isEmpty ? nil : String(decoding: bytes, as: UTF8.self)
    }

    /// The children that its threads have started and that live. Empty where the kernel does not tell.
    var children: [Int32] {
        (threads ?? []).flatMap { thread in
            (readText("\(directory)/task/\(thread)/children", limit: 1 << 16) ?? "").split(separator: " ").compactMap {
                Int32($0)
            }
        }
    }

    /// What is another one after every execve(2), and stays between: where the program's code and stack lie. Nil where that is not to be
    /// read, as of a thread that ends.
    var program: Program? {
        guard let executable, let stat = readText(livingDirectory + "/stat"), let end = stat.lastIndex(of: ")") else {
            return nil
        }
        // Fields 26 and 28; the third is the first one behind the name.
        let fields = stat[stat.index(after: end)...].split(separator: " ")
        guard fields.count > 25, fields[23] != "0" else { return nil }
        return Program(executable: executable, code: String(fields[23]), stack: String(fields[25]))
    }

    struct Program: Hashable, Sendable {
        var executable: String
        var code: String
        var stack: String
    }

    var hasEnded: Bool {
        guard let stat = readText(directory + "/stat"), let end = stat.lastIndex(of: ")") else { return true }
        let state = stat[end...].dropFirst(2).first
        return (state == "Z" || state == "X") && (threads?.count ?? 0) <= 1
    }

    /// Processes whose name, or whose program's file name, matches a pattern in which `*` stands for any text. Not this one.
    static func named(_ pattern: String) -> [Int32] {
        (readNumbers("/proc") ?? []).filter { id in
            guard id != getpid() else { return false }
            let files = ProcessFiles(processID: id)
            let program = files.executable?.split(separator: "/").last.map(String.init)
            return [files.name, program].compactMap { $0 }.contains { matches($0, pattern) }
        }.sorted()
    }

    private static func matches(_ name: String, _ pattern: String) -> Bool {
        unsafe fnmatch(pattern, name, 0) == 0
    }
}
