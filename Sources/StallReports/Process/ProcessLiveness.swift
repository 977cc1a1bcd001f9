internal import Glibc

/// Tells whether the process that wrote a report is still there.
///
/// A process is its number, its start, the kernel it ran on and the namespace that counts it: a number alone is given again.
/// Any thread.
public struct ProcessLiveness: Sendable {
    /// What became of a process. `unknown` is no reason to take it for dead.
    public enum Status: Hashable, Sendable {
        case alive
        /// Gone, or a zombie, or its number belongs to another process now.
        case dead
        /// It cannot be seen from here: another host, or another pid namespace.
        case unknown
    }

    /// From where we look; nil looks nowhere.
    private let viewpoint: Viewpoint?

    private struct Viewpoint: Sendable {
        let host: HostIdentity
        let pidNamespace: UInt64?
    }

    /// Looks from the calling process.
    public init() {
        self.init(host: .current(), pidNamespace: ProcessIdentity.currentPIDNamespace())
    }

    /// Looks as if from another place: for tests.
    init(host: HostIdentity, pidNamespace: UInt64?) {
        viewpoint = Viewpoint(host: host, pidNamespace: pidNamespace)
    }

    private init(viewpoint: Viewpoint?) { self.viewpoint = viewpoint }

    /// Sees nobody, and so holds nobody for dead.
    static let blind = ProcessLiveness(viewpoint: nil)

    /// Whether we look from the boot of the kernel that `host` had: then what the kernel holds for a process tells of it.
    func isBoot(of host: HostIdentity) -> Bool {
        guard let viewpoint, let boot = viewpoint.host.bootID else { return false }
        return boot == host.bootID
    }

    /// What became of `process`, which ran on `host`.
    public func status(of process: ProcessIdentity, on host: HostIdentity) -> Status {
        guard let viewpoint, let ours = viewpoint.host.bootID, let theirs = host.bootID else { return .unknown }
        // Another boot of the same machine: nothing of the earlier one is left.
        guard ours == theirs else { return viewpoint.host.name == host.name ? .dead : .unknown }
        guard let namespace = process.pidNamespace, namespace == viewpoint.pidNamespace else { return .unknown }
        guard process.pid > 0 else { return .dead }
        // A process of another user that /proc hides (hidepid) still answers to signal 0, with EPERM.
        if kill(process.pid, 0) != 0, errno == ESRCH { return .dead }
        guard let stat = ProcessStat(pid: process.pid) else { return .unknown }
        if stat.state == "Z" || stat.state == "X" { return .dead }
        return process.startTicks == nil || process.startTicks == stat.startTicks ? .alive : .dead
    }
}
