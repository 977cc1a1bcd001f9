/// How a process ended that did not stop its monitor, as far as that can be determined afterwards.
public struct ProcessEnd: Codable, Hashable, Sendable {
    /// What ended it.
    public var cause: Cause
    /// One sentence for display.
    public var summary: String
    /// The latest sign of life.
    public var lastSeenAt: Timestamp?
    /// The status that its parent received, 0 to 255. Only if it called exit(3).
    public var exitStatus: Int32?

    /// Creates one from these values, which are not checked.
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

    /// The known facts about how a process ended.
    struct Clues: Hashable {
        var isOtherBoot = false
        /// A process with the same number and start exists.
        var isNumberAlive = false
        var exitStatus: Int32?
        var memoryKillsBefore: UInt64?
        var memoryKillsNow: UInt64?
        var lastSeenAt: Timestamp?

        /// How many processes of its cgroup were killed for lack of memory as it ended.
        fileprivate var memoryKills: UInt64 {
            guard let before = memoryKillsBefore, let now = memoryKillsNow, now > before else { return 0 }
            return now - before
        }
    }

    /// Decides how the process ended. Pure.
    init(_ clues: Clues) {
        let memoryKills = clues.memoryKills
        if let status = clues.exitStatus {
            let status = status & 0xff
            self.init(cause: .exit, summary: "The process called exit with status \(status).", exitStatus: status)
        } else if clues.isOtherBoot {
            self.init(cause: .reboot, summary: "The host was rebooted while the process ran.")
        } else if clues.isNumberAlive {
            self.init(cause: .exec, summary: "The process became another program.")
        } else if memoryKills > 0 {
            let what = memoryKills == 1 ? "a process" : "\(memoryKills) processes"
            self.init(
                cause: .outOfMemory,
                summary: "The kernel killed \(what) of this cgroup for lack of memory as the process ended."
            )
        } else {
            self.init(
                cause: .killedOrCrashed,
                summary:
                    "A signal, a crash or _exit ended the process; which one, its parent logs (systemctl status, kubectl describe)."
            )
        }
        lastSeenAt = clues.lastSeenAt
    }
}
