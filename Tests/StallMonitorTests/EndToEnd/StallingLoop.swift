import Dispatch
import Glibc
import RunLoopKit
import StallDetection
import StallMonitor
import StallReports
import Synchronization
import TestSupport
import Testing

/// A thread that runs its loop, for tests to stall.
final class StallingLoop: Sendable {
    let loop: EventRunLoop
    private let keepAlive: EventSource

    init() {
        let made = Mutex<(EventRunLoop, EventSource)?>(nil)
        let ready = DispatchSemaphore(value: 0)
        startThread {
            let loop = EventRunLoop.current
            let source = EventSource { _ in }
            loop.add(source)
            made.withLock { $0 = (loop, source) }
            ready.signal()
            loop.run()
        }
        ready.wait()
        (loop, keepAlive) = made.withLock { $0! }
    }

    /// Has a block do work on the loop's thread; returns when the work is done.
    func perform(_ work: @escaping @Sendable () -> Void) {
        let done = DispatchSemaphore(value: 0)
        loop.perform {
            work()
            done.signal()
        }
        done.wait()
    }

    /// Lets the thread end.
    func end() {
        keepAlive.invalidate()
        loop.stop()
    }
}

extension StallingLoop {
    /// Stalls the loop behind a lock, and ends the stall by `release` once it is reported. Ends the monitor and the loop.
    ///
    /// - Returns: the report.
    func lockReport(
        of stall: @escaping @Sendable () -> Void,
        from monitor: StallMonitor,
        _ log: EventLog,
        release: () -> Void
    ) throws -> StallReport {
        loop.perform(stall)
        let isReported = log.wait { $0.began.contains { $0.cause.lock != nil } }
        release()
        let id = log.began.first { $0.cause.lock != nil }?.id
        let isOver = isReported && log.wait { $0.ended.contains { $0.id == id } }
        monitor.stop()
        end()
        #expect(isReported && isOver, "\(log.began.map(\.cause))")
        return try #require(log.ended.first { $0.id == id })
    }
}

extension StallMonitor.Configuration {
    /// Each stall of 100 ms is reported, with its lock.
    static func everyLock(in directory: TemporaryDirectory) -> Self {
        Self(
            directory: directory.path + "/reports",
            rule: StallRule(tick: .milliseconds(20), ticks: 5),
            repeats: .everyStall,
            ownCode: OwnCode(modules: ["StallMonitorTests"])
        )
    }
}

// The stalls, each in a function whose name must be found. They end with work, so that none of their calls is a tail
// call.

@inline(never)
func stallInSleep(_ milliseconds: Int) -> Int {
    var time = timespec(tv_sec: milliseconds / 1000, tv_nsec: milliseconds % 1000 * 1_000_000)
    let result = unsafe nanosleep(&time, nil)
    return Int(result) &+ milliseconds
}

@inline(never)
func stallByComputing(_ milliseconds: Int) -> Int {
    let end = MonotonicInstant.now.advanced(by: .milliseconds(milliseconds))
    var sum = 1
    while MonotonicInstant.now < end {
        for step in 0..<10_000 { sum = sum &* 31 &+ step }
    }
    return sum
}

@inline(never)
func stallInRead(_ milliseconds: Int) -> Int {
    var ends: [Int32] = [0, 0]
    precondition(unsafe pipe(&ends) == 0)
    // Not inherited by processes that other tests start meanwhile: the read would last as long as they do.
    for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
    let (input, output) = (ends[0], ends[1])
    startThread {
        _ = stallInSleep(milliseconds)
        close(output)
    }
    var byte: UInt8 = 0
    let count = unsafe read(input, &byte, 1)
    close(input)
    return count &+ milliseconds
}
