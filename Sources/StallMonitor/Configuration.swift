public import StallReports

extension StallMonitor {
    /// How the monitor works. Every value has a default that suits a server.
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
        /// For how long after the start slowness is expected: what a server does first, it does once. Zero unless set.
        public var startupGrace: Duration = .zero
        /// Whether a thread's stall counts while a debugger or another tracer is attached to it. False: it does not, so that nobody
        /// gets reports of his breakpoints.
        public var countsTracedStalls = false
        /// Whether a report tells what all the other threads were at, too, equal stacks merged. It delays the watchdog by up to a tick at each
        /// stall, and a running thread notices its capture.
        public var captureAllThreads: Bool
        /// Whether to find out, when a stalled thread waits for a lock, who holds it and where that one is. A few milliseconds of the
        /// watchdog's for such a stall, and the owner's stack is taken like the stalled thread's.
        public var followsLocks: Bool
        /// False: `start` does nothing at all, and costs nothing.
        public var isEnabled: Bool
        /// Whether the stalls under way are kept in a file that outlives the process (`live-….bin` in the directory), to the last look.
        public var keepsLiveRecord = true
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
            captureAllThreads: Bool = false,
            followsLocks: Bool = true,
            isEnabled: Bool = true
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
            self.captureAllThreads = captureAllThreads
            self.followsLocks = followsLocks
            self.isEnabled = isEnabled
        }

        /// `SIGPROF`: the threads of libdispatch and Swift concurrency block every real-time signal, but not this one.
        public static let defaultCaptureSignal: Int32 = 27
    }
}
