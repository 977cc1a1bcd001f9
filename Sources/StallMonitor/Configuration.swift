import Glibc
public import StallDetection
public import StallReports

extension StallMonitor {
    /// How the monitor works. Every value has a default that suits a server. A value out of its range is replaced by the nearer
    /// end of the range when the monitor starts, and reported as a fault: see ``rangeErrors``.
    ///
    /// In a configuration file, a key is the property's name, followed by the unit if the value is a number with a unit:
    /// `limits.reports`, `startupGraceMilliseconds`. Sizes are in `megabytes` there, and shares in `Percent`. The keys of `rule`
    /// have no prefix: `ticks`; `repeated.enabled` and `congested.enabled` switch those rules on. Only `metadata` and `details`
    /// cannot be set in files. The environment variable of a key is the key in capitals: `STALL_MONITOR_LIMITS_REPORTS`. Files and
    /// variables are read by `StallMonitorService`; without it, only `STALL_MONITOR_DIRECTORY` and
    /// `STALL_MONITOR_STARTUP_GRACE_MILLISECONDS` are read.
    public struct Configuration: Sendable {
        /// Where reports are written. The directory is created, readable by its owner only. A relative path is resolved when the monitor
        /// starts.
        public var directory: String
        /// How many reports and bytes the directory may hold. The oldest finished reports are removed first.
        public var limits: ReportDirectory.Limits
        /// How much is kept in memory while the disk refuses to write.
        public var memory: MemoryLimits
        /// What the monitor may cost.
        public var cost: CostLimits
        /// When a loop counts as stalled, unless its watch has its own rule.
        public var rule: StallRule
        /// The server's name in reports. Nil: the executable's name.
        public var service: ServiceIdentity?
        /// Which stalls get their own report, and which are only counted.
        public var repeats: RepeatRule
        /// Which functions are the server's own.
        public var ownCode: OwnCode
        /// The signal that copies a running thread's registers, 1 to 64. Change it when the server uses `SIGPROF` itself.
        public var captureSignal: Int32
        /// For this long after the start slowness is expected, because a server does many things only once. Zero to one hour. The
        /// environment variable `STALL_MONITOR_STARTUP_GRACE_MILLISECONDS`, which `stall-monitor gate run --warm-up` sets, can
        /// lengthen it.
        public var startupGrace: Duration
        /// Whether a thread's stall counts while a debugger or another tracer is attached to it. False: breakpoints are not
        /// reported as stalls.
        public var countsTracedStalls: Bool
        /// Whether a report also has the stacks of all other threads, with equal ones merged, and 16,384 frames at most. At each
        /// stall this delays the watchdog by up to a tick, and interrupts running threads.
        public var capturesAllThreads: Bool
        /// Whether to find out who holds a lock that a stalled thread waits for, and where the owner is. Takes the watchdog a few
        /// milliseconds for such a stall; the owner's stack is taken like the stalled thread's.
        public var followsLocks: Bool
        /// False: `start` does nothing, and costs nothing; only probes are answered if ``health`` is set.
        public var enabled: Bool
        /// Whether present stalls are kept in a file that outlives the process (`live-….bin` in the directory), up to the last
        /// look.
        public var keepsLiveRecord: Bool
        /// Labels in every report, as `metadata`: a region, a deployment. At most 64 pairs, with keys up to 128 bytes and values
        /// up to 1,024.
        public var metadata: [String: String]
        /// Called for details of each stall that gets a report, when the stall is detected: see ``StallDetails``. The argument is
        /// the report as it is known then. It is called on a separate thread, one call at a time, and the monitor waits for a
        /// tenth of a second. Later answers are ignored, which is reported once (`detailsMissing`). About signals the same
        /// applies as in a handler of a ``StallEvent``.
        public var details: (@Sendable (StallReport) -> StallDetails)?
        /// A job of a task pool that runs for longer than this is reported even if other workers are free: 1 ms to 10 min. Checked
        /// every tick of `rule`, or every ten-thousandth of the length if that is longer. Nil, the default: long jobs are only
        /// counted in the run record. A long job is not a stall: the other workers serve the other jobs.
        public var reportsJobsLongerThan: Duration?
        /// A port that answers health probes. Nil, the default: none is opened.
        public var health: HealthOptions?
        /// How long a stall may last before the monitor ends the process, so that a supervisor restarts it: 1 s to one day. Nil,
        /// the default: it never does.
        ///
        /// This applies to loops that have been in one callout all that time, and to task pools with the same jobs on all
        /// workers. Excluded time does not count, nor does time in which the threads waited for a processor. The report is
        /// written with the stacks of all threads, and standard error gets the reason. Then the process ends by SIGABRT, or a
        /// minute later by SIGKILL if a handler of SIGABRT does not return.
        public var abortsAfter: Duration?
        /// Whether the environment can lengthen the grace. False: tests are judged from the start.
        package var takesGraceOfEnvironment = true
        /// How long a handler of SIGABRT may run. For tests.
        package var abortPatience = Duration.seconds(60)
        /// How long the kernel may take to say what a thread waits for. For tests.
        var lookupPatience = Duration.seconds(1)
        /// How many notices may wait for the reporter. For tests.
        var noticeCapacity = 256

