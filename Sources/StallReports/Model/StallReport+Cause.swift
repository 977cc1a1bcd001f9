extension StallReport {
    /// Why the thread stood, with the numbers that say so.
    public struct Cause: Codable, Hashable, Sendable {
        public var verdict: Verdict
        /// One sentence for a person, without a line break.
        public var summary: String
        public var systemCall: SystemCall?
        public var evidence: Evidence?

        public init(
            verdict: Verdict = .unknown,
            summary: String = "",
            systemCall: SystemCall? = nil,
            evidence: Evidence? = nil
        ) {
            (self.verdict, self.summary) = (verdict, summary)
            (self.systemCall, self.evidence) = (systemCall, evidence)
        }

        private enum CodingKeys: String, CodingKey {
            case verdict, summary
            case systemCall = "system_call"
            case evidence
        }
    }

    /// The system call the thread sat in (proc(5), `/proc/PID/task/TID/syscall`).
    public struct SystemCall: Codable, Hashable, Sendable {
        public var number: Int
        public var name: String?
        /// Register contents: numbers and addresses, never what they point at.
        public var arguments: [Address]

        public init(number: Int, name: String? = nil, arguments: [Address] = []) {
            (self.number, self.name, self.arguments) = (number, name, arguments)
        }
    }

    /// What the thread did in a window of the stall; absent is not measured.
    public struct Evidence: Codable, Hashable, Sendable {
        /// Time on a processor.
        public var cpuNs: Int64?
        /// Time runnable and not run (schedstat).
        public var runDelayNs: Int64?
        /// The window the other numbers were taken over.
        public var windowNs: Int64?
        public var majorFaults: Int64?
        /// The kernel function it slept in (`/proc/PID/wchan`).
        public var waitChannel: String?

        public init(
            cpuNs: Int64? = nil,
            runDelayNs: Int64? = nil,
            windowNs: Int64? = nil,
            majorFaults: Int64? = nil,
            waitChannel: String? = nil
        ) {
            (self.cpuNs, self.runDelayNs, self.windowNs) = (cpuNs, runDelayNs, windowNs)
            (self.majorFaults, self.waitChannel) = (majorFaults, waitChannel)
        }

        private enum CodingKeys: String, CodingKey {
            case cpuNs = "cpu_ns"
            case runDelayNs = "run_delay_ns"
            case windowNs = "window_ns"
            case majorFaults = "major_faults"
            case waitChannel = "wait_channel"
        }
    }
}
