import Glibc
import LoopTestSupport
import RunLoopKit
import RunLoopPorts
import TestSupport
import Testing

@testable import RunLoopPorts

/// R56: requests and replies, and how they end.
@Suite(.timeLimit(.minutes(10)))
struct PortRequestTests {
    /// A thread with a loop that serves an anonymous port.
    final class Server: Sendable {
        let port: LocalPort
        private let thread: TestThread
        private let loop = Box<EventRunLoop?>(nil)

        init(_ handler: @escaping LocalPort.Callback) {
            let port = LocalPort(handler)
            let loop = loop
            self.port = port
            thread = TestThread {
                try? EventRunLoop.current.add(port)
                occupy(EventRunLoop.current)
                loop.value = .current
                EventRunLoop.current.run()
            }
        }

        func end() {
            waitUntil { loop.value?.isWaiting == true }
            loop.value?.stop()
            thread.join()
        }
    }

    private static func echo(_ message: ReceivedMessage) {
        try? message.reply(PortMessage(id: message.id, components: message.components))
    }

    @Test("R56: a request whose outcome another thread is slow to deliver uses no processor until then")
    func slowDelivery() async throws {
        /// Another request on the same connection: its end is foreign code, here a slow one.
        final class Slow: RemoteChannel.Waiter {
            let mayEnd: Counter
            init(_ mayEnd: Counter) { self.mayEnd = mayEnd }
            func finish(_ outcome: RemoteChannel.Outcome) { while mayEnd.value == 0 { usleep(1000) } }
        }
        try await onLoop { _ in
            let server = Server { _ in }
            let remote = try RemotePort(to: server.port)
            let mayEnd = Counter()
            // So many that the request is hardly ever the first one to be ended.
            for _ in 0..<50 { _ = try remote.channel.enter(Slow(mayEnd)) }
            let closer = Box<TestThread?>(nil)
            EventRunLoop.current.perform(in: "reply") {
                closer.value = TestThread { remote.invalidate() }
                _ = TestThread {
                    usleep(500_000)
                    mayEnd.increment()
                }
            }
            let before = processorTime()
            do throws(RunLoopError) {
                _ = try remote.request(PortMessage(), receiveTimeout: .milliseconds(100), mode: "reply")
                Issue.record("nobody replies")
            } catch {
                #expect([.portBecameInvalid, .receiveTimeout].contains(error.code))
            }
            #expect(processorTime() - before < .milliseconds(200))
            mayEnd.increment()
            closer.value?.join()
            server.end()
        }
    }

    private func processorTime() -> Duration {
        var time = timespec()
        unsafe clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
        return .seconds(time.tv_sec) + .nanoseconds(time.tv_nsec)
    }

    @Test("R56: a request gets its reply and leaves the mode as it was")
    func success() async throws {
        let server = Server(Self.echo)
        try await onLoop { loop in
            let remote = try RemotePort(to: server.port)
            for id: Int32 in 0..<100 {
                let reply = try remote.request(PortMessage(id: id, text: "\(id)"), receiveTimeout: nil, mode: "reply")
                #expect(reply.id == id)
                #expect(reply.text == "\(id)")
                #expect(!reply.expectsReply)
            }
            #expect(!loop.contains(remote, in: "reply"))
            #expect(loop.run(mode: "reply", for: .zero) == .finished)
            try loop.add(remote)
            _ = try remote.request(PortMessage())
            #expect(loop.contains(remote))
            server.end()
        }
    }

