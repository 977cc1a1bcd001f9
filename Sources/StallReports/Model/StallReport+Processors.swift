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

        /// All nil by default, which means: not measured.
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

    /// What the samples of a stall found the thread doing, as shares of its time; together at most 100.
    public struct SampledShares: Codable, Hashable, Sendable {
        /// The number of samples.
        public var samples: Int
        /// Percent of the sampled time in which it was running or runnable.
        public var running: Int
        /// … in which it slept in a system call.
        public var calling: Int
        /// … in which it slept elsewhere: in a page fault.
        public var faulting: Int

        /// Nothing is defaulted.
        public init(samples: Int, running: Int, calling: Int, faulting: Int) {
            (self.samples, self.running) = (samples, running)
            (self.calling, self.faulting) = (calling, faulting)
        }
    }
}
