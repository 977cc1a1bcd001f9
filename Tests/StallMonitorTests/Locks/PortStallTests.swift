import CLocks
import Glibc
import RunLoopKit
import RunLoopPorts
import StackCapture
import StallDetection
import StallReports
import Synchronization
import TestSupport
import Testing

@testable import StallMonitor

@Suite(
    "A stall behind a port",
    .serialized,
    .captureSignal,
    .timeLimit(.minutes(60)),
    .repeatedWhenLate(by: .milliseconds(20))
)
struct PortStallTests {
    private let directory = TemporaryDirectory(inMemory: true)
    private let log = EventLog()
    private let worker = StallingLoop()
    private let replies = EventRunLoop.Mode("replies")

    /// The report of a stall of the worker's loop behind a lock. `release` ends the stall once it is reported.
    private func report(of stall: @escaping @Sendable () -> Void, release: () -> Void) throws -> StallReport {
        let configuration = StallMonitor.Configuration.everyLock(in: directory)
        let monitor = StallMonitor.start(configuration, watching: [worker.loop], onEvent: log.handler)
        return try worker.lockReport(of: stall, from: monitor, log, release: release)
    }

    /// A loop that waits for a reply of another port, in a mode of its own, by the time that this returns.
    private func ask(_ remote: RemotePort, on asking: WorkerThread, in mode: EventRunLoop.Mode) throws {
        asking.loop.perform { _ = try? remote.request(PortMessage(), receiveTimeout: nil, mode: mode) }
        let thread = try #require(asking.loop.thread).id
        waitUntil { asking.loop.currentMode == mode && isInEpoll(thread) }
    }

    /// Occupies the thread until the gate opens, by the time that this returns: its loop serves no port meanwhile.
    private func occupy(_ thread: WorkerThread, until gate: Int32) throws {
        let isOccupied = TickSemaphore()
        thread.loop.perform { _ = holdQueue(gate) { isOccupied.signal() } }
        try #require(isOccupied.wait(until: .now + .seconds(60)))
        waitUntil(try #require(thread.loop.thread).id, isIn: "read")
    }

    private func isInEpoll(_ thread: Int32) -> Bool {
        StackCapturer.sighting(ofThread: thread)?.systemCall?.name?.hasPrefix("epoll") == true
    }

    @Test("A loop behind one that waits for a port's reply leads to the loop that has the port, and is blocked")
    func reply() throws {
        let gate = gate_create()
        let (asking, answering) = (try WorkerThread(name: "asking"), try WorkerThread(name: "answering"))
        let owner = try #require(answering.loop.thread).id
        let port = LocalPort { try? $0.reply(PortMessage()) }
        try answering.loop.add(port)
        try occupy(answering, until: gate)
        try ask(RemotePort(to: port), on: asking, in: replies)
        let report = try report(of: { _ = try? asking.loop.performAndWait { 1 } }) { gate_open(gate) }
        for thread in [asking, answering] { thread.stop() }
        let chain = try #require(report.cause.chain, "\(report.cause)")
        #expect(chain.map(\.lock.kind) == [.loopRequest, .portReply], "\(report.cause)")
        let lock = try #require(chain.last).lock
        #expect(lock.owner?.id == owner && lock.knownBy == .waitPoint && lock.label == "answering" && !lock.timed)
        #expect(report.cause.verdict == .blocked && report.cause.cycle == nil)
        #expect(
            report.cause.summary.contains(
                "which waited for the reply to a request through a port (answering) at \(lock.address), "
                    + "to be served by thread \(owner) (answering), which was in read(2) on pipe:["
            ),
            "\(report.cause.summary)"
        )
        let stack = try #require(report.stacks.first { $0.role == .lockOwner && $0.thread.id == owner })
        #expect(stack.frames.contains { $0.function?.contains("holdQueue") == true })
    }

