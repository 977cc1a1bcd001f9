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
        /// Whose code a frame is.
        public var ownCode: OwnCode
        /// The signal that takes a running thread's registers, 1 to 64. Change it when the server uses `SIGPROF` itself.
        public var captureSignal: Int32
        /// False: `start` does nothing at all, and costs nothing.
        public var isEnabled: Bool
        /// How many notices may wait for the reporter. For tests.
        var noticeCapacity = 256

        /// The defaults, but for what is given.
        public init(
            directory: String = ReportDirectory.defaultPath,
            limits: ReportDirectory.Limits = .init(),
            memory: MemoryLimits = .init(),
            cost: CostLimits = .init(),
            rule: StallRule = .init(),
            service: ServiceIdentity? = nil,
            ownCode: OwnCode = .init(),
            captureSignal: Int32 = Configuration.defaultCaptureSignal,
            isEnabled: Bool = true
        ) {
            self.directory = directory
            self.limits = limits
            self.memory = memory
            self.cost = cost
            self.rule = rule
            self.service = service
            self.ownCode = ownCode
            self.captureSignal = captureSignal
            self.isEnabled = isEnabled
        }

        /// `SIGPROF`: the threads of libdispatch and Swift concurrency block every real-time signal, but not this one.
        public static let defaultCaptureSignal: Int32 = 27
    }
}