        /// Creates the default configuration, except for the given values.
        public init(
            directory: String = ReportDirectory.defaultPath,
            limits: ReportDirectory.Limits = .init(),
            memory: MemoryLimits = .init(),
            cost: CostLimits = .init(),
            rule: StallRule = .init(),
            repeats: RepeatRule = .init(),
            service: ServiceIdentity? = nil,
            ownCode: OwnCode = .init(),
            captureSignal: Int32 = Configuration.defaultCaptureSignal,
            startupGrace: Duration = .zero,
            countsTracedStalls: Bool = false,
            capturesAllThreads: Bool = false,
            followsLocks: Bool = true,
            keepsLiveRecord: Bool = true,
            reportsJobsLongerThan: Duration? = nil,
            metadata: [String: String] = [:],
            details: (@Sendable (StallReport) -> StallDetails)? = nil,
            health: HealthOptions? = nil,
            abortsAfter: Duration? = nil,
            enabled: Bool = true
        ) {
            (self.directory, self.limits, self.memory, self.cost) = (directory, limits, memory, cost)
            (self.rule, self.repeats, self.service, self.ownCode) = (rule, repeats, service, ownCode)
            (self.captureSignal, self.startupGrace) = (captureSignal, startupGrace)
            (self.countsTracedStalls, self.capturesAllThreads) = (countsTracedStalls, capturesAllThreads)
            (self.followsLocks, self.keepsLiveRecord) = (followsLocks, keepsLiveRecord)
            (self.reportsJobsLongerThan, self.metadata) = (reportsJobsLongerThan, metadata)
            (self.details, self.health, self.abortsAfter) = (details, health, abortsAfter)
            self.enabled = enabled
        }

        /// The shortest job that counts as long.
        var longJob: Duration { reportsJobsLongerThan ?? rule.threshold }

        /// `SIGPROF`. The threads of libdispatch and Swift concurrency block every real-time signal, but not this one.
        public static let defaultCaptureSignal: Int32 = 27
    }
}

extension StallMonitor {
    /// How much is kept in memory for a disk that is full, read-only or slow. Beyond that, the oldest documents are dropped and
    /// counted as lost.
    public struct MemoryLimits: Hashable, Sendable {
        /// Number of reports: 1 to 1,000,000.
        public var reports: Int
        /// Bytes of reports and run record together: 1 to 1 TiB. The newest report is kept even if it is larger than that.
        public var bytes: Int

        /// Creates limits: 256 reports and 8 MiB by default.
        public init(reports: Int = 256, bytes: Int = 8 << 20) {
            (self.reports, self.bytes) = (reports, bytes)
        }
    }
}

