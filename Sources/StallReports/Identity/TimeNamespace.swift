/// By how much the calling process's time namespace moves the clocks that count from the kernel's boot: time_namespaces(7). A
/// container that was restored from a checkpoint is in one, so that its clocks continue. All are 0 outside of such a namespace.
package struct TimeNamespace: Hashable, Sendable {
    /// What it adds to `CLOCK_MONOTONIC`. Not to the times that perf_event_open(2) records.
    package var monotonicNs: Int64 = 0
    /// What it adds to `CLOCK_BOOTTIME`, and to the starts of processes in `/proc`, also of those outside.
    package var boottimeNs: Int64 = 0

    package init() {}

    /// - Parameter offsets: The text of `/proc/PID/timens_offsets`: lines with a clock, seconds and nanoseconds.
    package init(offsets: String) {
        for line in offsets.split(separator: "\n") {
            let words = line.split(separator: " ")
            guard words.count == 3, let seconds = Int64(words[1]), let nanoseconds = Int64(words[2]) else { continue }
            let offset = seconds.multipliedSaturated(by: 1_000_000_000).addingSaturated(nanoseconds)
            if words[0] == "monotonic" { monotonicNs = offset }
            if words[0] == "boottime" { boottimeNs = offset }
        }
    }

    /// Read once: it changes only for a process that has no other thread.
    package static let current: TimeNamespace = {
        // The file describes the namespace of the process's children, which after unshare(2) is another one.
        let own = readProcLink("/proc/self/ns/time")
        guard own != nil, own == readProcLink("/proc/self/ns/time_for_children") else { return TimeNamespace() }
        return TimeNamespace(offsets: readProcFile("/proc/self/timens_offsets") ?? "")
    }()
}
