import Dispatch
import Foundation
import Glibc
import RunLoopKit
import RunLoopPorts
import StallMonitor
import StallReports
import Synchronization

// A process whose main loop stalls for slightly more than the threshold, in a callout of each kind: `threshold-host DIRECTORY
// SEED MILLISECONDS… [way…]`. Prints a line of JSON for each stall: the stall, and the reports about it.

/// The ways to run code on a loop.
enum Way: String, CaseIterable, Codable {
    case source, timer, mainQueue, request, block, port, descriptor, mainActor, nestedRun, observer
}

struct Outcome: Codable {
    var way: Way
    /// The real duration of the callout, the lateness of a thread that wants to wake up every 2 ms during that time, and the time
    /// that the watchdog waited for a processor. Nanoseconds.
    var lengthNs, latenessNs, watchdogDelayNs: Int64
    var told: [Told]

    struct Told: Codable {
        var kind: String
        var culprit: String?
        /// From the callout's begin to its detection.
        var detectionNs: Int64
        var summary: String
    }
}

/// Records the result of a callout.
final class Standstill: Sendable {
    private let span = Mutex<(start: MonotonicInstant, wall: Timestamp, length: Duration)?>(nil)
    private let over = DispatchSemaphore(value: 0)
    let milliseconds: Int

    init(_ milliseconds: Int) { self.milliseconds = milliseconds }

    @inline(never)
    func standStill() {
        let (start, wall) = (MonotonicInstant.now, Timestamp.now())
        let slept = usleep(UInt32(milliseconds) * 1_000)
        span.withLock { $0 = (start, wall, start.duration(to: .now) + .nanoseconds(Int64(slept))) }
        over.signal()
    }

    func wait() -> (wall: Timestamp, length: Duration) {
        over.wait()
        return span.withLock { ($0!.wall, $0!.length) }
    }
}

/// The maximum lateness of a thread of this process since the last query, including that of a wait that should be over by now.
final class Lateness: Sendable {
    private let worst = Atomic<Int64>(0)
    /// When the thread should run again.
    private let due = Mutex(MonotonicInstant.now)

    init() {
        Thread.detachNewThread { [self] in
            while true {
                let next = MonotonicInstant.now.advanced(by: .milliseconds(2))
                due.withLock { $0 = next }
                usleep(2_000)
                let late = nanoseconds(next.duration(to: .now))
                if late > worst.load(ordering: .relaxed) { worst.store(late, ordering: .relaxed) }
            }
        }
    }

    func take() -> Int64 {
        let present = nanoseconds(due.withLock { $0.duration(to: .now) })
        return max(worst.exchange(0, ordering: .relaxed), present)
    }
}

