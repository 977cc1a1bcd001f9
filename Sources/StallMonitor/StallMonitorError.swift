/// Why the monitor cannot do part of its work. It never stops the process it watches.
public struct StallMonitorError: Error, Hashable, Sendable, CustomStringConvertible {
    /// What went wrong. Further codes may be added; keep a default branch.
    public struct Code: Hashable, Sendable {
        let name: String

        /// The system gave no thread: the monitor is disarmed.
        public static let threadNotStarted = Code(name: "threadNotStarted")
        /// Another watcher is attached to the loop.
        public static let loopAlreadyWatched = Code(name: "loopAlreadyWatched")
        /// The loop's thread has ended.
        public static let loopEnded = Code(name: "loopEnded")
        /// Stacks cannot be captured. Stalls are still detected and reported without them.
        public static let captureUnavailable = Code(name: "captureUnavailable")
        /// The report directory cannot be written. Reports are kept in memory and tried again.
        public static let reportNotWritten = Code(name: "reportNotWritten")
        /// The process is a fork's child, which has none of the monitor's threads: the monitor is disarmed in it.
        public static let forked = Code(name: "forked")
        /// The report directory's disk does not answer. Reports are kept in memory.
        public static let reportDirectoryHangs = Code(name: "reportDirectoryHangs")
        /// Others can write to the report directory, or it is a symbolic link. Reports are still written.
        public static let reportDirectoryExposed = Code(name: "reportDirectoryExposed")
        /// The report directory is full of files that this run may not remove, so its limits do not hold. Reports are still
        /// written.
        public static let reportDirectoryFilled = Code(name: "reportDirectoryFilled")
        /// The server's details did not come in time, so reports lack them. Reports are still written.
        public static let detailsMissing = Code(name: "detailsMissing")
        /// A value of the configuration is too small or too large. The nearest allowed value is used instead.
        public static let configurationOutOfRange = Code(name: "configurationOutOfRange")
        /// Reports were dropped: too many waited for the disk, or the monitor was stopped while some did.
        public static let reportsLost = Code(name: "reportsLost")
        /// The monitor has used up its budget. Stalls are still detected, and reported without stacks, until the cost has fallen.
        public static let capturesStopped = Code(name: "capturesStopped")
        /// Not every loop of the process can be found. The known ones are watched.
        public static let loopsNotFound = Code(name: "loopsNotFound")
        /// The jobs of Swift's task pool cannot be observed: it is not watched.
        public static let taskPoolNotFound = Code(name: "taskPoolNotFound")
        /// A queue cannot be watched.
        public static let queueNotWatched = Code(name: "queueNotWatched")
        /// The port for health probes is not open. Everything else works.
        public static let healthEndpointUnavailable = Code(name: "healthEndpointUnavailable")
        /// The monitor is stopped.
        public static let stopped = Code(name: "stopped")
    }

    /// What went wrong.
    public let code: Code
    /// The system's error number, if there is one (errno(3)).
    public let errno: Int32?
    /// What happened and what to do next, in one sentence.
    public let message: String

    package init(_ code: Code, errno: Int32? = nil, _ detail: String? = nil) {
        self.code = code
        self.errno = errno
        self.message = Self.text(code, detail)
    }

    /// The message, and the error number if there is one.
    public var description: String {
        guard let errno else { return message }
        return "\(message) (errno \(errno))"
    }

    init(_ error: ConfigurationRangeError) { self.init(.configurationOutOfRange, "\(error).") }

    private static func text(_ code: Code, _ detail: String?) -> String {
        switch code {
        case .threadNotStarted:
            "The stall monitor is disarmed: no thread could be started. Raise the limit of threads (ulimit -u, pids.max)."
        case .loopAlreadyWatched:
            "The loop is watched already. Cancel the other watch first."
        case .loopEnded:
            "The loop's thread has ended, so there is nothing to watch. Watch a loop while its thread runs."
        case .forked:
            "The stall monitor is disarmed: it belongs to the process that was forked. Stop it here, and start a new one."
        case .captureUnavailable:
            "Stall reports will have no stacks. \(detail ?? "")"
        case .reportNotWritten:
            "The report directory could not be written. \(detail ?? "")"
        case .reportDirectoryHangs:
            "The disk of the report directory does not answer. \(detail ?? "")"
        case .reportDirectoryExposed:
            "The report directory is not safe from others. \(detail ?? "")"
        case .reportDirectoryFilled:
            "The report directory is full of what is not this server's. \(detail ?? "")"
        case .detailsMissing:
            "The server's closure for a stall's details did not return within 0.1 s. It must neither wait nor lock."
        case .configurationOutOfRange:
            "The stall monitor's configuration is out of range. \(detail ?? "")"
        case .reportsLost:
            "Stall reports are lost. \(detail ?? "")"
        case .capturesStopped:
            "Stalls are reported without stacks. \(detail ?? "")"
        case .loopsNotFound:
            "Some event loops are not watched. \(detail ?? "")"
        case .taskPoolNotFound:
            "The task pool is not watched. \(detail ?? "")"
        case .queueNotWatched:
            "A queue is not watched. \(detail ?? "")"
        case .healthEndpointUnavailable:
            "Health probes are not answered. \(detail ?? "")"
        default:
            "The stall monitor is stopped. Start a new one."
        }
    }
}
