internal import Glibc

extension HostIdentity {
    /// The machine, or container, the caller runs on. Any thread; some system calls.
    public static func current() -> HostIdentity {
        HostIdentity(
            name: readProcFile("/proc/sys/kernel/hostname") ?? "unknown",
            bootID: readProcFile("/proc/sys/kernel/random/boot_id"),
            kernel: readProcFile("/proc/sys/kernel/osrelease"),
            cpus: Int(sysconf(Int32(_SC_NPROCESSORS_ONLN)))
        )
    }
}
