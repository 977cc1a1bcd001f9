internal import Glibc

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

    /// The place from which processes are seen; nil sees none.
    private let viewpoint: Viewpoint?

    private struct Viewpoint: Sendable {
        let host: HostIdentity
        let pidNamespace: UInt64?
    }

    /// From the calling process.
    public init() {
        self.init(host: .current(), pidNamespace: ProcessIdentity.currentPIDNamespace())
    }

    /// As if from another place: for tests.
    init(host: HostIdentity, pidNamespace: UInt64?) {
        viewpoint = Viewpoint(host: host, pidNamespace: pidNamespace)
    }

    private init(viewpoint: Viewpoint?) { self.viewpoint = viewpoint }

    /// Sees no process, and so treats none as dead.
    static let blind = ProcessLiveness(viewpoint: nil)

    /// Whether this is the boot of the kernel on which `host` ran: then the kernel's state about a process is valid.
    func isBoot(of host: HostIdentity) -> Bool {
        guard let viewpoint, let boot = viewpoint.host.bootID else { return false }
        return boot == host.bootID
    }

    /// The state of `process`, which ran on `host`.
    public func status(of process: ProcessIdentity, on host: HostIdentity) -> Status {
        guard let viewpoint, let ours = viewpoint.host.bootID, let theirs = host.bootID else { return .unknown }
        // Another boot of the same machine: no process of the earlier one is left.
        guard ours == theirs else { return viewpoint.host.name == host.name ? .dead : .unknown }
        guard let namespace = process.pidNamespace, namespace == viewpoint.pidNamespace else { return .unknown }
        guard process.pid > 0 else { return .dead }
        // A process of another user that /proc hides (hidepid) still answers signal 0 with EPERM.
        if kill(process.pid, 0) != 0, errno == ESRCH { return .dead }
        guard let stat = ProcessStat(pid: process.pid) else { return .unknown }
        if stat.state == "Z" || stat.state == "X" { return .dead }
        return process.startTicks == nil || process.startTicks == stat.startTicks ? .alive : .dead
    }
}

/// Two fields of `/proc/PID/stat` (proc(5)).
struct ProcessStat: Hashable {
    /// Field 3: one letter.
    let state: Character
    /// Field 22: the process's start, in clock ticks since the kernel's boot.
    let startTicks: UInt64

    /// Nil if the process has exited, or is hidden.
    init?(pid: Int32) {
        guard let text = readProcFile("/proc/\(pid)/stat") else { return nil }
        self.init(text)
    }

    /// The second field is the name in parentheses, which may itself contain blanks and parentheses: the fields begin after the
    /// last one.
    init?(_ text: String) {
        guard let end = text.lastIndex(of: ")") else { return nil }
        let fields = text[text.index(after: end)...].split(separator: " ")
        guard fields.count > 19, let state = fields[0].first, let ticks = UInt64(fields[19]) else { return nil }
        (self.state, startTicks) = (state, ticks)
    }
}

/// The text of a small file of /proc, without its last line feed; nil if it cannot be read.
func readProcFile(_ path: String) -> String? {
    guard let text = readSmallFile(path) else { return nil }
    return text.hasSuffix("\n") ? String(text.dropLast()) : text
}

/// The target of a link of /proc; nil if it cannot be read.
func readProcLink(_ path: String) -> String? {
    var buffer = [UInt8](repeating: 0, count: 4096)
    let count = unsafe buffer.withUnsafeMutableBytes { bytes in
        unsafe readlink(path, bytes.bindMemory(to: CChar.self).baseAddress!, bytes.count)
    }
    return count < 0 ? nil : String(decoding: buffer[..<count], as: UTF8.self)
}
