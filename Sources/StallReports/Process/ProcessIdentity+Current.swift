internal import Glibc

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

    /// A thread of a process that has its memory and descriptors: the first one, whose number is the process's, unless that has ended before
    /// the others. One system call for most.
    package static func livingThread(of pid: Int32) -> Int32 {
        if hasMemory("/proc/\(pid)") { return pid }
        return threads(of: pid).first { hasMemory("/proc/\(pid)/task/\($0)") } ?? pid
    }

    /// Where /proc shows the memory and the descriptors of a process (proc(5)): of one whose first thread has ended, the directory of
    /// another thread. The first one's then shows neither.
    package static func directory(of pid: Int32) -> String {
        let thread = livingThread(of: pid)
        return thread == pid ? "/proc/\(pid)" : "/proc/\(pid)/task/\(thread)"
    }

    /// What has memory runs some program.
    private static func hasMemory(_ path: String) -> Bool {
        var byte: CChar = 0
        return unsafe readlink(path + "/exe", &byte, 1) > 0
    }

    private static func threads(of pid: Int32) -> [Int32] {
        guard let list = unsafe opendir("/proc/\(pid)/task") else { return [] }
        defer { unsafe _ = closedir(list) }
        var threads: [Int32] = []
        while let entry = unsafe readdir(list) {
            let name = unsafe withUnsafePointer(to: entry.pointee.d_name) {
                unsafe $0.withMemoryRebound(to: CChar.self, capacity: 256) { unsafe String(cString: $0) }
            }
            if let thread = Int32(name) { threads.append(thread) }
        }
        return threads
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
