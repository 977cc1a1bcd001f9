/// Why the monitor cannot do part of its work. It never stops the process it watches.
public struct StallMonitorError: Error, Hashable, Sendable, CustomStringConvertible {
    /// What went wrong. Further codes may be added; keep a default branch.
    public struct Code: Hashable, Sendable {
        /// For logs and JSON; stable: `loop_ended`.
        public let name: String
        /// What happened and what to do about it.
        let advice: String

        private init(_ name: String, _ advice: String) {
            self.name = name
            self.advice = advice
        }

        /// The system could not start a thread: the monitor is disarmed.
        public static let threadNotStarted = Code(
            "thread_not_started",
            "The stall monitor is disarmed: no thread could be started. Raise the limit of threads (ulimit -u, pids.max)."
        )
        /// Another watcher is attached to the loop.
        public static let loopAlreadyWatched = Code(
            "loop_already_watched",
            "The loop is watched already. First cancel the other watch, or stop the process's other monitor."
        )
        /// The loop's thread has ended.
        public static let loopEnded = Code(
            "loop_ended",
            "The loop's thread has ended, so there is nothing to watch. Watch a loop while its thread runs."
        )
        /// Stacks cannot be captured. Stalls are still detected and reported without them. If descriptors or memory were missing, it is
        /// tried again at later stalls.
        public static let captureUnavailable = Code("capture_unavailable", "Stall reports will have no stacks.")
        /// The report directory cannot be written. Reports are kept in memory and tried again.
        public static let reportNotWritten = Code("report_not_written", "The report directory could not be written.")
        /// The process is a fork's child, which has none of the monitor's threads: the monitor is disarmed in it.
        public static let forked = Code(
            "forked",
            "The stall monitor is disarmed: it belongs to the process that was forked. Stop it here, and start a new one."
        )
        /// The report directory's disk does not answer. Reports are kept in memory.
        public static let reportDirectoryHangs = Code(
            "report_directory_hangs",
            "The disk of the report directory does not answer."
        )
        /// Others can write to the report directory, or it is a symbolic link. Reports are still written.
        public static let reportDirectoryExposed = Code(
            "report_directory_exposed",
            "The report directory is not safe from others."
        )
        /// The report directory is full of files that this run may not remove, so its limits do not hold. Reports are still
        /// written.
        public static let reportDirectoryFilled = Code(
            "report_directory_filled",
            "The report directory is full of what is not this server's."
        )
        /// The server's details did not arrive in time, so reports lack them. Reports are still written.
        public static let detailsMissing = Code(
            "details_missing",
            "The server's closure for a stall's details, or its tracer, did not return within 0.1 s. They must neither wait nor lock."
        )
        /// A value of the configuration is too small or too large. The nearest allowed value is used instead.
        public static let configurationOutOfRange = Code(
            "configuration_out_of_range",
            "The stall monitor's configuration is out of range."
        )
        /// Reports were dropped: too many waited for the disk, or the monitor was stopped while some did.
        public static let reportsLost = Code("reports_lost", "Stall reports are lost.")
        /// The monitor has used up its budget. Stalls are still detected, and reported without stacks, until the cost has fallen.
        public static let capturesStopped = Code("captures_stopped", "Stalls are reported without stacks.")
        /// Not every loop of the process can be found. The known ones are watched.
        public static let loopsNotFound = Code("loops_not_found", "Some event loops are not watched.")
        /// The jobs of Swift's task pool cannot be observed: it is not watched.
        public static let taskPoolNotFound = Code("task_pool_not_found", "The task pool is not watched.")
        /// A queue cannot be watched.
        public static let queueNotWatched = Code("queue_not_watched", "A queue is not watched.")
        /// The port for health probes is not open. Everything else works.
        public static let healthEndpointUnavailable = Code(
            "health_endpoint_unavailable",
            "Health probes are not answered."
        )
        /// All watches are paused, or some are: no stall of their loops is noticed.
        public static let paused = Code(
            "paused",
            "Stalls are not noticed while their watch is paused; resume() ends that."
        )
        /// The configuration has `enabled` false: the monitor watches nothing.
        public static let switchedOff = Code(
            "switched_off",
            "The stall monitor is switched off by its configuration. To watch, set enabled, and start the server again."
        )
        /// The monitor is stopped.
        public static let stopped = Code("stopped", "The stall monitor is stopped. Start a new one.")
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
        message = detail.map { "\(code.advice) \($0)" } ?? code.advice
    }

    /// The message, and the error number if there is one.
    public var description: String {
        guard let errno else { return message }
        return "\(message) (errno \(errno))"
    }

    init(_ error: ConfigurationRangeError) { self.init(.configurationOutOfRange, "\(error).") }
}
