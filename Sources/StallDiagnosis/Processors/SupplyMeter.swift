import CMonitorShims
import Glibc
package import RunLoopKit
import StallReports
import Synchronization

/// The files in which the kernel counts the processor time of this process's cgroup: cgroups(7), both versions, also in a
/// container.
package struct SupplyFiles: Hashable, Sendable {
    /// The process's cgroup and its ancestors that have a limit, innermost first.
    package var limited: [LimitedGroup] = []
    /// The cgroup's `cpu.pressure`. Version 2 only.
    var pressure: String?
    /// The freezers of the process.
    package var freezer = ControlGroup()
    /// Whether single threads can be frozen: version 1 groups threads, version 2 only in a threaded group.
    package var freezesThreads = false

    package struct LimitedGroup: Hashable, Sendable {
        /// Its `cpu.stat`.
        var statistics: String
        /// The limit, in percent of one processor.
        package var quotaPercent: Double
        /// The period after which the limit is renewed.
        package var period = Duration.milliseconds(100)

        /// Its present counts. Nil if the file cannot be read.
        package var throttling: ProcessorSupply.Throttling? {
            readSmallFile(statistics).flatMap(ProcessorSupply.Throttling.init)
        }
    }

    /// How many groups with a limit are read.
    private static let groupLimit = 4

    /// - Parameters:
    ///   - cgroup: The text of `/proc/self/cgroup`.
    ///   - mounts: The text of `/proc/self/mountinfo`.
    ///   - read: Returns the text of a small file.
    package init(cgroup: String, mounts: String, read: (String) -> String?) {
        let directories = CgroupDirectories(membership: cgroup, mounts: mounts)
        let unified = directories.unified
        if let groups = directories.ofController("cpu") {
            limited = Self.limited(groups) { Self.quotaOfVersion1(in: $0, read) }
        } else if let unified {
            limited = Self.limited(unified) { read($0 + "/cpu.max").flatMap(Self.quota) }
        }
        pressure = unified?.first.map { $0 + "/cpu.pressure" }
        freezer = ControlGroup(directories)
        let type = freezer.unified.flatMap { read($0 + "/cgroup.type") }
        freezesThreads = freezer.freezer != nil || type?.contains("threaded") == true
    }

    package init() {}

    private static func limited(_ directories: [String], _ quota: (String) -> Quota?) -> [LimitedGroup] {
        let groups = directories.prefix(32).compactMap { directory in
            quota(directory).map { quota in
                LimitedGroup(
                    statistics: directory + "/cpu.stat",
                    quotaPercent: quota.percent,
                    period: quota.period
                )
            }
        }
        return Array(groups.prefix(groupLimit))
    }

    private typealias Quota = (percent: Double, period: Duration)

    /// Parses `20000 100000`, microseconds of each period, or `max` for no limit.
    private static func quota(_ text: String) -> Quota? {
        let numbers = text.split(whereSeparator: \.isWhitespace).compactMap { Double($0) }
        guard numbers.count == 2, numbers[0] > 0, numbers[1] >= 1, numbers.allSatisfy({ $0 < 1e15 }) else { return nil }
        return (100 * (numbers[0] / numbers[1]), .microseconds(Int64(saturating: numbers[1])))
    }

    private static func quotaOfVersion1(in directory: String, _ read: (String) -> String?) -> Quota? {
        guard let quota = read(directory + "/cpu.cfs_quota_us"), let period = read(directory + "/cpu.cfs_period_us")
        else { return nil }
        return Self.quota(quota + " " + period)
    }
}

/// The files with the counts of the process's cgroup, once they were searched. The search takes locks of the kernel that others
/// may hold for long, so the reporter searches; the watchdog only uses the result.
package final class SupplyLocation: Sendable {
    private let files = Mutex<SupplyFiles?>(nil)
    private let lastSearch = Atomic<UInt64>(0)
    private let process: ObservedProcess

    /// - Parameter process: The process of the cgroup.
    package init(of process: ObservedProcess = .own) { self.process = process }

    /// The files found so far. Nil before the first search.
    package var found: SupplyFiles? { files.withLock { $0 } }

    /// Searches, unless that was done within the last ten seconds: the process may have been moved, or its limits changed. Not on
    /// the watchdog's thread while it watches.
    package func search() {
        // In this order: another thread may search meanwhile, and its time must not be later than this one.
        let last = lastSearch.load(ordering: .relaxed)
        let now = MonotonicInstant.now.nanoseconds
        guard last == 0 || now - last >= 10_000_000_000 else { return }
        lastSearch.store(now, ordering: .relaxed)
        locate()
    }

    /// Searches, even if that was already done or is being done. When it returns there is a result, if one is possible.
    package func locate() {
        guard let cgroup = readSmallFile(process.livingDirectory + "/cgroup"),
            let mounts = readFile("/proc/self/mountinfo", limit: 1 << 22)
        else { return }
        let located = SupplyFiles(cgroup: cgroup, mounts: mounts, read: readSmallFile)
        files.withLock { $0 = located }
    }
}

/// Reads the kernel's counts for the processors. Confined to the watchdog's thread.
package struct SupplyMeter {
    /// The files of the reading. Two readings can be compared if their files are the same.
    package typealias Reading = (files: SupplyFiles, supply: ProcessorSupply)

    package let location: SupplyLocation
    private var last: (time: MonotonicInstant, reading: Reading)?
    /// Whether to read stolen time. On a machine with hundreds of processors, reading `/proc/stat` takes long.
    private var readsSteal = true

    /// The longest that reading the stolen time may take, in nanoseconds of processor time.
    private static let stealBudget: UInt64 = 2_000_000

    package init(location: SupplyLocation) {
        self.location = location
    }

    /// The present counts. One reading is used for all calls within a short time: a look at many loops reads once.
    package mutating func reading(at time: MonotonicInstant) -> Reading? {
        if let last, time - last.time <= .milliseconds(5) { return last.reading }
        guard let files = location.found else { return nil }
        var supply = ProcessorSupply()
        supply.groups = files.limited.map(\.throttling)
        supply.cgroupPressure = files.pressure.flatMap(readSmallFile).flatMap(ProcessorSupply.pressure)
        supply.systemPressure = readSmallFile("/proc/pressure/cpu").flatMap(ProcessorSupply.pressure)
        supply.load = readSmallFile("/proc/loadavg").flatMap(ProcessorSupply.Load.init)
        supply.steal = steal()
        last = (time, (files, supply))
        return (files, supply)
    }

    /// The change since `before` for a thread.
    package mutating func window(since before: Reading?, threadID: Int32, at time: MonotonicInstant) -> SupplyWindow? {
        guard let before, let now = reading(at: time), before.files == now.files else { return nil }
        let allowed = monitor_allowed_processors(threadID)
        return SupplyWindow(
            files: now.files,
            before: before.supply,
            after: now.supply,
            processors: max(1, sysconf(Int32(_SC_NPROCESSORS_ONLN))),
            allowed: allowed > 0 ? Int(allowed) : nil
        )
    }

    private mutating func steal() -> UInt64? {
        guard readsSteal else { return nil }
        let start = ThreadClock.nanoseconds
        defer { if ThreadClock.nanoseconds - start > Self.stealBudget { readsSteal = false } }
        return readSmallFile("/proc/stat").flatMap(ProcessorSupply.steal)
    }
}
