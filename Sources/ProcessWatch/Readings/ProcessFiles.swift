import CProcessWatch
import Glibc
import StackCapture
import StallReports

/// What /proc says about a process as a whole.
struct ProcessFiles: Hashable, Sendable {
    let processID: Int32

    private var directory: String { "/proc/\(processID)" }

    /// The ids of its threads. Nil once the process has ended.
    var threads: [Int32]? { readProcNumbers(directory + "/task").flatMap { $0.isEmpty ? nil : $0 } }

    /// How many threads it has, for a descriptor of its directory `task`. Nil once it has ended.
    static func threadCount(inTask descriptor: Int32) -> Int? {
        var found = stat()
        // The kernel counts each thread's directory as one link, besides the usual two.
        return unsafe fstat(descriptor, &found) == 0 ? Int(clamping: found.st_nlink) - 2 : nil
    }

    /// A descriptor of its directory `task`, which the caller closes. Negative if it has ended.
    func openTask() -> Int32 { unsafe open(directory + "/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC) }

    /// The name that the process has given itself.
    var name: String? { readProcFile(directory + "/comm") }

    /// The path of the program's file. It follows renames of the file.
    var executable: String? { ProcessIdentity.program(of: processID) }

    /// Changes with every execve(2), and when the dynamic loader has loaded its argument, and only then: the addresses of the program's code and
    /// stack. Nil if they cannot be read, for example because a thread is ending.
    var program: Program? {
        let directory = ProcessIdentity.directory(of: processID)
        guard let file = readProcLink(directory + "/exe"),
            let fields = readProcFile(directory + "/stat").map(statFields),
            fields.count > 25, fields[23] != "0"
        else { return nil }
        // Fields 26 to 28.
        return Program(
            code: String(fields[23]),
            codeEnd: String(fields[24]),
            stack: String(fields[25]),
            loaded: ProcessIdentity.loadedProgram(of: processID, in: directory, by: file) != nil
        )
    }

    struct Program: Hashable, Sendable {
        var code: String
        var codeEnd: String
        var stack: String
        /// Whether the loader has loaded it as its argument.
        var loaded: Bool
    }

    /// Whether it is about to end: each of its threads has no program any more, is killed, or ends. The first thread stays until the process's
    /// memory is free, which takes seconds if that is much, and so does the writing of a core dump; others stay until they get a processor.
    var isEnding: Bool {
        // The first thread is there as long as the process is, and nearly always shows that it goes on: no list of thousands of threads is read.
        guard isEnding(thread: processID), let threads else { return false }
        return threads.allSatisfy(isEnding(thread:))
    }

    private func isEnding(thread: Int32) -> Bool {
        let task = "\(directory)/task/\(thread)"
        var byte: CChar = 0
        if unsafe readlink("\(task)/exe", &byte, 1) < 0 && errno == ENOENT { return true }
        // In this order: a thread that takes the signal has the flag from then on.
        return Self.isKilled(byStatus: "\(task)/status") || Self.isExiting(byStat: "\(task)/stat")
    }

    /// Whether the thread with this file `/proc/PID/task/TID/stat` has taken a signal that ends its process, or has begun to exit. It may still have
    /// its program, as while the kernel writes a core dump.
    static func isExiting(byStat file: String) -> Bool {
        guard let fields = readProcFile(file).map(statFields), fields.count > 6, let flags = UInt64(fields[6]) else {
            return false
        }
        // PF_EXITING, PF_POSTCOREDUMP, PF_DUMPCORE and PF_SIGNALED, in the ninth field.
        return flags & 0x60c != 0
    }

    /// Whether SIGKILL is pending for the thread with this file `/proc/PID/task/TID/status`. The kernel sends it to each thread of a process
    /// that ends, however that comes.
    static func isKilled(byStatus file: String) -> Bool {
        // The list of the process's groups before that line can be hundreds of kilobytes long.
        guard let status = readFile(file, limit: 4 << 20) else { return false }
        let line = status.split(separator: "\n").first { $0.hasPrefix("SigPnd:") }
        let pending = line.flatMap { UInt64($0.dropFirst("SigPnd:".count).drop { $0 == "\t" || $0 == " " }, radix: 16) }
        return pending.map { $0 & 1 << UInt64(SIGKILL - 1) != 0 } ?? false
    }

    /// Whether it has ended. Its number may belong to another process since then.
    ///
    /// - Parameter handle: Becomes readable when it ends. Without one, only the number is asked for.
    func hasEnded(by handle: Int32?) -> Bool {
        guard let handle else { return numberHasEnded }
        return unsafe process_watch_wait([handle], 1, 0, false) > 0 || numberHasEnded
    }

    private var numberHasEnded: Bool {
        // Without a free descriptor nothing can be read, of a living process either.
        unsafe ProcessStat(pid: processID)?.hasEnded ?? (access(directory, F_OK) != 0)
    }

    /// Processes whose name, or whose program's file name, matches a pattern in which `*` stands for any text. Excludes this
    /// process.
    static func named(_ pattern: String) -> [Int32] {
        (readProcNumbers("/proc") ?? []).filter { id in
            guard id != getpid() else { return false }
            let files = ProcessFiles(processID: id)
            let program = files.executable.map(fileName(ofPath:))
            return [files.name, program].compactMap { $0 }.contains { matches($0, pattern) }
        }.sorted()
    }

    private static func matches(_ name: String, _ pattern: String) -> Bool {
        unsafe fnmatch(pattern, name, 0) == 0
    }
}

/// The files that this process may open.
enum OpenFiles {
    /// How many the files of threads leave free: stacks, symbols and reports need some, too.
    private static let reserve: rlim_t = 64

    /// The limit, if it leaves no room for another thread's or process's files. Nil if there is room.
    static var exhaustedLimit: Int? {
        var limit = rlimit()
        guard unsafe getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return nil }
        // The kernel gives the lowest number that is free.
        let next = unsafe open("/dev/null", O_RDONLY | O_CLOEXEC)
        if next >= 0 { close(next) }
        let isThereRoom = next >= 0 && rlim_t(next) + reserve < limit.rlim_cur
        return isThereRoom ? nil : Int(clamping: limit.rlim_cur)
    }
}

/// One thread's files in /proc. They stay open, so that a look at a resting thread is one system call. Confined to the watcher's
/// thread.
final class ThreadFiles {
    private let schedule: Int32
    private let call: Int32
    private let state: Int32
    private let task: String
    private(set) var name: String
    /// The last reading of the counts, and its text. A resting thread's text stays the same, so that it is not parsed again.
    private var lastSchedule: (text: [UInt8], value: Schedule)?

