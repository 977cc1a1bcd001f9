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

/// How a process ended that did not stop its monitor, as far as that can be determined afterwards.
public struct ProcessEnd: Codable, Hashable, Sendable {
    /// What ended it.
    public var cause: Cause
    /// One sentence for a person.
    public var summary: String
    /// The latest sign of life.
    public var lastSeenAt: Timestamp?
    /// The status that its parent received, 0 to 255. Only if it called exit(3).
    public var exitStatus: Int32?

    /// Nothing is checked.
    public init(cause: Cause, summary: String, lastSeenAt: Timestamp? = nil, exitStatus: Int32? = nil) {
        (self.cause, self.summary) = (cause, summary)
        (self.lastSeenAt, self.exitStatus) = (lastSeenAt, exitStatus)
    }

    private enum CodingKeys: String, CodingKey {
        case cause, summary
        case lastSeenAt = "last_seen_at"
        case exitStatus = "exit_status"
    }

    /// What ended a process.
    public struct Cause: OpenName {
        /// As in JSON; unknown names are kept.
        public let rawValue: String
        /// Accepts unknown names too.
        public init(rawValue: String) { self.rawValue = rawValue }

        /// It called exit(3), or returned from its main function.
        public static let exit = Cause(rawValue: "exit")
        /// The kernel killed a process of its cgroup for lack of memory at that time.
        public static let outOfMemory = Cause(rawValue: "oom_kill")
        /// Its host was rebooted: a power failure, a kernel crash, or a regular reboot.
        public static let reboot = Cause(rawValue: "reboot")
        /// It became another program (execve(2)).
        public static let exec = Cause(rawValue: "exec")
        /// None of these: a signal from outside, a crash, or _exit(2). Only its parent can know which.
        public static let killedOrCrashed = Cause(rawValue: "killed_or_crashed")
    }

    /// The known facts about an end.
    struct Clues: Hashable {
        var isOtherBoot = false
        /// A process with the same number and start exists.
        var isNumberAlive = false
        var exitStatus: Int32?
        var memoryKillsBefore: UInt64?
        var memoryKillsNow: UInt64?
        var lastSeenAt: Timestamp?
    }

    /// Decides. Pure.
    init(_ clues: Clues) {
        let memoryKills = zip(clues.memoryKillsBefore, clues.memoryKillsNow).map { $1 > $0 ? $1 - $0 : 0 } ?? 0
        if let status = clues.exitStatus {
            let status = status & 0xff
            self.init(cause: .exit, summary: "The process called exit with status \(status).", exitStatus: status)
        } else if clues.isOtherBoot {
            self.init(cause: .reboot, summary: "The host was started anew while the process ran.")
        } else if clues.isNumberAlive {
            self.init(cause: .exec, summary: "The process became another program.")
        } else if memoryKills > 0 {
            let what = memoryKills == 1 ? "a process" : "\(memoryKills) processes"
            self.init(
                cause: .outOfMemory,
                summary: "The kernel killed \(what) of this cgroup for want of memory as the process ended."
            )
        } else {
            self.init(
                cause: .killedOrCrashed,
                summary: "The process was killed by a signal, crashed, or called _exit: its parent knows."
            )
        }
        lastSeenAt = clues.lastSeenAt
    }
}

/// Both or neither.
private func zip<A, B>(_ a: A?, _ b: B?) -> (A, B)? {
    guard let a, let b else { return nil }
    return (a, b)
}