    @Test("A sender whose receiver does not read waits for the thread of the port's loop")
    func room() throws {
        let gate = gate_create()
        let receiver = try WorkerThread(name: "receiver")
        let owner = try #require(receiver.loop.thread).id
        let port = LocalPort { _ in }
        try receiver.loop.add(port)
        try occupy(receiver, until: gate)
        let remote = try RemotePort(to: port)
        let report = try report(of: { fill(remote) }) { gate_open(gate) }
        receiver.stop()
        let lock = try #require(report.cause.lock)
        #expect(lock.kind == .portRoom && lock.owner?.id == owner && !lock.timed, "\(report.cause)")
        #expect(report.cause.verdict == .blocked)
        #expect(
            report.cause.summary.hasPrefix("The thread waited for room in the queue of a port (receiver) at 0x")
                && report.cause.summary.contains(", to be emptied by thread \(owner) (receiver), which was in read(2)"),
            "\(report.cause.summary)"
        )
        #expect(report.stacks.contains { $0.role == .lockOwner && $0.thread.id == owner })
    }

    /// More than any queue has room for.
    @Sendable private func fill(_ remote: RemotePort) {
        let message = PortMessage(components: [[UInt8](repeating: 0, count: 60_000)])
        for _ in 0..<100 { guard (try? remote.send(message, timeout: nil)) != nil else { return } }
    }

    /// Each waits in a mode that does not have its own port.
    @Test("Two loops that wait for each other's replies are a deadlock, with their ports' names")
    func requests() throws {
        let threads = [try WorkerThread(name: "first"), try WorkerThread(name: "second")]
        let ids = try threads.map { try #require($0.loop.thread).id }
        let place = PortDirectory(directory.path + "/ports")
        let ports = try ["one", "two"].map { try LocalPort(PortName($0), in: place) { _ in } }
        for (thread, port) in zip(threads, ports) { try thread.loop.add(port) }
        let remotes = try ["two", "one"].map { try RemotePort(PortName($0), in: place) }
        for (thread, remote) in zip(threads, remotes) { try ask(remote, on: thread, in: replies) }
        let report = try report(of: { _ = try? threads[0].loop.performAndWait { 1 } }) {
            for port in ports { port.invalidate() }
        }
        for thread in threads { thread.stop() }
        #expect(report.cause.verdict == .deadlock, "\(report.cause)")
        let cycle = try #require(report.cause.cycle)
        #expect(cycle.map(\.lock.kind) == [.portReply, .portReply] && cycle.map(\.thread.id) == ids)
        #expect(cycle.map(\.lock.owner?.id) == ids.reversed() && cycle.map(\.lock.label) == ["two", "one"])
        #expect(
            report.cause.summary.hasPrefix(
                "The thread waits behind others. Deadlock of 2 threads: thread \(ids[0]) (first) waits for the reply"
            ),
            "\(report.cause.summary)"
        )
    }

    @Test("Two loops that fill each other's queues are a deadlock")
    func queues() throws {
        let other = try WorkerThread(name: "other")
        let owner = try #require(other.loop.thread).id
        let ports = [LocalPort { _ in }, LocalPort { _ in }]
        try worker.loop.add(ports[0])
        try other.loop.add(ports[1])
        let (back, there) = (try RemotePort(to: ports[0]), try RemotePort(to: ports[1]))
        // By the time that one fills the other's queue, the other's loop serves its port no more: otherwise all messages arrive.
        let (isOccupied, mayFill) = (TickSemaphore(), TickSemaphore())
        other.loop.perform {
            isOccupied.signal()
            _ = mayFill.wait(until: .now + .seconds(120))
            fill(back)
        }
        try #require(isOccupied.wait(until: .now + .seconds(60)))
        let report = try report(of: {
            mayFill.signal()
            fill(there)
        }) { for port in ports { port.invalidate() } }
        other.stop()
        #expect(report.cause.verdict == .deadlock, "\(report.cause)")
        let cycle = try #require(report.cause.cycle)
        #expect(cycle.map(\.lock.kind) == [.portRoom, .portRoom])
        #expect(cycle.map(\.thread.id) == [report.thread.id, owner])
    }

    /// Each loop serves its port while it waits: a reply may come at any time, from elsewhere.
    @Test("Two loops that wait for each other's replies and serve their ports meanwhile are no deadlock")
    func served() throws {
        let threads = [try WorkerThread(name: "first"), try WorkerThread(name: "second")]
        let ports = [LocalPort { _ in }, LocalPort { _ in }]
        for (thread, port) in zip(threads, ports) { try thread.loop.add(port, to: replies) }
        let remotes = [try RemotePort(to: ports[1]), try RemotePort(to: ports[0])]
        for (thread, remote) in zip(threads, remotes) { try ask(remote, on: thread, in: replies) }
        let report = try report(of: { _ = try? threads[0].loop.performAndWait { 1 } }) {
            for port in ports { port.invalidate() }
        }
        for thread in threads { thread.stop() }
        #expect(report.cause.verdict == .blocked && report.cause.cycle == nil, "\(report.cause)")
        #expect(report.cause.chain?.map(\.lock.kind) == [.loopRequest, .portReply], "\(report.cause)")
    }

    @Test("What a handler waits for while its thread waits for a reply is not the port", arguments: [true, false])
    func handler(runsLoop: Bool) throws {
        let gate = gate_create()
        let asking = try WorkerThread(name: "asking")
        let thread = try #require(asking.loop.thread).id
        let port = LocalPort { _ in }
        // On no loop: nobody serves it.
        let remote = try RemotePort(to: port)
        let inner = EventRunLoop.Mode("inner")
        asking.loop.add(EventSource { _ in }, to: inner)
        try ask(remote, on: asking, in: replies)
        asking.loop.perform(in: [replies]) {
            if runsLoop { asking.loop.run(mode: inner) } else { _ = holdQueue(gate) {} }
        }
        let isThere = {
            runsLoop
                ? asking.loop.currentMode == inner && isInEpoll(thread)
                : StackCapturer.sighting(ofThread: thread)?.systemCall?.name == "read"
        }
        waitUntil(isThere)
        let report = try report(of: { _ = try? asking.loop.performAndWait { 1 } }) {
            gate_open(gate)
            port.invalidate()
            asking.loop.stop(mode: inner)
        }
        asking.stop()
        #expect(report.cause.lock?.kind == .loopRequest && report.cause.lock?.owner?.id == thread, "\(report.cause)")
        #expect(report.cause.chain == nil, "\(report.cause)")
    }
}
