import Glibc
import RunLoopKit
import StallMonitor
import Synchronization

// Measures the cost of watching many loops: the processor time of the monitor's threads, as a share of one core.
//
//   WatchLoad [LOOPS] [BUSY] [SECONDS]       10000 100 10
//
// The loops have no threads, only heartbeats. One thread turns the busy ones: it makes each rest and leave its rest repeatedly,
// so that each rings as often as a loop can.

let numbers = CommandLine.arguments.dropFirst().map { Int($0) ?? 0 }
let (all, busy, seconds) = (numbers.first ?? 10_000, numbers.dropFirst().first ?? 100, numbers.dropFirst(2).first ?? 10)

final class BeatingLoop: WatchableLoop {
    let label: String
    let heartbeat = LoopHeartbeat()
    var thread: LoopThread? { nil }
    init(_ label: String) { self.label = label }
    func modeName(at index: Int) -> String? { nil }
}

/// The processor time of the process's thread with this name, in nanoseconds (proc(5), schedstat).
func processorTime(ofThread name: String) -> UInt64? {
    guard let directory = unsafe opendir("/proc/self/task") else { return nil }
    defer { unsafe closedir(directory) }
    while let entry = unsafe readdir(directory) {
        let id = unsafe withUnsafePointer(to: &entry.pointee.d_name) {
            unsafe $0.withMemoryRebound(to: CChar.self, capacity: 256) { unsafe String(cString: $0) }
        }
        guard firstLine("/proc/self/task/\(id)/comm") == name else { continue }
        return firstLine("/proc/self/task/\(id)/schedstat").flatMap { UInt64($0.split(separator: " ")[0]) }
    }
    return nil
}

func firstLine(_ path: String) -> String? {
    guard let file = unsafe fopen(path, "r") else { return nil }
    defer { unsafe fclose(file) }
    var line = [CChar](repeating: 0, count: 256)
    guard unsafe fgets(&line, 256, file) != nil else { return nil }
    return String(decoding: line.prefix { $0 != 0 && $0 != 10 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
}

func sleep(milliseconds: Int) {
    var time = timespec(tv_sec: milliseconds / 1_000, tv_nsec: milliseconds % 1_000 * 1_000_000)
    unsafe nanosleep(&time, nil)
}

/// Turns the busy loops until `end`, and returns the number of turns.
func turnBusyOnes(_ loops: [BeatingLoop], until end: MonotonicInstant) -> Int {
    var turns = 0
    while MonotonicInstant.now < end {
        for loop in loops {
            for phase in [LoopPhase.afterWaiting, .beforeTimers, .beforeSources, .beforeWaiting, .waiting] {
                loop.heartbeat.publish(phase)
            }
            // Busy at most times at which it is sampled.
            loop.heartbeat.publish(.afterWaiting)
        }
        turns += loops.count
        sleep(milliseconds: 5)
    }
    return turns
}

let loops = (0..<all).map { BeatingLoop($0 < busy ? "busy" : "asleep") }
let monitor = StallMonitor.start(.init(directory: "/tmp/watch-load-\(getpid())"), watching: loops)
sleep(milliseconds: 1_000)
let threads = ["stall-watchdog", "stall-reporter"]
let before = threads.map { processorTime(ofThread: $0) ?? 0 }
let start = MonotonicInstant.now
let turns = turnBusyOnes(Array(loops[..<min(busy, all)]), until: start.advanced(by: .seconds(seconds)))
let length = start.duration(to: .now) / .nanoseconds(1)
let shares = zip(threads, before).map { name, before in Double((processorTime(ofThread: name) ?? 0) - before) / length }
monitor.stop()
print("\(all) loops, \(busy) of them busy with \(turns) turns in \(seconds) s")
for (name, share) in zip(threads, shares) { print("\(name) \((share * 100_000).rounded() / 1_000) % of a core") }
