import CStackCapture
import Glibc

/// A thread of a process, as `/proc/PID/task` shows it at one moment.
public struct ProcessThread: Sendable, Hashable {
    /// The kernel's thread id.
    public var threadID: Int32
    /// Up to 15 bytes set by the program: pthread_setname_np(3). Nil if it could not be read.
    public var name: String?
    /// The kernel's letter: `R` running, `S` asleep, `D` in uninterruptible sleep, `T` stopped, `t` stopped by a tracer, `Z`
    /// ended. Nil if it could not be read.
    public var state: Character?

    /// Creates one from these values, which are not checked.
    public init(threadID: Int32, name: String? = nil, state: Character? = nil) {
        self.threadID = threadID
        self.name = name
        self.state = state
    }
}

extension ProcessThread {
    /// The thread's current name and state. Both are nil if there is no such thread.
    public init(threadID: Int32, ofProcess processID: Int32) {
        self.init(threadID: threadID, in: "/proc/\(processID)")
    }

    /// - Parameter directory: A `/proc/PID` path.
    init(threadID: Int32, in directory: String) {
        let stat = ProcessFile("\(directory)/task/\(threadID)/stat")?.text ?? ""
        // The name is in parentheses, and may contain some itself, or begin with a mark that belongs to the character before it.
        let open = stat.utf8.firstIndex(of: UInt8(ascii: "(")).map(stat.utf8.index(after:))
        let close = stat.utf8.lastIndex(of: UInt8(ascii: ")"))
        let name = open.flatMap { open in close.flatMap { open <= $0 ? String(stat[open..<$0]) : nil } }
        let state = close.flatMap { stat[$0...].dropFirst(2).first }
        self.init(threadID: threadID, name: name, state: state)
    }

    /// - Parameter directory: A `/proc/PID` path.
    /// - Returns: The ids of its threads, the first thread's first.
    /// - Throws: `noSuchProcess` if the process no longer exists; another error if this process lacks what it takes to read the list.
    static func numbers(in directory: String) throws(CaptureError) -> [Int32] {
        guard let list = unsafe opendir("\(directory)/task") else {
            let error = errno
            guard [EMFILE, ENFILE, ENOMEM].contains(error) else { throw CaptureError(.noSuchProcess) }
            throw CaptureError(.systemCallFailed, underlying: error)
        }
        defer { unsafe _ = closedir(list) }
        var numbers: [Int32] = []
        while let entry = unsafe readdir(list) {
            let name = unsafe withUnsafePointer(to: &entry.pointee.d_name) {
                unsafe $0.withMemoryRebound(to: CChar.self, capacity: 256) { unsafe String(cString: $0) }
            }
            if let number = Int32(name) { numbers.append(number) }
        }
        guard !numbers.isEmpty else { throw CaptureError(.noSuchProcess) }
        return numbers
    }
}

/// The data about a target that a capture needs; to be taken on the target thread itself.
public struct ThreadIdentity: Sendable, Hashable {
    /// The kernel's thread id, as returned by `gettid`.
    public var threadID: Int32
    /// From the lowest address to one past the highest.
    public var stack: Range<UInt>

    /// For bounds known from elsewhere; they are not checked. See ``current()`` for the calling thread's.
    public init(threadID: Int32, stack: Range<UInt>) {
        self.threadID = threadID
        self.stack = stack
    }

    /// The calling thread's identity. Take it where the heartbeat is taken, not once at the start: the main actor, for example,
    /// may move to another thread. On the process's first thread this reads `/proc/self/maps`, which is slow. Nil if the C
    /// library cannot determine it (pthread_getattr_np(3)): out of memory, or no `/proc` on the first thread.
    public static func current() -> ThreadIdentity? {
        var low: UInt64 = 0
        var high: UInt64 = 0
        guard unsafe stackcap_own_stack(&low, &high) == 0 else { return nil }
        return ThreadIdentity(threadID: stackcap_own_thread(), stack: UInt(low)..<UInt(high))
    }
}

/// A file in `/proc`, read completely: a status has the process's groups, of which there can be 65,536.
struct ProcessFile {
    let text: String

    /// More than any of the files that are read here can have.
    private static let limit = 4 << 20

    /// Nil if it cannot be read. Invalid UTF-8 is replaced.
    init?(_ path: String) {
        let file = unsafe open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)
        guard file >= 0 else { return nil }
        defer { close(file) }
        var (bytes, part) = ([UInt8](), [UInt8](repeating: 0, count: 16_384))
        while bytes.count < Self.limit {
            let count = unsafe part.withUnsafeMutableBytes { unsafe read(file, $0.baseAddress, $0.count) }
            if count <= 0 { break }
            bytes += part[..<count]
        }
        guard !bytes.isEmpty else { return nil }
        text = String(decoding: bytes, as: UTF8.self)
    }

    /// The words after "name:" on a line of its own.
    func words(of name: String) -> [Substring] {
        let line = text.split(separator: "\n").first { $0.hasPrefix(name + ":") }
        return line?.dropFirst(name.count + 1).split(whereSeparator: \.isWhitespace) ?? []
    }

    func number(of name: String) -> Int? { words(of: name).first.flatMap { Int($0) } }
}