    /// Nil if there is no such thread, or if its files cannot be read.
    init?(threadID: Int32, ofProcess processID: Int32) {
        let task = "/proc/\(processID)/task/\(threadID)"
        self.task = task
        func file(_ name: String) -> Int32 { unsafe open("\(task)/\(name)", O_RDONLY | O_CLOEXEC) }
        schedule = file("schedstat")
        call = file("syscall")
        state = file("stat")
        name = readProcFile("\(task)/comm") ?? ""
        guard schedule >= 0, call >= 0, state >= 0 else { return nil }
    }

    deinit { for file in [schedule, call, state] where file >= 0 { close(file) } }

    /// A new thread gets its name some time after its start.
    func readNameAgain() { name = readProcFile("\(task)/comm") ?? name }

    /// Nil once the thread has ended.
    func readSchedule() -> Schedule? {
        let limit = 96
        return unsafe withUnsafeTemporaryAllocation(byteCount: limit, alignment: 1) { buffer in
            let count = unsafe pread(schedule, buffer.baseAddress, limit, 0)
            guard count > 0 else { return nil }
            let text = unsafe UnsafeRawBufferPointer(rebasing: buffer[..<count])
            if let lastSchedule, unsafe lastSchedule.text.elementsEqual(text) { return lastSchedule.value }
            let bytes = unsafe [UInt8](text)
            lastSchedule = Schedule(bytes[...]).map { (bytes, $0) }
            return lastSchedule?.value
        }
    }

    /// Nil once the thread has ended, or if the text cannot be parsed.
    func readPosition() -> ThreadPosition? { read(call, ThreadPosition.init) }

    /// The system call in which the thread sleeps. Nil if it does not sleep in one.
    func readCall() -> SystemCall? { read(call, SystemCall.init) }

    /// Whether the kernel does not let this process see where the living thread is. It did before, so the thread's process runs as
    /// another user now, has made itself unreadable (PR_SET_DUMPABLE), or its parent has ended (with ptrace_scope 1).
    var areRefused: Bool {
        var byte: UInt8 = 0
        return unsafe pread(call, &byte, 1, 0) < 0 && (errno == EPERM || errno == EACCES)
    }

    /// Whether the thread is stopped, by a signal or by a tracer.
    func isStopped() -> Bool {
        read(state) { text in
            guard let end = text.lastIndex(of: UInt8(ascii: ")")), end + 2 < text.endIndex else { return nil }
            return text[end + 2] == UInt8(ascii: "T") || text[end + 2] == UInt8(ascii: "t")
        } ?? false
    }

    /// Whether the thread's epoll set of this number is closed. The number may refer to something else by now.
    func hasClosed(epollSet number: Int32) -> Bool {
        let path = "\(task)/fd/\(number)"
        if let link = readProcLink(path) { return link != "anon_inode:[eventpoll]" }
        return unsafe access(path, F_OK) != 0 && errno == ENOENT
    }

    private func read<Value>(_ file: Int32, _ parse: (ArraySlice<UInt8>) -> Value?) -> Value? {
        let limit = 256
        let bytes = unsafe [UInt8](unsafeUninitializedCapacity: limit) { buffer, count in
            count = unsafe max(0, pread(file, buffer.baseAddress, limit, 0))
        }
        return bytes.isEmpty ? nil : parse(bytes[...])
    }
}
