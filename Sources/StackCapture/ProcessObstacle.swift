import CStackCapture
import Glibc

/// Why a process's stacks cannot be had: from its files in `/proc`, which say it better than an error number.
struct ProcessObstacle {
    let processID: Int32

    /// What is known before anything is tried. Nil if there is nothing in the way so far.
    func beforehand() -> CaptureError.Code? {
        if processID == getpid() { return .ownProcess }
        guard processID > 0, let status = ProcessFile("/proc/\(processID)/status") else { return withoutFiles() }
        if status.number(of: "Tgid") != Int(processID) { return .notAProcess }
        // A first thread that has ended is one, too, while others of the process live.
        let isAlone = status.number(of: "Threads").map { $0 <= 1 } ?? true
        if let state = status.words(of: "State").first, state == "Z" || state == "X", isAlone { return .zombie }
        return isKernelThread ? .kernelProcess : nil
    }

    /// What an error number that means "not permitted" comes from.
    func behindRefusal() -> CaptureError.Code {
        guard let status = ProcessFile("/proc/\(processID)/status") else { return withoutFiles() }
        if let tracer = status.number(of: "TracerPid"), tracer != 0, mayReadMemory { return .alreadyTraced }
        // Real, effective and saved ids: ptrace(2) wants all of them to be the caller's.
        let users = status.words(of: "Uid").prefix(3).allSatisfy { $0 == String(getuid()) }
        let groups = status.words(of: "Gid").prefix(3).allSatisfy { $0 == String(getgid()) }
        if !users || !groups { return .otherUser }
        if scope > 0 { return .ptraceScope }
        return isProtected ? .protectedProcess : .accessRefused
    }

    /// A process may be there without its files: `/proc` can be mounted so that others' are hidden.
    private func withoutFiles() -> CaptureError.Code {
        if processID > 0, kill(processID, 0) != 0, errno == EPERM { return .otherUser }
        return .noSuchProcess
    }

    private var isKernelThread: Bool {
        let kernelThread: UInt = 0x0020_0000  // PF_KTHREAD, in the ninth field of /proc/PID/stat
        guard let stat = ProcessFile("/proc/\(processID)/stat") else { return false }
        let fields = stat.text.split(separator: ")").last?.split(separator: " ") ?? []
        return fields.count > 6 && UInt(fields[6]).map { $0 & kernelThread != 0 } == true
    }

    /// Whether only stopping its threads is refused.
    private var mayReadMemory: Bool {
        let file = unsafe open("/proc/\(processID)/mem", O_RDONLY | O_CLOEXEC)
        if file >= 0 { close(file) }
        return file >= 0
    }

    /// 0 where the kernel has no Yama.
    private var scope: Int {
        ProcessFile("/proc/sys/kernel/yama/ptrace_scope").flatMap { Int($0.text.prefix { $0 != "\n" }) } ?? 0
    }

    /// The files of a process that may not be dumped are root's.
    private var isProtected: Bool {
        var status = stat()
        return unsafe stat("/proc/\(processID)/mem", &status) == 0 && status.st_uid != getuid()
    }
}

/// A short file in `/proc`, whole.
struct ProcessFile {
    let text: String

    /// Nil if it cannot be read. What is no UTF-8 is replaced.
    init?(_ path: String) {
        let file = unsafe open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)
        guard file >= 0 else { return nil }
        defer { close(file) }
        var bytes = [UInt8](repeating: 0, count: 16_384)
        let count = unsafe bytes.withUnsafeMutableBytes { unsafe read(file, $0.baseAddress, $0.count) }
        guard count > 0 else { return nil }
        text = String(decoding: bytes[..<count], as: UTF8.self)
    }

    /// What stands behind "name:" on a line of its own.
    func words(of name: String) -> [Substring] {
        let line = text.split(separator: "\n").first { $0.hasPrefix(name + ":") }
        return line?.dropFirst(name.count + 1).split(whereSeparator: \.isWhitespace) ?? []
    }

    func number(of name: String) -> Int? { words(of: name).first.flatMap { Int($0) } }
}
