import Dispatch
import Glibc
import RunLoopKit
import StallReports
import TestSupport
import Testing

@testable import StallMonitor

/// One monitor at a time: the capture signal belongs to the process.
@Suite("Clients that wait for a loop of this process", .serialized, .captureSignal, .timeLimit(.minutes(60)))
struct VictimTests {
    @Test("Clients that connect during the stall are in its report", .repeatedWhenLate(by: .milliseconds(50)))
    func clients() throws {
        let (directory, log, worker) = (TemporaryDirectory(inMemory: true), EventLog(), StallingLoop())
        let monitor = StallMonitor.start(
            .init(directory: directory.path + "/reports", repeats: .everyStall),
            watching: [worker.loop],
            onEvent: log.handler
        )
        let listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        try #require(listen(listener, 64) == 0)
        let source = DescriptorSource(descriptor: listener) { _, _ in
            let connection = accept(listener, nil, nil)
            if connection >= 0 { close(connection) }
        }
        try worker.loop.add(source)
        // After both lines the loop has slept with the source.
        worker.perform {}
        waitUntil { worker.loop.heartbeat.pulse.isAtRest }
        let (begun, mayGoOn) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
        worker.loop.perform {
            begun.signal()
            mayGoOn.wait()
        }
        begun.wait()
        let clients = (0..<3).map { _ in Self.connect(to: listener) }
        // However late the machine is, the loop is stalled until the clients are counted.
        #expect(log.wait { !$0.began.isEmpty })
        mayGoOn.signal()
        #expect(log.wait { !$0.ended.isEmpty })
        monitor.stop()
        source.invalidate()
        worker.end()
        for client in clients { close(client) }
        close(listener)
        let victims = try #require(log.began.first?.victims)
        #expect(victims.clients == 3 && victims.unaccepted == 3 && victims.unread == 0)
        #expect(log.ended.first?.victims == victims)
    }

    private static func connect(to listener: Int32) -> Int32 {
        let client = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        var address = sockaddr_storage()
        var length = socklen_t(MemoryLayout<sockaddr_storage>.size)
        let result = unsafe withUnsafeMutablePointer(to: &address) { address in
            unsafe address.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                unsafe getsockname(listener, $0, &length)
                return unsafe Glibc.connect(client, $0, length)
            }
        }
        #expect(result == 0)
        return client
    }
}
