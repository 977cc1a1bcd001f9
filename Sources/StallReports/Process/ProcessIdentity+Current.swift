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
            executable: readProcLink("/proc/\(pid)/exe"),
            pidNamespace: currentPIDNamespace()
        )
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
