import Foundation
import Glibc
import Synchronization

/// Ways to stall a thread. Each is a separate function, which reports must name as the culprit. Each does some work
/// after its last call: a tail call would remove it from the stack.
enum Stall: String, CaseIterable {
    case compute, deep, sleep, read, lock, disk, dns, short, calls, nested

    func make(_ milliseconds: UInt64) {
        let end = clockTime() + milliseconds * 1_000_000
        switch self {
        case .compute: computeUntil(end)
        case .deep: computeDeep(40, until: end)
        case .sleep: sleepFor(milliseconds)
        case .read: readFromPipe(milliseconds)
        case .lock: waitForLock(milliseconds)
        case .disk: syncFileUntil(end)
        case .dns: lookUpName(milliseconds)
        case .short: sleepShortlyUntil(end)
        case .calls: callUntil(end)
        case .nested: pollShortlyUntil(end)
        }
    }
}

/// CLOCK_MONOTONIC in nanoseconds.
func clockTime() -> UInt64 {
    var time = timespec()
    clock_gettime(CLOCK_MONOTONIC, &time)
    return UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec)
}

/// Keeps a call from being the last thing that a function does.
private let sum = Atomic<UInt64>(0)

private func add(_ number: UInt64) { sum.wrappingAdd(number, ordering: .relaxed) }

@inline(never)
func computeUntil(_ end: UInt64) {
    var value: UInt64 = 0
    while clockTime() < end { for number in 0..<1000 as Range<UInt64> { value = value &* 31 &+ number } }
    add(value)
}

@inline(never)
func computeDeep(_ depth: Int, until end: UInt64) {
    if depth > 0 { computeDeep(depth - 1, until: end) } else { computeUntil(end) }
    add(1)
}

@inline(never)
func sleepFor(_ milliseconds: UInt64) {
    usleep(UInt32(milliseconds) * 1000)
    add(1)
}

@inline(never)
func readFromPipe(_ milliseconds: UInt64) {
    let pipe = Pipe()
    Thread.detachNewThread {
        usleep(UInt32(milliseconds) * 1000)
        try? pipe.fileHandleForWriting.write(contentsOf: Data([1]))
    }
    var byte: UInt8 = 0
    add(UInt64(Glibc.read(pipe.fileHandleForReading.fileDescriptor, &byte, 1)))
}

private let table = Mutex<UInt64>(0)

@inline(never)
func holdLock(_ milliseconds: UInt64, _ holds: DispatchSemaphore) {
    table.withLock { value in
        holds.signal()
        usleep(UInt32(milliseconds) * 1000)
        value += 1
    }
    add(1)
}

@inline(never)
func waitForLock(_ milliseconds: UInt64) {
    let holds = DispatchSemaphore(value: 0)
    Thread.detachNewThread { holdLock(milliseconds, holds) }
    holds.wait()
    add(table.withLock { $0 })
}

@inline(never)
func syncFileUntil(_ end: UInt64) {
    var path = Array("\(NSTemporaryDirectory())/loop-server-XXXXXX".utf8CString)
    let file = mkstemp(&path)
    unlink(path)
    let block = [UInt8](repeating: 1, count: 1 << 20)
    while clockTime() < end {
        add(UInt64(clamping: pwrite(file, block, block.count, 0)))
        fsync(file)
    }
    close(file)
}

/// Looks up a name whose server takes this long to answer that it does not exist.
@inline(never)
func lookUpName(_ milliseconds: UInt64) {
    var found: UnsafeMutablePointer<addrinfo>?
    if getaddrinfo("ms\(milliseconds).trial.", "80", nil, &found) == 0 { freeaddrinfo(found) }
    add(1)
}

@inline(never)
func sleepShortlyUntil(_ end: UInt64) {
    while clockTime() < end { usleep(5_000) }
    add(1)
}

@inline(never)
func callUntil(_ end: UInt64) {
    var byte: UInt8 = 0
    let file = open("/proc/self/cmdline", O_RDONLY)
    while clockTime() < end { add(UInt64(pread(file, &byte, 1, 0))) }
    close(file)
}

/// Waits as a blocking client does on the loop: in poll(2), again and again.
@inline(never)
func pollShortlyUntil(_ end: UInt64) {
    let pipe = Pipe()
    while clockTime() < end {
        var entry = pollfd(fd: pipe.fileHandleForReading.fileDescriptor, events: Int16(POLLIN), revents: 0)
        poll(&entry, 1, 5)
    }
    add(1)
}
