import Glibc
import LoopTestSupport
import RunLoopKit
import RunLoopPorts
import TestSupport
import Testing

/// R54: ports as sources, between threads and between processes.
@Suite(.timeLimit(.minutes(10)))
struct PortTests {
    @Test("R54: between threads, a message arrives with id, components and sender, on the loop's thread, in order")
    func betweenThreads() async throws {
        let trace = Trace()
        let result = try await onLoop { loop in
            let port = LocalPort { message in
                trace.note("\(message.id) \(message.components) \(message.peer.processID == getpid())")
                trace.note("\(EventRunLoop.current === loop) \(message.expectsReply)")
                if message.id == -2 { loop.stop() }
            }
            try loop.add(port)
            let remote = try RemotePort(to: port)
            let sender = TestThread {
                waitUntil { loop.isWaiting }
                try? remote.send(PortMessage(id: 1, components: [[1, 2], [], [3]]))
                try? remote.send(PortMessage(id: -2))
            }
            defer { sender.join() }
            return loop.run(for: .seconds(60))
        }
        #expect(result == .stopped)
        #expect(trace.all == ["1 [[1, 2], [], [3]] true", "true false", "-2 [] true", "true false"])
    }

    @Test("R54: between processes, by name, with the peer's process and user as the kernel reports them")
    func betweenProcesses() async throws {
        let directory = TestDirectory()
        try await onLoop { _ in
            let child = try PortProcess("echo", directory.ports)
            #expect(child.readLine() == "ready \(child.pid)")
            let remote = try RemotePort(PortName("port"), in: directory.ports)
            let reply = try remote.request(
                PortMessage(id: 41, components: [[1], [2, 3]]),
                receiveTimeout: .seconds(30)
            )
            #expect(reply.id == 42)
            #expect(reply.components == [[1], [2, 3]])
            #expect(reply.peer.processID == child.pid)
            #expect(reply.peer.userID == geteuid())
            #expect(remote.peer.processID == child.pid)
        }
    }

    @Test("R54: a reply port that arrives with a message accepts messages, also from another process")
    func replyPort() async throws {
        let directory = TestDirectory()
        let texts = try await onLoop { loop in
            let child = try PortProcess("echo", directory.ports)
            #expect(child.readLine() != nil)
            let texts = Box<[String]>([])
            let pids = Box<[Int32]>([])
            let port = LocalPort { message in
                texts.value.append(message.text)
                pids.value.append(message.peer.processID)
            }
            try loop.add(port, to: "replies")
            let remote = try RemotePort(PortName("port"), in: directory.ports)
            try remote.send(PortMessage(id: 8, replyPort: port))
            loop.run(mode: "replies") { texts.value.count == 2 }
            #expect(pids.value == [child.pid, child.pid])
            // No process has kept its end open.
            loop.run(mode: "replies") { port.connectionCount == 0 }
            return texts.value
        }
        #expect(texts == ["first", "second"])
    }

    @Test("R54: a port that one thread adds while another removes it is then wholly in the mode, or wholly out of it")
    func addedWhileRemoved() async throws {
        let left = try await onLoop { loop in
            let (rounds, mode) = (5_000, "raced" as EventRunLoop.Mode)
            let port = LocalPort { _ in }
            let remote = try RemotePort(to: port)
            let (begun, ended, left) = (Counter(), Counter(), Counter())
            let remover = TestThread {
                for round in 1...rounds {
                    while begun.value < round { sched_yield() }
                    // At another moment of the addition each time.
                    for _ in 0..<round % 200 { _ = begun.value }
                    loop.remove(port, from: mode)
                    ended.increment()
                }
            }
            for round in 1...rounds {
                begun.increment()
                if (try? loop.add(port, to: mode)) == nil { left.increment() }
                while ended.value < round { sched_yield() }
                if !loop.contains(port, in: mode), loop.run(mode: mode, for: .zero) != .finished { left.increment() }
                loop.remove(port, from: mode)
            }
            remover.join()
            withExtendedLifetime(remote) {}
            port.invalidate()
            return left.value
        }
        #expect(left == 0)
    }

    @Test("R54: a port delivers only in its modes, one message a turn, and counts as a handled source")
    func modesAndTurns() async throws {
        try await onLoop { loop in
            let count = Counter()
            let port = LocalPort { _ in count.increment() }
            try loop.add(port, to: "mail")
            #expect(loop.contains(port, in: "mail"))
            #expect(!loop.contains(port))
            let remote = try RemotePort(to: port)
            for _ in 0..<3 { try remote.send(PortMessage()) }
            occupy(loop)
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(count.value == 0)
            #expect(loop.run(mode: "mail", for: .seconds(60), returnAfterSourceHandled: true) == .handledSource)
            #expect(count.value == 1)
            loop.remove(port, from: "mail")
            #expect(loop.run(mode: "mail", for: .zero) == .finished)
            try loop.add(port, to: .common)
            loop.addCommonMode("late")
            #expect(loop.run(mode: "late", for: .zero) == .timedOut)
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(count.value == 3)
        }
    }

    @Test("R54: an invalidated port frees its callbacks, even if it is kept; received messages stay")
    func callbacksFreed() async throws {
        try await onLoop { loop in
            let message = Box<ReceivedMessage?>(nil)
            func makePort() -> (LocalPort, WeakTrace) {
                let held = Trace()
                var options = LocalPort.Options()
                options.onInvalidation = { held.note("invalid") }
                let port = LocalPort(options: options) { received in
                    held.note("message")
                    message.value = received
                }
                return (port, WeakTrace(held))
            }
            let (port, held) = makePort()
            try loop.add(port)
            let remote = try RemotePort(to: port)
            try remote.send(PortMessage(id: 3))
            loop.run { message.value != nil }
            #expect(held.trace?.all == ["message"])
            port.invalidate()
            #expect(held.trace == nil)
            #expect(message.value?.id == 3)
            withExtendedLifetime((port, remote)) {}
        }
    }

