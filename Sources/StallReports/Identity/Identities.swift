import Glibc

/// The machine, or container, that a process ran on.
public struct HostIdentity: Codable, Hashable, Sendable {
    /// The host's name, from `uname`.
    public var name: String
    /// One per boot of the kernel: `/proc/sys/kernel/random/boot_id`.
    public var bootID: String?
    /// The kernel's release.
    public var kernel: String?
    /// The number of online processors of the machine.
    public var cpus: Int?

    /// Creates an identity. By default all but the name are nil, which means unknown.
    public init(name: String, bootID: String? = nil, kernel: String? = nil, cpus: Int? = nil) {
        (self.name, self.bootID, self.kernel, self.cpus) = (name, bootID, kernel, cpus)
    }

    private enum CodingKeys: String, CodingKey {
        case name
        case bootID = "boot_id"
        case kernel, cpus
    }
}

/// The server's own name.
public struct ServiceIdentity: Codable, Hashable, Sendable {
    /// As configured. If it is not configured, the monitor uses the executable's file name, or `unknown`.
    public var name: String
    /// As configured, in any form. It is shown, and never compared.
    public var version: String?
    /// Distinguishes processes of the same service.
    public var instance: String?

    /// Creates an identity, by default without version and instance.
    public init(name: String, version: String? = nil, instance: String? = nil) {
        (self.name, self.version, self.instance) = (name, version, instance)
    }
}

/// A process, distinguished from every other one with the same number.
public struct ProcessIdentity: Codable, Hashable, Sendable {
    /// The number in `pidNamespace`. The kernel reuses it later: alone it does not identify a process permanently.
    public var pid: Int32
    /// Clock ticks from the kernel's boot to the process's start: field 22 of `/proc/PID/stat` (proc(5)), as it is outside of time
    /// namespaces.
    public var startTicks: UInt64?
    /// `startTicks` on the wall clock, to about a tick. For display; processes are distinguished by `startTicks`.
    public var startedAt: Timestamp?
    /// Path of the executable, also if its file was deleted or replaced since.
    public var executable: String?
    /// The executable's GNU build id, in hexadecimal.
    public var buildID: String?
    /// The inode of the pid namespace to which `pid` belongs.
    public var pidNamespace: UInt64?

    /// Creates an identity. By default all but the number are nil, which means unknown.
    public init(
        pid: Int32,
        startTicks: UInt64? = nil,
        startedAt: Timestamp? = nil,
        executable: String? = nil,
        buildID: String? = nil,
        pidNamespace: UInt64? = nil
    ) {
        (self.pid, self.startTicks, self.startedAt) = (pid, startTicks, startedAt)
        (self.executable, self.buildID, self.pidNamespace) = (executable, buildID, pidNamespace)
    }

    private enum CodingKeys: String, CodingKey {
        case pid
        case startTicks = "start_ticks"
        case startedAt = "started_at"
        case executable
        case buildID = "build_id"
        case pidNamespace = "pid_namespace"
    }
}

extension HostIdentity {
    /// The machine or container on which the caller runs. Any thread; some system calls.
    public static func current() -> HostIdentity {
        HostIdentity(
            name: readProcFile("/proc/sys/kernel/hostname") ?? "unknown",
            bootID: readProcFile("/proc/sys/kernel/random/boot_id"),
            kernel: readProcFile("/proc/sys/kernel/osrelease"),
            cpus: Int(sysconf(Int32(_SC_NPROCESSORS_ONLN)))
        )
    }
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
            executable: program(of: pid),
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
        readProcLink("/proc/thread-self/ns/pid").flatMap { UInt64($0.dropFirst(5).dropLast()) }
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
        let now = Timestamp(uptime)
            .advanced(byNanoseconds: Int64.zero.subtractingSaturated(TimeNamespace.current.boottimeNs))
        return Timestamp.now().advanced(byNanoseconds: start.nanoseconds(since: now))
    }
}

