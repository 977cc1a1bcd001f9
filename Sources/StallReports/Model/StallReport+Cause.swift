extension StallReport {
    /// Why the thread stood, with the numbers that say so.
    public struct Cause: Codable, Hashable, Sendable {
        /// Decided from `evidence`, the system call and the thread's state (proc(5)).
        public var verdict: Verdict
        /// One sentence for a person, without a line break.
        public var summary: String
        /// Nil for a thread that ran or slept in a page fault, and without a captured stack.
        public var systemCall: SystemCall?
        /// Nil when nothing was measured.
        public var evidence: Evidence?
        /// What the thread waited for that another thread has or gives. Nil for one that did not wait in futex(2).
        public var lock: Lock?
        /// The waits from the stalled thread on, when the lock's owner waits for a lock in turn. Each one's owner is the next one's
        /// thread.
        public var chain: [LockWait]?
        /// The waits of the chain that form a circle: none of these threads can go on, but for one whose wait has a timeout. There for
        /// the verdict `deadlock`.
        public var cycle: [LockWait]?

        /// `unknown`, without a sentence, a call or evidence, unless given.
        public init(
            verdict: Verdict = .unknown,
            summary: String = "",
            systemCall: SystemCall? = nil,
            evidence: Evidence? = nil,
            lock: Lock? = nil,
            chain: [LockWait]? = nil,
            cycle: [LockWait]? = nil
        ) {
            (self.verdict, self.summary) = (verdict, summary)
            (self.systemCall, self.evidence) = (systemCall, evidence)
            (self.lock, self.chain, self.cycle) = (lock, chain, cycle)
        }

        private enum CodingKeys: String, CodingKey {
            case verdict, summary
            case systemCall = "system_call"
            case evidence, lock, chain, cycle
        }
    }

    /// The system call the thread sat in (proc(5), `/proc/PID/task/TID/syscall`).
    public struct SystemCall: Codable, Hashable, Sendable {
        /// The kernel's number on the architecture that the process ran on.
        public var number: Int
        /// The kernel's name: `futex`. Nil when the writer did not know the number.
        public var name: String?
        /// Register contents: numbers and addresses, never what they point at.
        public var arguments: [Address]

        /// Without name and arguments unless given.
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
        /// Page faults that had to wait for a disk (proc(5), field 12 of `stat`).
        public var majorFaults: Int64?
        /// The kernel function it slept in (`/proc/PID/wchan`).
        public var waitChannel: String?

        /// All nil unless given, which means: not measured.
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
