import CMonitorShims
import Glibc
package import RunLoopKit
import StallReports
import Synchronization

/// The kernel's counts for the processors up to one moment. All but the load only grow. Pure.
package struct ProcessorSupply: Hashable, Sendable {
    /// For each limited cgroup, in the order of the files.
    package var groups: [Throttling?] = []
    /// Time in which a task waited for a processor, in the cgroup and on the machine, in microseconds.
    package var cgroupPressure: UInt64?
    package var systemPressure: UInt64?
    /// Time that the hypervisor gave to others, summed over all processors, in nanoseconds.
    package var steal: UInt64?
    /// The machine's load average over a minute, and its runnable threads.
    package var load: Load?

    package struct Throttling: Hashable, Sendable {
        package var periods: UInt64
        package var throttledPeriods: UInt64
        package var throttledNanoseconds: UInt64

        /// - Parameter text: The text of `cpu.stat`. Version 1 counts nanoseconds, version 2 microseconds.
        package init?(_ text: String) {
            let values = keyedNumbers(text)
            guard let periods = values["nr_periods"], let throttled = values["nr_throttled"] else { return nil }
            self.periods = periods
            throttledPeriods = throttled
            throttledNanoseconds = values["throttled_time"] ?? (values["throttled_usec"] ?? 0) &* 1000
        }

        /// The counts of the time since `before`.
        package func grown(since before: Throttling) -> Throttling {
            var change = self
            change.periods = periods.grown(since: before.periods)
            change.throttledPeriods = throttledPeriods.grown(since: before.throttledPeriods)
            change.throttledNanoseconds = throttledNanoseconds.grown(since: before.throttledNanoseconds)
            return change
        }
    }

    package struct Load: Hashable, Sendable {
        package var average: Double
        package var runnable: Int

        /// - Parameter text: `0.20 0.18 0.12 1/80 11206`
        package init?(_ text: String) {
            let fields = text.split(separator: " ")
            guard fields.count >= 4, let average = Double(fields[0]), average.isFinite,
                let runnable = fields[3].split(separator: "/").first.flatMap({ Int($0) })
            else { return nil }
            (self.average, self.runnable) = (average, runnable)
        }
    }

    /// The total of `some` in a pressure file, in microseconds.
    static func pressure(_ text: String) -> UInt64? {
        guard let line = text.split(separator: "\n").first(where: { $0.hasPrefix("some ") }) else { return nil }
        return line.split(separator: " ").last.flatMap { $0.hasPrefix("total=") ? UInt64($0.dropFirst(6)) : nil }
    }

    /// Stolen time in `/proc/stat`, in nanoseconds; the file counts hundredths of a second.
    package static func steal(_ text: String) -> UInt64? {
        let fields = text.prefix { $0 != "\n" }.split(separator: " ")
        guard fields.count > 8, fields[0] == "cpu" else { return nil }
        return UInt64(fields[8]).map { $0 &* 10_000_000 }
    }
}

/// Parses lines of a word and a number, as in the files of control groups.
func keyedNumbers(_ text: String) -> [Substring: UInt64] {
    Dictionary(
        text.split(separator: "\n").compactMap { line in
            let words = line.split(separator: " ")
            return words.count == 2 ? UInt64(words[1]).map { (words[0], $0) } : nil
        }
    ) { first, _ in first }
}

/// The change of the counts over a part of a stall.
package struct SupplyWindow: Hashable, Sendable {
    package var files: SupplyFiles
    package var before: ProcessorSupply
    package var after: ProcessorSupply
    /// The machine's processors, and how many of them the thread may use.
    package var processors: Int
    package var allowed: Int?

    /// The limit that held the process back for longest; if none did, the innermost.
    package var throttling: (quotaPercent: Double, counts: ProcessorSupply.Throttling)? {
        guard before.groups.count == files.limited.count, after.groups.count == files.limited.count else { return nil }
        let changes = files.limited.indices.compactMap { index -> (Double, ProcessorSupply.Throttling)? in
            guard let after = after.groups[index], let before = before.groups[index] else { return nil }
            return (files.limited[index].quotaPercent, after.grown(since: before))
        }
        return changes.max { $0.1.throttledNanoseconds < $1.1.throttledNanoseconds }
    }

    package var cgroupPressure: Duration? { grown(\.cgroupPressure, unit: 1000) }
    package var systemPressure: Duration? { grown(\.systemPressure, unit: 1000) }
    package var steal: Duration? { grown(\.steal, unit: 1) }

    private func grown(_ count: (ProcessorSupply) -> UInt64?, unit: UInt64) -> Duration? {
        count(after).grown(since: count(before)).map {
            .nanoseconds(Int64(clamping: $0.multipliedSaturated(by: unit)))
        }
    }
}

/// The files with the counts of the process's cgroup, once they were searched. The search takes locks of the kernel that others
/// may hold for long, so the reporter searches; the watchdog only uses the result.
package final class SupplyLocation: Sendable {
    private let files: Mutex<SupplyFiles?>
    private let lastSearch = Atomic<UInt64>(0)
    private let process: ObservedProcess

    /// - Parameters:
    ///   - process: The process of the cgroup.
    ///   - found: The result before the first search. For tests.
    package init(of process: ObservedProcess = .own, found: SupplyFiles? = nil) {
        self.process = process
        files = Mutex(found)
    }

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
        guard let mounts = readFile("/proc/thread-self/mountinfo", limit: 1 << 22) else { return }
        // Where no cgroups are mounted the file is empty, and the machine's own counts remain.
        let cgroup = readControlGroups(in: process.livingDirectory) ?? ""
        let isOurs = process == .own || cgroup == readControlGroups(in: "/proc/self")
        let located = SupplyFiles(cgroup: cgroup, mounts: mounts, isOurs: isOurs, read: readSmallFile)
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

extension UInt64 {
    /// The growth of a count; 0 if the count began again.
    package func grown(since before: UInt64) -> UInt64 { self >= before ? self - before : 0 }
}

extension UInt64? {
    /// The same for counts of which either may be unknown.
    func grown(since before: UInt64?) -> UInt64? {
        guard let self, let before else { return nil }
        return self.grown(since: before)
    }
}
