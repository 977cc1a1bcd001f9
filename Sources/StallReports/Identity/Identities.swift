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
    /// Clock ticks from the kernel's boot to the process's start: field 22 of `/proc/PID/stat` (proc(5)).
    public var startTicks: UInt64?
    /// `startTicks` on the wall clock, to about a tick. For display; processes are distinguished by `startTicks`.
    public var startedAt: Timestamp?
    /// Path of the executable.
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
