import Glibc

/// What the kernel says of a thread at one moment, from `/proc/PID/task/TID` (proc(5)).
package struct ThreadEvidence: Hashable, Sendable {
    /// `R` running or runnable, `S` interruptible wait, `D` disk wait, `T` stopped, `Z` dead.
    package var state: Character
    /// The thread's own name, 15 bytes at most.
    package var name: String
    /// Page faults that had to wait for a disk.
    package var majorFaults: UInt64
    /// Time on a CPU, nanoseconds.
    var cpuNanoseconds: UInt64
    /// Time runnable but without a CPU, nanoseconds.
    var runDelayNanoseconds: UInt64
    /// Of the time on a CPU, in steps of 10 ms: in the program, in the kernel. Nil where the kernel does not say.
    var userTicks: UInt64?
    var systemTicks: UInt64?
    /// Time waited for block devices, in steps of 10 ms. Stays 0 where the kernel does not count it.
    var blockIOTicks: UInt64?

    /// Reads it. Nil when the thread is gone or /proc is not there. Any thread; four system calls a file, two files.
    package static func read(threadID: Int32, of process: ObservedProcess = .own) -> ThreadEvidence? {
        let task = "\(process.directory)/task/\(threadID)/"
        guard let stat = readSmallFile(task + "stat"), let schedule = readSmallFile(task + "schedstat") else {
            return nil
        }
        return ThreadEvidence(stat: stat, schedstat: schedule)
    }

    /// Parses the two files' texts. The name may hold spaces and parentheses, so fields are counted from the last `)`.
    package init?(stat: String, schedstat: String) {
        guard let open = stat.firstIndex(of: "("), let close = stat.lastIndex(of: ")"), open < close else { return nil }
        let fields = stat[stat.index(after: close)...].split(separator: " ")
        let times = schedstat.split(whereSeparator: \.isWhitespace)
        // Field 3 is the state and field 12 the major faults; the first two fields ended at the parenthesis.
        guard fields.count > 9, let state = fields[0].first, let faults = UInt64(fields[9]) else { return nil }
        guard times.count >= 2, let cpu = UInt64(times[0]), let delay = UInt64(times[1]) else { return nil }
        self.state = state
        self.name = String(stat[stat.index(after: open)..<close])
        self.majorFaults = faults
        self.cpuNanoseconds = cpu
        self.runDelayNanoseconds = delay
        // Fields 14, 15 and 42.
        userTicks = fields.count > 12 ? UInt64(fields[11]) : nil
        systemTicks = fields.count > 12 ? UInt64(fields[12]) : nil
        blockIOTicks = fields.count > 39 ? UInt64(fields[39]) : nil
    }
}

/// What changed for a thread over a stretch of its stall.
package struct EvidenceWindow: Hashable, Sendable {
    package var length: Duration
    package var before: ThreadEvidence
    package var after: ThreadEvidence
    /// Who else wanted the processors, and what forbade them. Nil when nobody looked.
    package var supply: SupplyWindow?

    package init(length: Duration, before: ThreadEvidence, after: ThreadEvidence, supply: SupplyWindow? = nil) {
        (self.length, self.before, self.after, self.supply) = (length, before, after, supply)
    }

    package var cpu: Duration { .nanoseconds(Int64(clamping: after.cpuNanoseconds &- before.cpuNanoseconds)) }
    package var runDelay: Duration {
        .nanoseconds(Int64(clamping: after.runDelayNanoseconds &- before.runDelayNanoseconds))
    }
    package var majorFaults: UInt64 { after.majorFaults &- before.majorFaults }

    /// The same account of a window without a time in which the thread could do nothing, or whose doings do not count.
    package func leavingOut(_ time: Duration) -> EvidenceWindow {
        var window = self
        window.length = max(length - time, min(length, cpu + runDelay))
        return window
    }
}

/// The text of a /proc file of at most 4 KiB. Nil when it cannot be read.
package func readSmallFile(_ path: String) -> String? {
    readStart(of: path)
}

/// The text that a /proc file begins with, of `limit` bytes at most. Nil when it cannot be read. Not the watchdog's thread.
func readStart(of path: String, limit: Int) -> String? {
    let descriptor = unsafe open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)
    guard descriptor >= 0 else { return nil }
    defer { close(descriptor) }
    let bytes = unsafe [UInt8](unsafeUninitializedCapacity: limit) { buffer, filled in
        // The kernel gives a page at a time.
        while filled < limit {
            let count = unsafe read(descriptor, buffer.baseAddress! + filled, limit - filled)
            if count <= 0 { break }
            filled += count
        }
    }
    return bytes.isEmpty ? nil : String(decoding: bytes, as: UTF8.self)
}

/// The text of a file of at most `limit` bytes. Nil when it cannot be read, or is longer. Not the watchdog's thread.
func readFile(_ path: String, limit: Int) -> String? {
    let descriptor = unsafe open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)
    guard descriptor >= 0 else { return nil }
    defer { close(descriptor) }
    var bytes: [UInt8] = []
    while bytes.count <= limit {
        let start = bytes.count
        bytes += repeatElement(0, count: 16384)
        let count = unsafe bytes.withUnsafeMutableBytes { unsafe read(descriptor, $0.baseAddress! + start, 16384) }
        bytes.removeLast(16384 - max(0, count))
        if count < 0 { return nil }
        if count == 0 { return String(decoding: bytes, as: UTF8.self) }
    }
    return nil
}

private func readStart(of path: String) -> String? {
    let descriptor = unsafe open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)
    guard descriptor >= 0 else { return nil }
    defer { close(descriptor) }
    return unsafe withUnsafeTemporaryAllocation(byteCount: 4096, alignment: 1) { buffer in
        let count = unsafe read(descriptor, buffer.baseAddress, buffer.count)
        guard count > 0 else { return nil }
        return unsafe String(decoding: buffer[..<count], as: UTF8.self)
    }
}
