import CMonitorShims
import Glibc
package import RunLoopKit
import StallReports
import Synchronization

/// The files with the counts of the process's cgroup, once they were searched. The search takes locks of the kernel that others
/// may hold for long, so the reporter does it; the watchdog only uses the result.
package final class SupplyLocation: Sendable {
    private let files = Mutex<SupplyFiles?>(nil)
    private let lastSearch = Atomic<UInt64>(0)
    private let process: ObservedProcess

    /// - Parameter process: the process of the cgroup.
    package init(of process: ObservedProcess = .own) { self.process = process }

    /// The files found so far. Nil before the first search.
    package var found: SupplyFiles? { files.withLock { $0 } }

    /// Searches, unless that was done within the last ten seconds: the process may have been moved, or its limits changed. Not on
    /// the watchdog's thread, once it watches.
    package func search() {
        let (now, last) = (MonotonicInstant.now.nanoseconds, lastSearch.load(ordering: .relaxed))
        guard last == 0 || now - last >= 10_000_000_000 else { return }
        lastSearch.store(now, ordering: .relaxed)
        locate()
    }

    /// Searches, even if that was done before or is being done. When it returns there is a result, if there can be one.
    package func locate() {
        guard let cgroup = readSmallFile(process.livingDirectory + "/cgroup"),
            let mounts = readFile("/proc/self/mountinfo", limit: 1 << 22)
        else { return }
        let located = SupplyFiles(cgroup: cgroup, mounts: mounts, read: { readSmallFile($0) })
        files.withLock { $0 = located }
    }
}

/// Reads the kernel's counts for the processors. Confined to the watchdog's thread.
package struct SupplyMeter {
    /// The files of the reading. Two readings can be compared if their files are the same.
    package typealias Reading = (files: SupplyFiles, supply: ProcessorSupply)

    package let location: SupplyLocation
    private var last: (time: MonotonicInstant, reading: Reading)?
    /// On a machine with hundreds of processors, reading `/proc/stat` takes long.
    private var readsSteal = true

    /// The longest that reading the stolen time may take, in nanoseconds of processor time.
    private static let stealBudget: UInt64 = 2_000_000

    package init(location: SupplyLocation) {
        self.location = location
    }

    /// The present counts. One reading is used for all calls within a short time: a look at many loops reads once.
    package mutating func reading(at time: MonotonicInstant, noOlderThan age: Duration = .milliseconds(5)) -> Reading? {
        if let last, time - last.time <= age { return last.reading }
        guard let files = location.found else { return nil }
        var supply = ProcessorSupply()
        supply.groups = files.limited.map(\.throttling)
        supply.cgroupPressure = files.pressure.flatMap({ readSmallFile($0) }).flatMap(ProcessorSupply.pressure)
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
