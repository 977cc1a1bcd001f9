public import StallReports

extension StallMonitor {
    /// How the monitor works. Every value has a default that suits a server.
    public struct Configuration: Sendable {
        /// Where reports go. It is created, readable by its owner only.
        public var directory: String
        /// How many reports and bytes the directory may hold; the oldest finished ones go first.
        public var limits: ReportDirectory.Limits
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
        /// Whether the stalls under way are kept in a file that outlives the process (`live-….bin` in the directory), to the last look.
        public var keepsLiveRecord = true

        /// The defaults, but for what is given.
        public init(
            directory: String = ReportDirectory.defaultPath,
            limits: ReportDirectory.Limits = .init(),
            rule: StallRule = .init(),
            service: ServiceIdentity? = nil,
            ownCode: OwnCode = .init(),
            captureSignal: Int32 = Configuration.defaultCaptureSignal,
            isEnabled: Bool = true
        ) {
            self.directory = directory
            self.limits = limits
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
