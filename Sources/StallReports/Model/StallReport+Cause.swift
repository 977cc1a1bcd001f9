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
        /// Register contents: numbers and addresses.
        public var arguments: [Address]
        /// Those that tell something, in words. Nil for a call that the writer did not know.
        public var decoded: [Argument]?
        /// The descriptors it waited on, the first one foremost. Nil for a call on none.
        public var descriptors: [Descriptor]?

        /// Without name and arguments unless given.
        public init(
            number: Int,
            name: String? = nil,
            arguments: [Address] = [],
            decoded: [Argument]? = nil,
            descriptors: [Descriptor]? = nil
        ) {
            (self.number, self.name, self.arguments) = (number, name, arguments)
            (self.decoded, self.descriptors) = (decoded, descriptors)
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
        /// Of `cpuNs` in the program. With `systemNs` in steps of 10 ms on most kernels (proc(5), `utime`).
        public var userNs: Int64?
        /// Of `cpuNs` in the kernel.
        public var systemNs: Int64?
        /// Time it waited for a block device (proc(5), field 42 of `stat`). Nil unless the kernel counts it (`task_delayacct`).
        public var blockIONs: Int64?
        /// What there was of processors.
        public var processors: Processors?
        /// What the samples found it at.
        public var sampled: SampledShares?

        /// All nil unless given, which means: not measured.
        public init(
            cpuNs: Int64? = nil,
            runDelayNs: Int64? = nil,
            windowNs: Int64? = nil,
            majorFaults: Int64? = nil,
            waitChannel: String? = nil,
            userNs: Int64? = nil,
            systemNs: Int64? = nil,
            blockIONs: Int64? = nil,
            processors: Processors? = nil,
            sampled: SampledShares? = nil
        ) {
            (self.cpuNs, self.runDelayNs, self.windowNs) = (cpuNs, runDelayNs, windowNs)
            (self.majorFaults, self.waitChannel) = (majorFaults, waitChannel)
            (self.userNs, self.systemNs, self.blockIONs) = (userNs, systemNs, blockIONs)
            (self.processors, self.sampled) = (processors, sampled)
        }

        /// Which part of the window the thread could have run and was given no processor, from 0 to 1. Nil: not measured.
        package var runDelayShare: Double? {
            guard let runDelayNs, let windowNs, windowNs > 0 else { return nil }
            return min(1, max(0, Double(runDelayNs) / Double(windowNs)))
        }

        private enum CodingKeys: String, CodingKey {
            case cpuNs = "cpu_ns"
            case runDelayNs = "run_delay_ns"
            case windowNs = "window_ns"
            case majorFaults = "major_faults"
            case waitChannel = "wait_channel"
            case userNs = "user_ns"
            case systemNs = "system_ns"
            case blockIONs = "block_io_ns"
            case processors, sampled
        }
    }
}
