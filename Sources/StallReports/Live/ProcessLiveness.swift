import Glibc

/// Determines whether the process that wrote a report is still alive.
///
/// A process is identified by its number, its start, its boot of the kernel and its pid namespace: the number alone is reused.
/// Any thread.
public struct ProcessLiveness: Sendable {
    /// The state of a process. `unknown` must not be treated as dead.
    public enum Status: Hashable, Sendable {
        case alive
        /// Exited, or a zombie, or its number belongs to another process now.
        case dead
        /// It is not visible from here: another host, or another pid namespace.
        case unknown
    }

    /// The place from which processes are seen.
    private let host: HostIdentity
    private let pidNamespace: UInt64?

    /// Sees processes from the calling process.
    public init() {
        self.init(host: .current(), pidNamespace: ProcessIdentity.currentPIDNamespace())
    }

    /// Sees processes as if from another place, for tests.
    init(host: HostIdentity, pidNamespace: UInt64?) { (self.host, self.pidNamespace) = (host, pidNamespace) }

    /// Whether this is the boot of the kernel on which `host` ran: then the kernel's state about a process is valid.
    func isBoot(of host: HostIdentity) -> Bool { self.host.bootID != nil && self.host.bootID == host.bootID }

    /// The state of `process`, which ran on `host`.
    public func status(of process: ProcessIdentity, on host: HostIdentity) -> Status {
        guard let ours = self.host.bootID, let theirs = host.bootID else { return .unknown }
        // After a reboot of the same machine, no process of the earlier boot is left.
        guard ours == theirs else { return self.host.name == host.name ? .dead : .unknown }
        guard let namespace = process.pidNamespace, namespace == pidNamespace else { return .unknown }
        guard process.pid > 0 else { return .dead }
        // A process of another user that /proc hides (hidepid) still answers signal 0, with EPERM.
        if kill(process.pid, 0) != 0, errno == ESRCH { return .dead }
        guard let stat = ProcessStat(pid: process.pid) else { return .unknown }
        if stat.state == "Z" || stat.state == "X" { return .dead }
        return process.startTicks == nil || process.startTicks == stat.startTicks ? .alive : .dead
    }
}

/// Two fields of `/proc/PID/stat` (proc(5)).
package struct ProcessStat: Hashable {
    /// Field 3: one letter.
    package let state: Character
    /// Field 22: the process's start, in clock ticks since the kernel's boot.
    let startTicks: UInt64

    /// Nil if the process has exited, or is hidden.
    package init?(pid: Int32) {
        guard let text = readProcFile("/proc/\(pid)/stat") else { return nil }
        self.init(text)
    }

    init?(_ text: String) {
        let fields = statFields(text)
        guard fields.count > 19, let state = fields[0].first, let ticks = UInt64(fields[19]) else { return nil }
        (self.state, startTicks) = (state, ticks)
    }
}

/// The fields of `/proc/PID/stat` from the third on. The second one is the name in parentheses, which may itself contain blanks and
/// parentheses: the others begin after the last one.
package func statFields(_ text: String) -> [Substring] {
    text.lastIndex(of: ")").map { text[text.index(after: $0)...].split(separator: " ") } ?? []
}

extension ProcessIdentity {
    /// The calling process, without its build id. Any thread; some system calls. After a fork it must be called again.
    public static func current() -> ProcessIdentity { of(getpid()) }

    /// A process visible from here, without its build id: what cannot be read is left out. Its number is in the caller's
    /// pid namespace. Any thread; some system calls.
    package static func of(_ pid: Int32) -> ProcessIdentity {
        let ticks = ProcessStat(pid: pid)?.startTicks
        return ProcessIdentity(
            pid: pid,
            startTicks: ticks,
            startedAt: ticks.flatMap(startTime),
            executable: readProcLink("\(directory(of: pid))/exe"),
            pidNamespace: currentPIDNamespace()
        )
    }

    /// A thread of a process that has its memory and descriptors: the first one, whose number is the process's, unless it has
    /// ended before the others. Usually one system call.
    package static func livingThread(of pid: Int32) -> Int32 {
        if hasMemory("/proc/\(pid)") { return pid }
        return readProcNumbers("/proc/\(pid)/task")?.first { hasMemory("/proc/\(pid)/task/\($0)") } ?? pid
    }

    /// Where /proc shows the memory and the descriptors of a process (proc(5)). If its first thread has ended, this is the
    /// directory of another thread, because the first one's shows neither.
    package static func directory(of pid: Int32) -> String {
        let thread = livingThread(of: pid)
        return thread == pid ? "/proc/\(pid)" : "/proc/\(pid)/task/\(thread)"
    }

    /// Whether the path shows memory. A process with memory runs some program.
    private static func hasMemory(_ path: String) -> Bool {
        var byte: CChar = 0
        return unsafe readlink(path + "/exe", &byte, 1) > 0
    }

    /// The inode in `pid:[4026531836]`.
    static func currentPIDNamespace() -> UInt64? {
        readProcLink("/proc/self/ns/pid").flatMap { UInt64($0.dropFirst(5).dropLast()) }
    }

    /// The wall clock time of a tick since the kernel's boot, by the current clocks (to about a tick).
    private static func startTime(ticks: UInt64) -> Timestamp? {
        let perSecond = Int64(sysconf(Int32(_SC_CLK_TCK)))
        var uptime = timespec()
        guard perSecond > 0, unsafe clock_gettime(CLOCK_BOOTTIME, &uptime) == 0 else { return nil }
        let ticks = Int64(clamping: ticks)
        let start = Timestamp(
            seconds: ticks / perSecond,
            nanoseconds: (ticks % perSecond).multipliedSaturated(by: 1_000_000_000 / perSecond)
        )
        let now = Timestamp(seconds: Int64(uptime.tv_sec), nanoseconds: Int64(uptime.tv_nsec))
        return Timestamp.now().advanced(byNanoseconds: start.nanoseconds(since: now))
    }
}