    @Test("R9, R54: a port without a connection keeps its mode from being empty")
    func keepsModeAlive() async throws {
        try await onLoop { loop in
            let port = LocalPort { _ in }
            try loop.add(port)
            #expect(loop.run(for: .milliseconds(1)) == .timedOut)
            port.invalidate()
            #expect(loop.run(for: .milliseconds(1)) == .finished)
        }
    }

    @Test("R36, R54: a flood on one connection does not delay another's messages")
    func connectionsTakeTurns() async throws {
        try await onLoop { loop in
            let ids = Box<[Int32]>([])
            let port = LocalPort { ids.value.append($0.id) }
            try loop.add(port)
            let busy = try RemotePort(to: port)
            let quiet = try RemotePort(to: port)
            for _ in 0..<50 { try busy.send(PortMessage(id: 1)) }
            try quiet.send(PortMessage(id: 2))
            loop.run { ids.value.count == 51 }
            #expect(ids.value.firstIndex(of: 2).map { $0 < 3 } == true)
        }
    }

    @Test("R23, R54: a nested run skips a busy port, which later delivers the messages that arrived meanwhile")
    func nestedRun() async throws {
        try await onLoop { loop in
            let trace = Trace()
            let timer = Counter()
            let port = LocalPort { message in
                trace.note("begin \(message.id)")
                if message.id == 1 {
                    loop.add(EventTimer(after: .milliseconds(5)) { _ in timer.increment() })
                    loop.run { timer.value == 1 }
                }
                trace.note("end \(message.id)")
            }
            try loop.add(port)
            let first = try RemotePort(to: port)
            let second = try RemotePort(to: port)
            for id: Int32 in 1...2 { try first.send(PortMessage(id: id)) }
            try second.send(PortMessage(id: 3))
            loop.run { trace.all.count == 6 }
            #expect(Array(trace.all.prefix(2)) == ["begin 1", "end 1"])
            #expect(Set(trace.all) == ["begin 1", "end 1", "begin 2", "end 2", "begin 3", "end 3"])
        }
    }

    @Test("R54: a port on several loops calls its handler on one thread at a time, and loses nothing")
    func severalLoops() async throws {
        let inside = Counter()
        let outside = Counter()
        let collisions = Counter()
        let done = Box(false)
        let port = LocalPort { _ in
            if inside.increment() != outside.value + 1 { collisions.increment() }
            sched_yield()
            outside.increment()
        }
        let threads = (0..<3).map { _ in
            TestThread {
                try? EventRunLoop.current.add(port)
                EventRunLoop.current.run { done.value }
            }
        }
        try await onLoop { _ in
            let remotes = try (0..<4).map { _ in try RemotePort(to: port) }
            for _ in 0..<200 { for remote in remotes { try remote.send(PortMessage(), timeout: .seconds(30)) } }
            waitUntil { outside.value == 800 }
            done.value = true
            for thread in threads { thread.join() }
        }
        #expect(collisions.value == 0)
        #expect(outside.value == 800)
        port.invalidate()
    }

    @Test("R2, R54: a loop that ends releases its port, whose messages wait for the next loop")
    func endedLoop() async throws {
        let count = Counter()
        let port = LocalPort { _ in count.increment() }
        let ended = Box<EventRunLoop?>(nil)
        TestThread {
            ended.value = .current
            try? EventRunLoop.current.add(port)
            EventRunLoop.current.run(for: .zero)
        }.join()
        let remote = try RemotePort(to: port)
        try remote.send(PortMessage())
        #expect(port.isValid)
        let loop = try #require(ended.value)
        #expect(failure { try loop.add(port) } == .loopEnded)
        #expect(failure { try loop.add(remote) } == .loopEnded)
        try await onLoop { loop in
            try loop.add(port)
            loop.run { count.value == 1 }
        }
    }

    @Test("R2, R54: while one of a port's loops ends, the others get its new connections")
    func endingLoop() async throws {
        let count = Counter()
        let port = LocalPort { _ in count.increment() }
        let remote = Box<RemotePort?>(nil)
        try await onLoop { loop in
            try loop.add(port)
            TestThread {
                // Called when the thread's loop accepts nothing more, and the port is still in a later mode of it.
                let last = EventSource(onCancel: { _, _ in remote.value = try? RemotePort(to: port) }) { _ in }
                EventRunLoop.current.add(last)
                try? EventRunLoop.current.add(port, to: "later")
            }.join()
            try #require(remote.value).send(PortMessage())
            loop.run { count.value == 1 }
        }
        port.invalidate()
    }

    @Test("R54: unreferenced objects are released: the port with its loop, its connections and its name")
    func nothingLeaks() async throws {
        let directory = TestDirectory()
        try await onLoop { loop in
            let told = Counter()
            var port: LocalPort? = try LocalPort(PortName("gone"), in: directory.ports) { _ in }
            let remote = try RemotePort(PortName("gone"), in: directory.ports) { _ in told.increment() }
            try loop.add(remote)
            weak let weakly = port
            port = nil
            #expect(weakly == nil)
            loop.run { told.value == 1 }
            #expect(!remote.isValid)
            #expect(failure { _ = try RemotePort(PortName("gone"), in: directory.ports) } == .noSuchPort)
        }
    }
}

private struct WeakTrace: Sendable {
    weak let trace: Trace?

    init(_ trace: Trace) { self.trace = trace }
}