    @Test("R56: while a reply is awaited, the chosen mode runs and no other")
    func modeGoesOn() async throws {
        let held = Box<ReceivedMessage?>(nil)
        let server = Server { held.value = $0 }
        try await onLoop { loop in
            let remote = try RemotePort(to: server.port)
            let here = Counter()
            let elsewhere = Counter()
            let timer = EventTimer(every: .milliseconds(1)) { _ in
                // The reply is sent at the third fire.
                if here.increment() == 3 { try? held.value?.reply(PortMessage(id: 5)) }
            }
            loop.add(timer, to: "reply")
            loop.add(EventTimer(at: .now, every: .milliseconds(1)) { _ in elsewhere.increment() })
            loop.perform(in: "reply") { waitUntil { held.value != nil } }
            let reply = try remote.request(PortMessage(), receiveTimeout: .seconds(60), mode: "reply")
            #expect(reply.id == 5)
            #expect(here.value >= 3)
            #expect(elsewhere.value == 0)
            server.end()
        }
    }

    @Test("R56: no reply in time is a receive timeout; a late reply is dropped, and the port continues")
    func receiveTimeout() async throws {
        let held = Box<[ReceivedMessage]>([])
        let server = Server { message in
            if message.id == 1 { held.value.append(message) } else { Self.echo(message) }
        }
        try await onLoop { loop in
            let remote = try RemotePort(to: server.port)
            let start = MonotonicInstant.now
            #expect(
                failure { _ = try remote.request(PortMessage(id: 1), receiveTimeout: .milliseconds(20)) }
                    == .receiveTimeout
            )
            #expect(elapsed(since: start) >= .milliseconds(20))
            waitUntil { held.value.count == 1 }
            try held.value[0].reply(PortMessage(id: 1))
            #expect(try remote.request(PortMessage(id: 2)).id == 2)
            #expect(failure { _ = try remote.request(PortMessage(id: 1), receiveTimeout: .zero) } == .receiveTimeout)
            server.end()
        }
    }

    @Test("R56, R57: a full receiver is a send timeout, before any part of the message is sent")
    func sendTimeout() async throws {
        let directory = TestDirectory()
        try await onLoop { _ in
            let child = try PortProcess("hold", directory.ports)
            #expect(child.readLine() != nil)
            let remote = try RemotePort(PortName("port"), in: directory.ports)
            let message = PortMessage(components: [[UInt8](repeating: 1, count: 60_000)])
            var sent = 0
            while failure({ try remote.send(message, timeout: .zero) }) == nil, sent < 1000 { sent += 1 }
            #expect(1..<1000 ~= sent)
            let start = MonotonicInstant.now
            #expect(failure { try remote.send(message, timeout: .milliseconds(20)) } == .sendTimeout)
            #expect(elapsed(since: start) >= .milliseconds(20))
            #expect(failure { _ = try remote.request(message, sendTimeout: .milliseconds(5)) } == .sendTimeout)
            #expect(remote.isValid)
        }
    }

    @Test("R54, R56: a message that is not sent leaves no connection to its reply port, also if that is on no loop")
    func unsentReplyPort() throws {
        let (receiver, replies) = (LocalPort { _ in }, LocalPort { _ in })
        let remote = try RemotePort(to: receiver)
        let message = PortMessage(components: [[UInt8](repeating: 1, count: 60_000)])
        var sent = 0
        while failure({ try remote.send(message, timeout: .zero) }) == nil, sent < 1000 { sent += 1 }
        for _ in 0..<10 {
            #expect(failure { try remote.send(PortMessage(replyPort: replies), timeout: .zero) } == .sendTimeout)
        }
        #expect(replies.connectionCount == 0)
    }

    @Test("R56, R57: a sender that waits for room continues when the receiver reads; nothing is lost or reordered")
    func backpressure() async throws {
        let ids = Box<[Int32]>([])
        let port = LocalPort { ids.value.append($0.id) }
        try await onLoop { loop in
            let remote = try RemotePort(to: port)
            let sender = TestThread {
                for id: Int32 in 0..<200 {
                    let message = PortMessage(id: id, components: [[UInt8](repeating: 1, count: 30_000)])
                    #expect(failure { try remote.send(message, timeout: nil) } == nil)
                }
            }
            try loop.add(port)
            loop.run { ids.value.count == 200 }
            sender.join()
            #expect(ids.value == Array(0..<200))
        }
    }

    @Test("R56: a port that was already invalid is distinguished from one that becomes invalid during a request")
    func invalid() async throws {
        let directory = TestDirectory()
        try await onLoop { loop in
            let child = try PortProcess("echo", directory.ports)
            #expect(child.readLine() != nil)
            let told = Counter()
            let remote = try RemotePort(PortName("port"), in: directory.ports) { _ in told.increment() }
            // The child exits instead of replying.
            #expect(failure { _ = try remote.request(PortMessage(id: 500), receiveTimeout: nil) } == .portBecameInvalid)
            #expect(told.value == 1)
            #expect(child.wait() == 7)
            #expect(failure { _ = try remote.request(PortMessage(id: 1)) } == .portInvalid)
            #expect(told.value == 1)
        }
    }

    @Test("R56: a peer that was gone before the message is sent makes the port become invalid")
    func goneBefore() async throws {
        let directory = TestDirectory()
        try await onLoop { _ in
            let child = try PortProcess("hold", directory.ports)
            #expect(child.readLine() != nil)
            let told = Counter()
            let remote = try RemotePort(PortName("port"), in: directory.ports) { _ in told.increment() }
            child.kill()
            #expect(remote.isValid)
            #expect(failure { try remote.send(PortMessage()) } == .portBecameInvalid)
            #expect(told.value == 1)
        }
    }

    @Test("R56: a port that another thread invalidates during the wait becomes invalid")
    func invalidatedMeanwhile() async throws {
        let server = Server { _ in }
        try await onLoop { loop in
            let remote = try RemotePort(to: server.port)
            let other = TestThread {
                waitUntil { loop.isWaiting }
                remote.invalidate()
            }
            #expect(failure { _ = try remote.request(PortMessage(), receiveTimeout: nil) } == .portBecameInvalid)
            other.join()
            server.end()
        }
    }

    @Test("R56: a refusal by the kernel is a transport error with its errno, and the port continues")
    func transportError() async throws {
        let server = Server(Self.echo)
        try await onLoop { _ in
            let remote = try RemotePort(to: server.port)
            do throws(RunLoopError) {
                _ = try remote.request(PortMessage(descriptors: [999_999]))
                Issue.record("a closed descriptor was sent")
            } catch {
                #expect(error.code == .transportError && error.errno == EBADF)
            }
            #expect(try remote.request(PortMessage(id: 3)).id == 3)
            server.end()
        }
    }

    @Test("R22, R56: a stop does not end the wait for a reply; the outer run gets it")
    func stopIsPassedOn() async throws {
        let held = Box<ReceivedMessage?>(nil)
        let server = Server { held.value = $0 }
        try await onLoop { loop in
            let remote = try RemotePort(to: server.port)
            let trace = Trace()
            loop.perform {
                loop.perform(in: "reply") {
                    waitUntil { held.value != nil }
                    loop.stop()
                }
                loop.add(
                    EventTimer(after: .milliseconds(5)) { _ in try? held.value?.reply(PortMessage()) },
                    to: "reply"
                )
                trace.note("\(failure { _ = try remote.request(PortMessage(), mode: "reply") } == nil)")
            }
            occupy(loop)
            #expect(loop.run(for: .seconds(60)) == .stopped)
            #expect(trace.all == ["true"])
            server.end()
        }
    }

    @Test("R56: a worker that is stopped while it awaits a reply sleeps until the reply, and then ends")
    func stopOfWorker() async throws {
        let held = Box<ReceivedMessage?>(nil)
        let server = Server { held.value = $0 }
        let worker = try WorkerThread(name: "stopped")
        let trace = Trace()
        try await onLoop { _ in
            let remote = try RemotePort(to: server.port)
            let exits = Counter()
            worker.loop.add(LoopObserver(activities: .exit) { _, _ in exits.increment() })
            worker.loop.perform {
                trace.note("\(failure { _ = try remote.request(PortMessage(), receiveTimeout: nil) } == nil)")
                // A run that begins after the stop does not outlast it.
                trace.note("\(EventRunLoop.current.run(for: .seconds(60)))")
            }
            waitUntil { held.value != nil && worker.loop.isWaiting }
            worker.stop()
            waitUntil { exits.value > 0 && worker.loop.isWaiting }
            #expect(!worker.hasEnded)
            try held.value?.reply(PortMessage())
            #expect(worker.join(timeout: .seconds(60)))
            // The run that the stop ended, the one that the reply ended, the last one in the block, and the worker's.
            #expect(exits.value == 4)
            server.end()
        }
        #expect(trace.all == ["true", "stopped"])
    }

    @Test("R17, R56: a stop of the mode in which a reply is awaited ends neither the wait nor a run of another mode")
    func stopOfModeIsPassedOn() async throws {
        let held = Box<ReceivedMessage?>(nil)
        let server = Server { held.value = $0 }
        try await onLoop { loop in
            let remote = try RemotePort(to: server.port)
            let trace = Trace()
            loop.perform(in: "reply") {
                waitUntil { held.value != nil }
                loop.stop(mode: "reply")
                loop.add(
                    EventTimer(after: .milliseconds(5)) { _ in try? held.value?.reply(PortMessage()) },
                    to: "reply"
                )
            }
            loop.perform {
                trace.note("\(failure { _ = try remote.request(PortMessage(), mode: "reply") } == nil)")
                // The second block is for the next turn: at the end of this one a stop of the run would be seen.
                loop.perform {
                    loop.perform {
                        trace.note("goes on")
                        loop.stop()
                    }
                }
            }
            occupy(loop)
            #expect(loop.run(for: .seconds(60)) == .stopped)
            #expect(trace.all == ["true", "goes on"])
            server.end()
        }
    }

    @Test("R56: a request inside another's wait gets its own reply, and so does the outer one, in any order")
    func nested() async throws {
        let held = Box<[ReceivedMessage]>([])
        let server = Server { message in
            held.value.append(message)
            // The outer request is answered first, so that the inner run reads its reply.
            guard held.value.count == 2 else { return }
            for message in held.value { try? message.reply(PortMessage(id: message.id)) }
        }
        try await onLoop { loop in
            let remote = try RemotePort(to: server.port)
            let inner = Box<Int32>(0)
            // Called by a timer, so that the outer run handles no source.
            loop.add(
                EventTimer(after: .milliseconds(1)) { _ in
                    waitUntil { held.value.count == 1 }
                    inner.value = (try? remote.request(PortMessage(id: 2), receiveTimeout: .seconds(30)))?.id ?? -1
                }
            )
            #expect(try remote.request(PortMessage(id: 1), receiveTimeout: .seconds(30)).id == 1)
            #expect(inner.value == 2)
            server.end()
        }
    }

    @Test("R23, R56: a reply that is read by a run nested in an observer ends the wait before the outer run sleeps")
    func readBeforeSleep() async throws {
        let server = Server(Self.echo)
        try await onLoop { loop in
            let remote = try RemotePort(to: server.port)
            let observer = LoopObserver(activities: .beforeWaiting, repeats: false) { _, _ in
                loop.run(mode: "reply", returnAfterSourceHandled: true)
            }
            loop.add(observer, to: "reply")
            // Without a timeout: a sleep in spite of the reply exceeds the suite's time limit.
            #expect(try remote.request(PortMessage(id: 4), receiveTimeout: nil, mode: "reply").id == 4)
            #expect(!observer.isValid)
            server.end()
        }
    }

    @Test("R56: several threads make requests on one port, and each gets its own replies")
    func severalThreads() async throws {
        let server = Server(Self.echo)
        let remote = try RemotePort(to: server.port)
        let wrong = Counter()
        let right = Counter()
        let threads = (0..<4).map { thread in
            TestThread {
                for number: Int32 in 0..<300 {
                    let id = Int32(thread) * 1000 + number
                    let reply = try? remote.request(PortMessage(id: id), receiveTimeout: .seconds(30))
                    if reply?.id == id { right.increment() } else { wrong.increment() }
                }
            }
        }
        try await onLoop { _ in
            for thread in threads { thread.join() }
            server.end()
        }
        #expect(wrong.value == 0)
        #expect(right.value == 1200)
    }

    @Test("R56: another thread can reply later; the reply is dropped if no caller waits")
    func laterReply() async throws {
        let held = Box<ReceivedMessage?>(nil)
        let server = Server { held.value = $0 }
        try await onLoop { loop in
            var remote: RemotePort? = try RemotePort(to: server.port)
            let replier = TestThread {
                waitUntil { held.value != nil && loop.isWaiting }
                try? held.value?.reply(PortMessage(id: 6))
            }
            #expect(try remote?.request(PortMessage(), receiveTimeout: .seconds(30)).id == 6)
            replier.join()
            let message = try #require(held.value)
            #expect(failure { try message.reply(PortMessage()) } == nil)
            remote?.invalidate()
            remote = nil
            #expect(failure { try message.reply(PortMessage()) } == .portBecameInvalid)
            server.end()
        }
    }

    @Test("R56: a request can be awaited while another loop receives the reply; each way to end has its error")
    func awaited() async throws {
        let lostCount = Counter()
        let server = Server { message in
            switch message.id {
            case 404: lostCount.increment()
            case 500: EventRunLoop.current.perform { EventRunLoop.current.stop() }
            default: Self.echo(message)
            }
        }
        let client = Box<EventRunLoop?>(nil)
        let thread = TestThread {
            occupy(.current)
            client.value = .current
            EventRunLoop.current.run()
        }
        waitUntil { client.value != nil }
        let loop = try #require(client.value)
        let remote = try RemotePort(to: server.port)
        await withTaskGroup(of: Int32?.self) { group in
            for id: Int32 in 0..<50 {
                group.addTask {
                    try? await remote.request(PortMessage(id: id), on: loop, receiveTimeout: .seconds(30)).id
                }
            }
            var ids: Set<Int32?> = []
            for await id in group { ids.insert(id) }
            #expect(ids == Set((0..<50).map { $0 }))
        }
        let lost = PortMessage(id: 404)
        await #expect(throws: RunLoopError(.receiveTimeout)) {
            _ = try await remote.request(lost, on: loop, receiveTimeout: .milliseconds(5))
        }
        let pending = Task { try await remote.request(lost, on: loop, receiveTimeout: .seconds(60)) }
        // One that is only made when the loop has ended would be refused, with the same error.
        waitUntil { lostCount.value == 2 }
        loop.perform { loop.add(EventTimer(after: .milliseconds(5)) { _ in loop.stop() }) }
        await #expect(throws: RunLoopError(.loopEnded)) { _ = try await pending.value }
        await #expect(throws: RunLoopError(.loopEnded)) { _ = try await remote.request(lost, on: loop) }
        thread.join()
        remote.invalidate()
        server.end()
    }

    @Test("R56: an awaited request whose reply another loop received first leaves no timer")
    func timerAfterReply() async {
        let timer = EventTimer(after: .seconds(3600)) { _ in }
        _ = await withCheckedContinuation { (continuation: ReplyPromise.Continuation) in
            let promise = ReplyPromise(continuation)
            promise.finish(.failure(RunLoopError(.portBecameInvalid)))
            promise.end(timer)
        }
        #expect(!timer.isValid)
    }

    @Test("R56: a port added to the mode during a request stays there; otherwise it is removed again")
    func addedMeanwhile() async throws {
        let held = Box<ReceivedMessage?>(nil)
        let server = Server { held.value = $0 }
        try await onLoop { loop in
            let remote = try RemotePort(to: server.port)
            loop.perform {
                waitUntil { held.value != nil }
                try? loop.add(remote)
                try? held.value?.reply(PortMessage())
            }
            _ = try remote.request(PortMessage(), receiveTimeout: .seconds(30))
            #expect(loop.contains(remote))
            server.end()
        }
    }
}
