import Glibc
import RunLoopKit
import StallReports

/// The kernel's counts for a thread at one moment, from `/proc/PID/task/TID` (proc(5)).
package struct ThreadEvidence: Hashable, Sendable {
    /// `R` running or runnable, `S` interruptible wait, `D` disk wait, `T` stopped, `Z` dead.
    package var state: Character
    /// The thread's name, 15 bytes at most.
    package var name: String
    /// Page faults that had to wait for a disk.
    package var majorFaults: UInt64
    /// Time on a CPU, in nanoseconds.
    var cpuNanoseconds: UInt64
    /// Time ready to run without a CPU, in nanoseconds.
    var runDelayNanoseconds: UInt64
    /// Time on a CPU in steps of 10 ms, in the program and in the kernel. Nil if the kernel does not report it.
    var userTicks: UInt64?
    var systemTicks: UInt64?
    /// Time waited for block devices, in steps of 10 ms. Stays 0 if the kernel does not count it.
    var blockIOTicks: UInt64?

    /// Reads the counts. Nil if the thread has ended, or without /proc. Any thread; two files with three system calls each.
    package static func read(threadID: Int32, of process: ObservedProcess = .own) -> ThreadEvidence? {
        let task = "\(process.directory)/task/\(threadID)/"
        guard let stat = readSmallFile(task + "stat"), let schedule = readSmallFile(task + "schedstat") else {
            return nil
        }
        return ThreadEvidence(stat: stat, schedstat: schedule)
    }

    /// Parses the texts of the two files.
    package init?(stat: String, schedstat: String) {
        guard let name = statName(stat) else { return nil }
        let fields = statFields(stat)
        let times = schedstat.split(whereSeparator: \.isWhitespace)
        // Field 3 is the state and field 12 the major faults; the first two fields ended at the parenthesis.
        guard fields.count > 9, let state = fields[0].first, let faults = UInt64(fields[9]) else { return nil }
        guard times.count >= 2, let cpu = UInt64(times[0]), let delay = UInt64(times[1]) else { return nil }
        self.state = state
        self.name = String(name)
        (self.majorFaults, runDelayNanoseconds) = (faults, delay)
        // Fields 14, 15 and 42.
        userTicks = fields.count > 12 ? UInt64(fields[11]) : nil
        systemTicks = fields.count > 12 ? UInt64(fields[12]) : nil
        blockIOTicks = fields.count > 39 ? UInt64(fields[39]) : nil
        // Without CONFIG_SCHED_INFO the kernel says 0 of each thread. Then the time on a CPU is known in steps of 10 ms.
        let ticks = (userTicks ?? 0).addingSaturated(systemTicks ?? 0)
        cpuNanoseconds = times.prefix(3).allSatisfy { $0 == "0" } ? ticks.multipliedSaturated(by: 10_000_000) : cpu
    }
}

/// The change of a thread's counts over a part of its stall.
package struct EvidenceWindow: Hashable, Sendable {
    package var length: Duration
    package var before: ThreadEvidence
    package var after: ThreadEvidence
    /// How much processor time was available. Nil if it was not read.
    package var supply: SupplyWindow?
    /// The time that is not part of `length` because the watcher did not run. The counts include what the thread did then.
    private(set) var unobserved = Duration.zero

    package init(length: Duration, before: ThreadEvidence, after: ThreadEvidence, supply: SupplyWindow? = nil) {
        (self.length, self.before, self.after, self.supply) = (length, before, after, supply)
    }

    // The number of a thread that has ended may be that of a new one, whose counts begin again.
    package var cpu: Duration {
        .nanoseconds(Int64(clamping: after.cpuNanoseconds.grown(since: before.cpuNanoseconds)))
    }
    /// The time ready to run without a CPU. The kernel counts such a wait when it ends, so the count can contain time before the
    /// window.
    package var runDelay: Duration {
        min(length, .nanoseconds(Int64(clamping: after.runDelayNanoseconds.grown(since: before.runDelayNanoseconds))))
    }
    package var majorFaults: UInt64 { after.majorFaults.grown(since: before.majorFaults) }

    /// The same window without some excluded time.
    ///
    /// - Parameter unobserved: The part of it in which the watcher did not run, and perhaps the whole machine was stopped.
    package func leavingOut(_ time: Duration, unobserved: Duration = .zero) -> EvidenceWindow {
        var window = self
        window.length = max(length - time, min(length, cpu + runDelay))
        window.unobserved = min(unobserved, length - window.length)
        return window
    }

    /// The same window if its counts, which were read this long after its end, still show what the thread did in it. If they were read late, it
    /// must be certain whether it slept for most of the window, whatever it has done since. Otherwise nil.
    package func conclusive(readLateBy lateness: Duration) -> EvidenceWindow? {
        let awake = cpu + runDelay
        let isCertain = awake * 2 <= length || (awake - lateness) * 2 >= length
        return lateness * 4 <= length || isCertain ? self : nil
    }
}

extension EvidenceWindow {
    /// The time on a CPU, divided into program and kernel by the kernel's ticks. Nil if there was no tick.
    package var cpuParts: (user: Duration, system: Duration)? {
        guard let user = after.userTicks.grown(since: before.userTicks),
            let system = after.systemTicks.grown(since: before.systemTicks), user > 0 || system > 0
        else { return nil }
        // Whole nanoseconds, as in a report, so that the two values add up to the total.
        let userTime = Duration.nanoseconds((cpu * (Double(user) / (Double(user) + Double(system)))).nanoseconds)
        return (userTime, cpu - userTime)
    }

    /// Time waited for block devices, which the kernel counts at the end of a wait, too. Nil if it does not count it, or if the thread
    /// has never waited for one.
    package var blockIO: Duration? {
        guard after.blockIOTicks != 0 else { return nil }
        return after.blockIOTicks.grown(since: before.blockIOTicks).map {
            min(length, .nanoseconds(Int64(clamping: $0.multipliedSaturated(by: 10_000_000))))
        }
    }

    /// Time that was neither on a CPU nor ready without one.
    package var waited: Duration { max(.zero, length - cpu - runDelay) }
}

/// The processor time of the calling thread (clock_gettime(2)).
package enum ThreadClock {
    /// Nanoseconds since the thread began. One system call.
    package static var nanoseconds: UInt64 {
        var time = timespec()
        unsafe clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
        return UInt64(clamping: time.tv_sec) &* 1_000_000_000 &+ UInt64(clamping: time.tv_nsec)
    }
}

/// The process whose threads, descriptors and memory are read: this one, or another one that is watched from outside.
package struct ObservedProcess: Hashable, Sendable {
    /// Nil for this process.
    package let otherID: Int32?

    package init(otherID: Int32?) { self.otherID = otherID }

    /// This process.
    package static let own = ObservedProcess(otherID: nil)

    /// Its directory: proc(5).
    package var directory: String { otherID.map { "/proc/\($0)" } ?? "/proc/self" }
    /// The directory that shows its memory and descriptors, even after its first thread has ended.
    package var livingDirectory: String { otherID.map { ProcessIdentity.directory(of: $0) } ?? "/proc/thread-self" }
    package var processID: Int32 { otherID ?? getpid() }

    /// Whether the numbers of processes and threads in its memory mean the same here: they are those of its own pid namespace
    /// (pid_namespaces(7)). Up to two system calls.
    package var sharesOurNumbers: Bool { otherID == nil || namespace == Self.own.namespace }

    private var namespace: ino_t? {
        var status = stat()
        return unsafe stat(livingDirectory + "/ns/pid", &status) == 0 ? status.st_ino : nil
    }
}
