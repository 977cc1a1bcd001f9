internal import Glibc

/// The machine, or container, that a process ran on.
public struct HostIdentity: Codable, Hashable, Sendable {
    /// The host's name, as `uname` tells it.
    public var name: String
    /// One per start of the kernel: `/proc/sys/kernel/random/boot_id`.
    public var bootID: String?
    /// The kernel's release.
    public var kernel: String?
    /// Processors of the machine that are online.
    public var cpus: Int?

    /// All but the name is nil unless given, which means: not known.
    public init(name: String, bootID: String? = nil, kernel: String? = nil, cpus: Int? = nil) {
        (self.name, self.bootID, self.kernel, self.cpus) = (name, bootID, kernel, cpus)
    }

    private enum CodingKeys: String, CodingKey {
        case name
        case bootID = "boot_id"
        case kernel, cpus
    }
}

/// What the server calls itself.
public struct ServiceIdentity: Codable, Hashable, Sendable {
    /// As configured. Where nothing is, the monitor takes the executable's file name, or `unknown`.
    public var name: String
    /// As configured, in any form. Shown, and never compared.
    public var version: String?
    /// Tells apart processes of the same service.
    public var instance: String?

    /// Version and instance are nil unless given.
    public init(name: String, version: String? = nil, instance: String? = nil) {
        (self.name, self.version, self.instance) = (name, version, instance)
    }
}

/// A process, told apart from every other that had or will have its number.
public struct ProcessIdentity: Codable, Hashable, Sendable {
    /// As `pidNamespace` counts. The kernel gives it again later: alone it names no process for good.
    public var pid: Int32
    /// Clock ticks from the kernel's start to the process's: field 22 of `/proc/PID/stat` (proc(5)).
    public var startTicks: UInt64?
    /// `startTicks` on the wall clock, to about a tick. For people; processes are told apart by `startTicks`.
    public var startedAt: Timestamp?
    /// Path of the executable.
    public var executable: String?
    /// The executable's GNU build id, in hexadecimal.
    public var buildID: String?
    /// Inode of the pid namespace: what `pid` counts in.
    public var pidNamespace: UInt64?

    /// All but the number is nil unless given, which means: not known.
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