/// Which stalls get their own report, and which are only counted: in the run record, and in the next report of the same fault.
///
/// All stalls with the same fingerprint are one fault. Its first stall is reported; those in the window after that are counted.
/// While the fault continues, each window is twice as long as the one before; once it has not occurred for two windows, the
/// first length is used again. A stall that is more severe than all reported ones of its fault, or twice as long as the longest,
/// is reported anyway.
public struct RepeatRule: Hashable, Sendable {
    /// How long after a report further stalls of the fault are only counted. Zero: every stall is reported.
    public var window: Duration
    /// The longest window that is used while the fault continues.
    public var longestWindow: Duration
    /// How many reports may begin per minute, of all faults together. Nil: no limit.
    public var reportsPerMinute: Int?
    /// How many reports may begin at once after a quiet time.
    public var burst: Int
    /// After this many bytes in a minute no further report begins; reports that have begun are completed. Nil: no limit.
    public var bytesPerMinute: Int?

    /// Creates a rule. By default, a continuing fault is reported once a minute, then less often, down to once an hour; at most
    /// 120 reports and 32 MiB are written per minute.
    ///
    /// - Parameters:
    ///   - window: 0 to one day.
    ///   - longestWindow: 0 to one day. Raised to `window` if it is shorter.
    ///   - reportsPerMinute: 1 to 100,000.
    ///   - burst: 1 to 100,000.
    ///   - bytesPerMinute: 1 byte to 100,000 MiB.
    public init(
        window: Duration = .seconds(60),
        longestWindow: Duration = .seconds(3600),
        reportsPerMinute: Int? = 120,
        burst: Int = 60,
        bytesPerMinute: Int? = 32 << 20
    ) {
        (self.window, self.longestWindow) = (window, max(window, longestWindow))
        (self.reportsPerMinute, self.burst, self.bytesPerMinute) = (reportsPerMinute, burst, bytesPerMinute)
    }

    /// Reports every stall.
    public static let everyStall = RepeatRule(
        window: .zero,
        longestWindow: .zero,
        reportsPerMinute: nil,
        bytesPerMinute: nil
    )
}

extension StallMonitor.Configuration {
    /// The environment variable that lengthens ``startupGrace``.
    package static let startupGraceVariable = "STALL_MONITOR_STARTUP_GRACE_MILLISECONDS"

    /// The grace from the start of the monitor. The user of `gate run` leaves the start out of a judgement, whatever the program's
    /// own configuration says.
    var wholeStartupGrace: Duration {
        guard takesGraceOfEnvironment, let text = unsafe getenv(Self.startupGraceVariable),
            let milliseconds = unsafe Int64(String(cString: text))
        else { return startupGrace }
        return max(startupGrace, .milliseconds(min(milliseconds, 3_600_000)))
    }
}

extension StallMonitor.Configuration {
    /// A port on which the monitor answers `GET /health` for the liveness probe of a supervisor. It is answered on a separate
    /// thread that does not stall with a loop.
    ///
    /// The status is 200, also while the monitor is paused or switched off, or 503 once a stall has lasted for `failsAfter`. The
    /// body is a line of JSON: `state` is `healthy`, `degraded` or `stalled` as in ``StallMonitor/Health``, `stalls` lists the
    /// ongoing stalls with their lengths, and `problems` what the monitor cannot do. Everybody who can reach the port gets this
    /// answer.
    public struct HealthOptions: Hashable, Sendable {
        /// 0 to 65535. 0: a free port, which ``StallMonitor/healthPort`` returns.
        public var port: Int
        /// A numeric address of this machine. `127.0.0.1` is reached from this machine only, in a container or pod only from within;
        /// `0.0.0.0` and `::` from everywhere.
        public var address: String
        /// How long a stall must last to make the answer a failure, 1 s to one hour. A supervisor should not restart the server
        /// for less.
        public var failsAfter: Duration

        /// Creates options. By default, probes must come from the same machine.
        public init(port: Int, address: String = "127.0.0.1", failsAfter: Duration = .seconds(10)) {
            (self.port, self.address, self.failsAfter) = (port, address, failsAfter)
        }
    }
}