/// The time that the watchdog has waited for a processor: proc(5), schedstat.
func watchdogDelay() -> Int64 {
    let tasks = (try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/task")) ?? []
    for task in tasks where text("/proc/self/task/\(task)/comm").hasPrefix("stall-watchdog") {
        return text("/proc/self/task/\(task)/schedstat").split(separator: " ").dropFirst().first.flatMap { Int64($0) }
            ?? 0
    }
    return 0
}

func nanoseconds(_ duration: Duration) -> Int64 { Int64(duration / .nanoseconds(1)) }

func text(_ path: String) -> String { (try? String(contentsOfFile: path, encoding: .utf8)) ?? "" }

func begin(_ way: Way, _ stall: Standstill) throws {
    let loop = EventRunLoop.main
    switch way {
    case .source:
        let source = EventSource { source in
            source.invalidate()
            stall.standStill()
        }
        loop.add(source)
        source.signalAndWake()
    case .timer: loop.add(EventTimer(after: .milliseconds(3)) { _ in stall.standStill() })
    case .mainQueue: DispatchQueue.main.async { stall.standStill() }
    case .request: loop.performAsSource { stall.standStill() }
    case .block: loop.perform { stall.standStill() }
    case .port: try ports.remote.send(PortMessage(id: Int32(stall.milliseconds)))
    case .descriptor:
        var ends: [Int32] = [0, 0]
        guard unsafe pipe(&ends) == 0 else { return }
        let (input, output) = (ends[0], ends[1])
        try loop.add(
            DescriptorSource(descriptor: input) { source, _ in
                source.invalidate()
                stall.standStill()
                close(input)
                close(output)
            }
        )
        var byte: UInt8 = 1
        unsafe write(output, &byte, 1)
    case .mainActor: Task { @MainActor in stall.standStill() }
    case .nestedRun:
        loop.perform {
            let keepAlive = EventTimer(after: .seconds(60)) { _ in }
            EventRunLoop.main.add(keepAlive, to: "nested")
            EventRunLoop.main.perform(in: "nested") {
                stall.standStill()
                EventRunLoop.main.stop()
            }
            EventRunLoop.main.run(mode: "nested", for: .seconds(20))
            keepAlive.invalidate()
        }
    case .observer:
        loop.add(LoopObserver(activities: .beforeWaiting, repeats: false) { _, _ in stall.standStill() })
        loop.wakeUp()
    }
}

/// The reports that the monitor has announced so far.
final class Told: Sendable {
    private let reports = Mutex<[StallReport]>([])
    private let arrived = DispatchSemaphore(value: 0)

    func hear(_ event: StallEvent) {
        guard case .ended(let report) = event else { return }
        reports.withLock { $0.append(report) }
        arrived.signal()
    }

    /// The reports up to a moment at which no further one can arrive: waits for the first one. The time limit only ends a hang: a
    /// report that came after it would be taken for one of the next stall.
    func take() -> [StallReport] {
        _ = arrived.wait(timeout: .now() + .seconds(60))
        usleep(120_000)
        while arrived.wait(timeout: .now()) == .success {}
        return reports.withLock { reports in
            defer { reports = [] }
            return reports
        }
    }
}

let current = Mutex<Standstill?>(nil)
let arguments = CommandLine.arguments.dropFirst()
guard arguments.count >= 3, let directory = arguments.first,
    let seed = arguments.dropFirst().first.flatMap({ UInt64($0) })
else {
    print("usage: threshold-host DIRECTORY SEED MILLISECONDS… [WAY…]")
    exit(2)
}
let local = LocalPort { _ in current.withLock { $0 }?.standStill() }
try EventRunLoop.main.add(local)
let ports = try (local: local, remote: RemotePort(to: local))
let lengths = arguments.dropFirst(2).compactMap { Int($0) }
let named = arguments.dropFirst(2).compactMap(Way.init(rawValue:))
let ways = named.isEmpty ? Way.allCases : named
let told = Told()
let lateness = Lateness()
// A hundred stalls a minute would exceed the budget for captures.
let cost = StallMonitor.CostLimits(processorShare: 1, heldShare: 1)
let monitor = StallMonitor.start(.init(directory: directory, cost: cost, repeats: .everyStall), onEvent: told.hear)

Thread.detachNewThread {
    var state = seed
    for length in lengths {
        for way in ways {
            // A random phase relative to the watchdog's ticks.
            state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
            usleep(UInt32(state >> 33) % 100_000)
            let stall = Standstill(length)
            current.withLock { $0 = stall }
            let delay = watchdogDelay()
            _ = lateness.take()
            do { try begin(way, stall) } catch { fatalError("\(way): \(error)") }
            let (wall, spent) = stall.wait()
            let (late, waited) = (lateness.take(), watchdogDelay() - delay)
            let reports = told.take()
            let outcome = Outcome(
                way: way,
                lengthNs: nanoseconds(spent),
                latenessNs: late,
                watchdogDelayNs: waited,
                told: reports.map {
                    .init(
                        kind: $0.kind.rawValue,
                        culprit: $0.culprit?.function,
                        detectionNs: $0.detectedAt.nanoseconds(since: wall),
                        summary: $0.cause.summary
                    )
                }
            )
            print(String(decoding: (try? JSONEncoder().encode(outcome)) ?? Data(), as: UTF8.self))
        }
    }
    monitor.stop()
    exit(0)
}
EventRunLoop.main.add(EventTimer(after: .seconds(3_600)) { _ in })
EventRunLoop.main.run()
