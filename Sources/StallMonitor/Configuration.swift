public import StallDetection
public import StallReports

extension StallMonitor {
    /// How the monitor works. Every value has a default that suits a server. A value that is out of its range is replaced by the
    /// nearer end of the range when the monitor starts, and reported as a fault: see ``rangeErrors``.
    ///
    /// The key in a configuration file is the property's name, followed by the unit if it is a number of one: `limits.reports`,
    /// `startupGraceMilliseconds`. The keys of `rule` have no prefix: `ticks`. Only `metadata` and `details` cannot be set in
    /// files.
    public struct Configuration: Sendable {
        /// Where reports are written. The directory is created, readable by its owner only.
        public var directory: String
        /// How many reports and bytes the directory may hold. The oldest finished reports are removed first.
        public var limits: ReportDirectory.Limits
        /// How much is kept in memory while the disk refuses to write.
        public var memory: MemoryLimits
        /// What the monitor may cost.
        public var cost: CostLimits
        /// When a loop counts as stalled, unless its watch has a rule of its own.
        public var rule: StallRule
        /// The server's name in reports. Nil: the executable's name.
        public var service: ServiceIdentity?
        /// Which stalls get a report of their own, and which are only counted.
        public var repeats: RepeatRule
        /// Which functions are the server's own.
        public var ownCode: OwnCode
        /// The signal that copies a running thread's registers, 1 to 64. Change it when the server uses `SIGPROF` itself.
        public var captureSignal: Int32
        /// How long after the start slowness is expected, because a server does many things once at first. Zero to one hour.
        public var startupGrace: Duration
        /// Whether a thread's stall counts while a debugger or another tracer is attached to it. False: breakpoints are not
        /// reported as stalls.
        public var countsTracedStalls: Bool
        /// Whether a report has the stacks of all other threads, too, equal ones merged. At each stall this delays the watchdog
        /// by up to a tick, and interrupts running threads.
        public var capturesAllThreads: Bool
        /// Whether to find out who holds a lock that a stalled thread waits for, and where the owner is. Takes the watchdog a few
        /// milliseconds for such a stall; the owner's stack is taken like the stalled thread's.
        public var followsLocks: Bool
        /// False: `start` does nothing, and costs nothing.
        public var enabled: Bool
        /// Whether present stalls are kept in a file that outlives the process (`live-….bin` in the directory), up to the last
        /// look.
        public var keepsLiveRecord: Bool
        /// Labels in every report, as `metadata`: a region, a deployment. At most 64 pairs, with keys up to 128 bytes and values
        /// up to 1,024.
        public var metadata: [String: String]
        /// Called for details of each stall that gets a report, when it is detected: see ``StallDetails``. Its argument is the
        /// report as known then. Called on a thread of its own, one at a time, and waited for a tenth of a second. Later answers
        /// are ignored, which is reported once (`detailsMissing`).
        public var details: (@Sendable (StallReport) -> StallDetails)?
        /// Report a job of a task pool that runs for longer than this even if other workers are free; looked for every tick of
        /// `rule`. Nil, the default: long jobs are only counted in the run record. A long job is not a stall: other jobs are
        /// served by the other workers.
        public var reportsJobsLongerThan: Duration?
        /// A port that answers health probes. Nil, the default: none is opened.
        public var health: HealthOptions?
        /// How long a stall may last before the monitor ends the process, so that a supervisor restarts it: 1 s to one day. Nil,
        /// the default: it never does.
        ///
        /// This is for loops that have been in one callout all that time, and for task pools with the same jobs on all workers.
        /// Time in which the threads waited for a processor does not count, nor excluded time. The report is written with the
        /// stacks of all threads, standard error says why, and then the process ends by SIGABRT, or a minute later by SIGKILL if
        /// a handler of SIGABRT does not return.
        public var abortsAfter: Duration?
        /// How long a handler of SIGABRT may run. For tests.
        package var abortPatience = Duration.seconds(60)
        /// How many notices may wait for the reporter. For tests.
        var noticeCapacity = 256

        /// The defaults, except for what is given.
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
            self.directory = directory
            self.limits = limits
            self.memory = memory
            self.cost = cost
            self.rule = rule
            self.repeats = repeats
            self.service = service
            self.ownCode = ownCode
            self.captureSignal = captureSignal
            self.startupGrace = startupGrace
            self.countsTracedStalls = countsTracedStalls
            self.capturesAllThreads = capturesAllThreads
            self.followsLocks = followsLocks
            self.keepsLiveRecord = keepsLiveRecord
            self.reportsJobsLongerThan = reportsJobsLongerThan
            self.metadata = metadata
            self.details = details
            self.health = health
            self.abortsAfter = abortsAfter
            self.enabled = enabled
        }

        /// The shortest job that counts as long.
        var longJob: Duration { reportsJobsLongerThan ?? rule.threshold }

        /// `SIGPROF`: the threads of libdispatch and Swift concurrency block every real-time signal, but not this one.
        public static let defaultCaptureSignal: Int32 = 27
    }
}
