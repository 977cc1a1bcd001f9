import Glibc

/// A thread of a process, as `/proc/PID/task` shows it at one moment.
public struct ProcessThread: Sendable, Hashable {
    /// The kernel's number.
    public var threadID: Int32
    /// Up to 15 bytes that the program has chosen: pthread_setname_np(3). Nil if it could not be read.
    public var name: String?
    /// The kernel's letter: `R` running, `S` asleep, `D` asleep and not to be disturbed, `T` stopped, `t` stopped by a tracer, `Z`
    /// ended. Nil if it could not be read.
    public var state: Character?

    /// Nothing is checked.
    public init(threadID: Int32, name: String? = nil, state: Character? = nil) {
        self.threadID = threadID
        self.name = name
        self.state = state
    }
}

extension ProcessThread {
    /// As it is now. Name and state stay nil if there is no such thread.
    public init(threadID: Int32, ofProcess processID: Int32) {
        self.init(threadID: threadID, in: "/proc/\(processID)")
    }

    /// - Parameter directory: a `/proc/PID`.
    init(threadID: Int32, in directory: String) {
        let stat = ProcessFile("\(directory)/task/\(threadID)/stat")?.text ?? ""
        // The name stands in brackets, and may hold some itself.
        let name = stat.firstIndex(of: "(").flatMap { start in
            stat[start...].lastIndex(of: ")").map { String(stat[stat.index(after: start)..<$0]) }
        }
        let state = stat.lastIndex(of: ")").flatMap { stat[$0...].dropFirst(2).first }
        self.init(threadID: threadID, name: name, state: state)
    }

    /// - Parameter directory: a `/proc/PID`.
    /// - Returns: the numbers of its threads, the first one's first, or nil if there is no such process any more.
    static func numbers(in directory: String) -> [Int32]? {
        guard let list = unsafe opendir("\(directory)/task") else { return nil }
        defer { unsafe _ = closedir(list) }
        var numbers: [Int32] = []
        while let entry = unsafe readdir(list) {
            let name = unsafe withUnsafePointer(to: entry.pointee.d_name) {
                unsafe $0.withMemoryRebound(to: CChar.self, capacity: 256) { unsafe String(cString: $0) }
            }
            if let number = Int32(name) { numbers.append(number) }
        }
        return numbers.isEmpty ? nil : numbers
    }
}
