extension StallReport {
    /// Why the thread was stalled, with the numbers that show it.
    public struct Cause: Codable, Hashable, Sendable {
        /// Determined from `evidence`, the system call and the thread's state (proc(5)).
        public var verdict: Verdict
        /// One sentence for display, without a line break.
        public var summary: String
        /// The call in which the thread slept. Nil for a thread that ran or slept in a page fault, and without a captured stack.
        public var systemCall: SystemCall?
        /// The measurements. Nil if nothing was measured.
        public var evidence: Evidence?
        /// The lock or other thread for which the thread waited. Nil if it did not wait in futex(2), or waited elsewhere for longer.
        public var lock: Lock?
        /// The waits from the stalled thread on, if the lock's owner waits for a lock in turn. Each one's owner is the next
        /// one's thread.
        public var chain: [LockWait]?
        /// The waits of the chain that form a cycle: none of these threads can continue, except one whose wait has a timeout.
        /// Present for the verdict `deadlock`.
        public var cycle: [LockWait]?

        /// Creates a cause: by default `unknown`, without a sentence, a call or evidence.
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

    /// The system call in which the thread was (proc(5), `/proc/PID/task/TID/syscall`).
    public struct SystemCall: Codable, Hashable, Sendable {
        /// The kernel's number on the architecture that the process ran on.
        public var number: Int
        /// The kernel's name: `futex`. Nil if the writer did not know the number.
        public var name: String?
        /// Register contents: numbers and addresses.
        public var arguments: [Address]
        /// The informative arguments, decoded. Nil for a call that the writer did not know.
        public var decoded: [Argument]?
        /// The descriptors on which it waited, the most important first. Nil for a call without descriptors.
        public var descriptors: [Descriptor]?

        /// Creates a call, by default without name and arguments.
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

    /// What the thread did in a window of the stall; absent values were not measured.
    public struct Evidence: Codable, Hashable, Sendable {
        /// CPU time.
        public var cpuNs: Int64?
        /// Time runnable but not running (schedstat).
        public var runDelayNs: Int64?
        /// The window in which the other numbers were measured.
        public var windowNs: Int64?
        /// Page faults that had to wait for a disk (proc(5), field 12 of `stat`).
        public var majorFaults: Int64?
        /// The kernel function in which it slept (`/proc/PID/wchan`).
        public var waitChannel: String?
        /// The part of `cpuNs` in user mode. Like `systemNs`, in steps of 10 ms on most kernels (proc(5), `utime`).
        public var userNs: Int64?
        /// The part of `cpuNs` in the kernel.
        public var systemNs: Int64?
        /// Time that it waited for a block device (proc(5), field 42 of `stat`). Nil unless the kernel counts it
        /// (`task_delayacct`).
        public var blockIONs: Int64?
        /// The availability of processors.
        public var processors: Processors?
        /// What the samples found.
        public var sampled: SampledShares?

        /// Creates evidence. By default all values are nil, which means not measured.
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

        /// The share of the window in which the thread was runnable and got no processor, from 0 to 1. Nil: not measured.
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

// Why a runnable thread got no processor.

extension StallReport {
    /// The availability of processors in the evidence's window, and the competition for them; absent values were not measured.
    public struct Processors: Codable, Hashable, Sendable {
        /// The cgroup's limit, in percent of one processor: 50 is half of one. Nil without a limit.
        public var quotaPercent: Double?
        /// The number of enforcement periods of that limit that passed, and the number in which the cgroup was throttled
        /// (`cpu.stat`).
        public var periods: Int64?
        /// See `periods`.
        public var throttledPeriods: Int64?
        /// How long the cgroup was throttled, its processors added up: it can exceed the window.
        public var throttledNs: Int64?
        /// How long at least one task of the cgroup waited for a processor (`cpu.pressure`, `some`).
        public var cgroupPressureNs: Int64?
        /// The same for the whole machine (`/proc/pressure/cpu`).
        public var systemPressureNs: Int64?
        /// The time that the hypervisor gave to others, the machine's processors added up (`/proc/stat`, `steal`).
        public var stealNs: Int64?
        /// The machine's load average over a minute, at the window's end.
        public var load: Double?
        /// The number of threads of the whole machine that were running or runnable, at the window's end (`/proc/loadavg`).
        public var runnable: Int?
        /// The number of the machine's processors.
        public var count: Int?
        /// The number of processors that the thread may use (sched_setaffinity(2)).
        public var allowed: Int?

        /// Creates figures. By default all values are nil, which means not measured.
        public init(
            quotaPercent: Double? = nil,
            periods: Int64? = nil,
            throttledPeriods: Int64? = nil,
            throttledNs: Int64? = nil,
            cgroupPressureNs: Int64? = nil,
            systemPressureNs: Int64? = nil,
            stealNs: Int64? = nil,
            load: Double? = nil,
            runnable: Int? = nil,
            count: Int? = nil,
            allowed: Int? = nil
        ) {
            (self.quotaPercent, self.periods, self.throttledPeriods) = (quotaPercent, periods, throttledPeriods)
            (self.throttledNs, self.cgroupPressureNs) = (throttledNs, cgroupPressureNs)
            (self.systemPressureNs, self.stealNs, self.load) = (systemPressureNs, stealNs, load)
            (self.runnable, self.count, self.allowed) = (runnable, count, allowed)
        }

        private enum CodingKeys: String, CodingKey {
            case quotaPercent = "quota_percent"
            case periods
            case throttledPeriods = "throttled_periods"
            case throttledNs = "throttled_ns"
            case cgroupPressureNs = "cgroup_pressure_ns"
            case systemPressureNs = "system_pressure_ns"
            case stealNs = "steal_ns"
            case load, runnable, count, allowed
        }
    }

    /// What the samples of a stall found the thread doing, as shares of its time, each rounded to a whole percent.
    public struct SampledShares: Codable, Hashable, Sendable {
        /// The number of samples.
        public var samples: Int
        /// Percent of the sampled time in which it was running or runnable.
        public var running: Int
        /// … in which it slept in a system call.
        public var calling: Int
        /// … in which it slept elsewhere: in a page fault.
        public var faulting: Int

        /// Creates one from these values.
        public init(samples: Int, running: Int, calling: Int, faulting: Int) {
            (self.samples, self.running) = (samples, running)
            (self.calling, self.faulting) = (calling, faulting)
        }
    }
}
