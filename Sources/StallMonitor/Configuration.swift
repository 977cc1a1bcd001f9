public import StallDetection
public import StallReports

extension StallMonitor {
    /// How the monitor works. Every value has a default that suits a server. One that is out of its range is brought to the nearer end of it
    /// when the monitor starts, which a fault tells: see ``rangeErrors``.
    ///
    /// A key of a configuration file is the property's name, with the unit where it is a number of one: `limits.reports`,
    /// `startupGraceMilliseconds`. Those of `rule` stand by themselves: `ticks`. Only `metadata` and `details` are not for files.
    public struct Configuration: Sendable {
        /// Where reports go. It is created, readable by its owner only.
        public var directory: String
        /// How many reports and bytes the directory may hold; the oldest finished ones go first.
        public var limits: ReportDirectory.Limits
        /// How much is kept in memory for a disk that does not take it.
        public var memory: MemoryLimits
        /// What the monitor may cost.
        public var cost: CostLimits
        /// When a loop counts as stalled, unless a watch says otherwise.
        public var rule: StallRule
        /// What the server is called in reports. Nil: the executable's name.
        public var service: ServiceIdentity?
        /// Which stalls are reported one by one, and which are only counted.
        public var repeats: RepeatRule
        /// Whose code a frame is.
        public var ownCode: OwnCode
        /// The signal that takes a running thread's registers, 1 to 64. Change it when the server uses `SIGPROF` itself.
        public var captureSignal: Int32
        /// For how long after the start slowness is expected: what a server does first, it does once. Zero to
        /// one hour.
        public var startupGrace: Duration
        /// Whether a thread's stall counts while a debugger or another tracer is attached to it. False: it does not, so that nobody
        /// gets reports of his breakpoints.
        public var countsTracedStalls: Bool
        /// Whether a report tells what all the other threads were at, too, equal stacks merged. It delays the watchdog by up to a tick at each
        /// stall, and a running thread notices its capture.
        public var capturesAllThreads: Bool
        /// Whether to find out, when a stalled thread waits for a lock, who holds it and where that one is. A few milliseconds of the
        /// watchdog's for such a stall, and the owner's stack is taken like the stalled thread's.
        public var followsLocks: Bool
        /// False: `start` does nothing at all, and costs nothing.
        public var enabled: Bool
        /// Whether the stalls under way are kept in a file that outlives the process (`live-….bin` in the directory), to the last look.
        public var keepsLiveRecord: Bool
        /// What every report says besides, as `metadata`: a region, a deployment. 64 pairs are taken, of keys up to 128 bytes and values up to
        /// 1,024.
        public var metadata: [String: String]
        /// Asked for more of each stall that gets a report, when it is detected: see ``StallDetails``. It is given the report as it is known
        /// then. Called on a thread of its own, one at a time, and waited for a tenth of a second: an answer that comes later is not
        /// taken, which is told once (`detailsMissing`).
        public var details: (@Sendable (StallReport) -> StallDetails)?
        /// When a job of a task pool is reported though other workers are free: one that takes as long as this, looked for every tick of `rule`.
        /// Nil, the default: none is, they are counted in the run record. A long job is no stall: who waits is served by the other workers.
        public var reportsJobsLongerThan: Duration?
        /// A port that answers health probes. Nil, the default: none is opened.
        public var health: HealthOptions?
        /// From how long on a stall ends the process, so that a supervisor starts it anew: 1 s to one day. Nil, the default: none does.
        ///
        /// It is for what has not moved in all that time: a loop in one callout, a task pool whose workers are all at their jobs of then. What
        /// the threads waited for a processor is not counted, nor what a pause, a debugger or an expected slowness took. The report is written with
        /// the stacks of all threads, standard error says why, and then the process ends by SIGABRT; a minute later, should a
        /// handler of that not return, by SIGKILL.
        public var abortsAfter: Duration?
        /// For how long a handler of SIGABRT may run. For tests.
        package var abortPatience = Duration.seconds(60)
        /// How many notices may wait for the reporter. For tests.
        var noticeCapacity = 256

        /// The defaults, but for what is given.
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

        /// A job as long as this is a long one.
        var longJob: Duration { reportsJobsLongerThan ?? rule.threshold }

        /// `SIGPROF`: the threads of libdispatch and Swift concurrency block every real-time signal, but not this one.
        public static let defaultCaptureSignal: Int32 = 27
    }
}
