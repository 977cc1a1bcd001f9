import Foundation
import RunLoopKit
import StallMonitor
import StallReports
import Synchronization
import TestSupport
import Testing

/// A third-party event loop, watched as any client can: all imports of this file are plain ones. It reads a pipe with
/// poll(2).
private final class PipeLoop: WatchableLoop {
    let label = "pipe loop"
    let heartbeat = LoopHeartbeat()
    private let (reader, writer): (Int32, Int32)
    private let identity = Mutex<LoopThread?>(nil)

    var thread: LoopThread? { identity.withLock { $0 } }

    func modeName(at index: Int) -> String? { nil }

    init() {
        var ends: [Int32] = [0, 0]
        precondition(unsafe pipe(&ends) == 0)
        for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        (reader, writer) = (ends[0], ends[1])
        let ready = DispatchSemaphore(value: 0)
        startThread { [self] in
            let own = LoopThread.current()
            identity.withLock { $0 = LoopThread(id: own.id, stack: own.stack) }
            heartbeat.publish(.waiting)
            ready.signal()
            run()
            heartbeat.end()
        }
        ready.wait()
    }

    /// Makes the loop sleep in a callout. 0 ends it.
    func stall(deciseconds: UInt8) { _ = unsafe withUnsafePointer(to: deciseconds) { unsafe write(writer, $0, 1) } }

    private func run() {
        var turn: UInt64 = 0
        while true {
            var request = pollfd(fd: reader, events: Int16(POLLIN), revents: 0)
            _ = unsafe poll(&request, 1, -1)
            turn += 1
            heartbeat.publish(.afterWaiting, modeIndex: 0, turn: turn)
            var length: UInt8 = 0
            guard unsafe read(reader, &length, 1) == 1, length > 0 else { break }
            serveSlowly(deciseconds: length)
            heartbeat.publish(.waiting, modeIndex: 0, turn: turn)
        }
        for end in [reader, writer] { close(end) }
    }
}

@inline(never)
private func serveSlowly(deciseconds: UInt8) { usleep(useconds_t(deciseconds) * 100_000) }

/// One monitor at a time: the capture signal belongs to the process.
@Suite("A client's own event loop", .serialized, .captureSignal, .timeLimit(.minutes(60)))
struct ClientLoopTests {
    @Test(
        "it is watched through the public API alone, with its stack, evidence and exact length",
        .repeatedWhenLate(by: .milliseconds(50))
    )
    func publicAPI() throws {
        let (directory, log, loop) = (TemporaryDirectory(inMemory: true), EventLog(), PipeLoop())
        let monitor = StallMonitor.start(
            StallMonitor.Configuration(directory: directory.path + "/reports", repeats: .everyStall),
            watching: .loops([loop]),
            onEvent: log.handler
        )
        loop.stall(deciseconds: 6)
        #expect(log.wait { !$0.ended.isEmpty })
        let thread = try #require(loop.thread)
        monitor.stop()
        loop.stall(deciseconds: 0)

        let report = try #require(log.ended.first)
        #expect(report.watched.label == "pipe loop" && report.thread.id == thread.id)
        #expect(report.durationNs >= 600_000_000 && report.durationMinNs == nil)
        let stack = try #require(report.stacks.first)
        #expect(stack.complete && stack.frames.contains { $0.function?.contains("serveSlowly") == true }, "\(report)")
        #expect(report.cause.verdict == .blocked && report.cause.evidence != nil, "\(report.cause)")
    }
}