/// Three fields of `/proc/PID/stat` (proc(5)).
package struct ProcessStat: Hashable {
    /// Field 3: one letter. That of the first thread, which may end before the others.
    package let state: Character
    /// Field 20: the number of its threads. The first one counts until all have ended.
    private let threads: UInt64
    /// Field 22: the process's start, in clock ticks since the kernel's boot. The same in each time namespace, to one tick.
    let startTicks: UInt64

    /// Whether all its threads have ended, though its parent may not have asked for its status yet.
    package var hasEnded: Bool { (state == "Z" || state == "X") && threads <= 1 }

    /// Nil if the process has exited, or is hidden.
    package init?(pid: Int32) {
        guard let text = readProcFile("/proc/\(pid)/stat") else { return nil }
        self.init(text, seenFrom: .current)
    }

    init?(_ text: String, seenFrom namespace: TimeNamespace = TimeNamespace()) {
        let fields = statFields(text)
        guard fields.count > 19, let state = fields[0].first, let threads = UInt64(fields[17]),
            let ticks = UInt64(fields[19])
        else { return nil }
        (self.state, self.threads) = (state, threads)
        startTicks = Self.ticks(ticks, movedBackBy: namespace.boottimeNs)
    }

    private static func ticks(_ ticks: UInt64, movedBackBy offsetNs: Int64) -> UInt64 {
        let perSecond = Int64(sysconf(Int32(_SC_CLK_TCK)))
        guard offsetNs != 0, perSecond > 0 else { return ticks }
        let tickNs = 1_000_000_000 / perSecond
        // Before the namespace's zero the kernel's nanoseconds are negative, and it divides them as an unsigned number.
        let nanoseconds = Int64(truncatingIfNeeded: ticks &* UInt64(tickNs))
        return UInt64(clamping: nanoseconds.subtractingSaturated(offsetNs).dividedFloor(by: tickNs).quotient)
    }

    /// Whether a process with the same number and this start is the same one. A tick more or less is rounding: another process
    /// would have needed all numbers in between.
    func hasStart(_ ticks: UInt64) -> Bool { max(startTicks, ticks) - min(startTicks, ticks) <= 1 }
}

/// The fields of `/proc/PID/stat` from the third on. The second one is the name in parentheses, which may itself contain blanks and
/// parentheses: the others begin after the last one.
package func statFields(_ text: String) -> [Substring] {
    statName(text).map { text[$0.endIndex...].dropFirst().split(separator: " ") } ?? []
}

/// The name in the text of such a file. Nil without parentheses.
///
/// They are found as bytes: a name may begin with a mark that belongs to the character before it.
package func statName(_ text: String) -> Substring? {
    guard let open = text.utf8.firstIndex(of: UInt8(ascii: "(")),
        let close = text.utf8.lastIndex(of: UInt8(ascii: ")")), open < close
    else { return nil }
    return text[text.utf8.index(after: open)..<close]
}

/// By how much the calling process's time namespace moves the clocks that count from the kernel's boot: time_namespaces(7). A
/// container that was restored from a checkpoint is in one, so that its clocks continue. All are 0 outside of such a namespace.
package struct TimeNamespace: Hashable, Sendable {
    /// What it adds to `CLOCK_MONOTONIC`. Not to the times that perf_event_open(2) records.
    package var monotonicNs: Int64 = 0
    /// What it adds to `CLOCK_BOOTTIME`, and to the starts of processes in `/proc`, also of those outside.
    package var boottimeNs: Int64 = 0

    package init() {}

    /// - Parameter offsets: The text of `/proc/PID/timens_offsets`: lines with a clock, seconds and nanoseconds.
    package init(offsets: String) {
        for line in offsets.split(separator: "\n") {
            let words = line.split(separator: " ")
            guard words.count == 3, let seconds = Int64(words[1]), let nanoseconds = Int64(words[2]) else { continue }
            let offset = seconds.multipliedSaturated(by: 1_000_000_000).addingSaturated(nanoseconds)
            if words[0] == "monotonic" { monotonicNs = offset }
            if words[0] == "boottime" { boottimeNs = offset }
        }
    }

    /// Read once: it changes only for a process that has no other thread.
    package static let current: TimeNamespace = {
        // The file describes the namespace of the process's children, which after unshare(2) is another one.
        let own = readProcLink("/proc/self/ns/time")
        guard own != nil, own == readProcLink("/proc/self/ns/time_for_children") else { return TimeNamespace() }
        return TimeNamespace(offsets: readProcFile("/proc/self/timens_offsets") ?? "")
    }()
}
