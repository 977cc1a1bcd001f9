import Glibc
import LoopTestSupport
import RunLoopKit
import RunLoopPorts
import Testing

/// R16, R36: a loop that always has work polls the kernel only occasionally; nothing waits longer for that than eight
/// turns.
@Suite(.timeLimit(.minutes(10)))
struct BusyLoopTests {
    @Test("R36: a descriptor that becomes ready is delivered within nine turns of a source that signals itself")
    func descriptorBesideSource() async throws {
        let pipe = try Pipe()
        let waits = await onLoopThread { loop in
            let turns = Counter()
            let writtenAt = Box(0)
            let waits = Box<[Int]>([])
            let source = EventSource { source in
                source.signal()
                // At a different distance from the latest poll each time.
                if turns.increment() % 101 == 0 {
                    writtenAt.value = turns.value
                    pipe.write("x")
                }
            }
            loop.add(source)
            source.signal()
            try? loop.add(
                DescriptorSource(descriptor: pipe.reader) { _, _ in
                    _ = pipe.read()
                    waits.value.append(turns.value - writtenAt.value)
                    if waits.value.count == 50 { loop.stop() }
                }
            )
            loop.run()
            return waits.value
        }
        #expect(waits.count == 50)
        #expect(waits.allSatisfy { $0 <= 8 }, "\(waits)")
    }

    @Test("R36: a descriptor that becomes ready is delivered within nine turns of a port that always has a message")
    func descriptorBesidePort() async throws {
        let pipe = try Pipe()
        let waits = try await onLoop { loop in
            let messages = Counter()
            let writtenAt = Box(0)
            let waits = Box<[Int]>([])
            let remote = Box<RemotePort?>(nil)
            let port = LocalPort { _ in
                try? remote.value?.send(PortMessage(id: 1))
                // At a different distance from the latest poll each time.
                if messages.increment() % 101 == 0 {
                    writtenAt.value = messages.value
                    pipe.write("x")
                }
            }
            try loop.add(port)
            remote.value = try RemotePort(to: port)
            for _ in 0..<4 { try remote.value?.send(PortMessage(id: 1)) }
            try loop.add(
                DescriptorSource(descriptor: pipe.reader) { _, _ in
                    _ = pipe.read()
                    waits.value.append(messages.value - writtenAt.value)
                    if waits.value.count == 50 { loop.stop() }
                }
            )
            loop.run()
            port.invalidate()
            return waits.value
        }
        #expect(waits.count == 50)
        #expect(waits.allSatisfy { $0 <= 8 }, "\(waits)")
    }

    @Test(
        "R16: the main queue is served within nine turns, beside a busy source or a thousand busy descriptors"
    )
    func mainQueueBesideWork() throws {
        let lines = try Fixture.run("RunLoopFixture", "busy-main").lines
        #expect(lines.count == 2)
        for line in lines {
            let most = try #require(Int(line.split(separator: " ").last ?? ""))
            #expect(most <= 9, "\(line)")
        }
    }

    @Test("R36: of five hundred ready descriptors one is delivered per turn, and each once before any twice")
    func manyReady() async throws {
        let pipe = try Pipe()
        pipe.write("x")
        let count = 500
        let (order, mostInATurn) = await onLoopThread { loop in
            let order = Box<[Int]>([])
            let (inTurn, most) = (Counter(), Box(0))
            // Duplicates of one pipe: this number of pipes would need a higher limit than this number of descriptors.
            let copies = (0..<count).map { _ in fcntl(pipe.reader, F_DUPFD_CLOEXEC, 0) }
            for (index, copy) in copies.enumerated() {
                try? loop.add(
                    DescriptorSource(descriptor: copy) { _, _ in
                        order.value.append(index)
                        inTurn.increment()
                        if order.value.count == 2 * count { loop.stop() }
                    }
                )
            }
            let before = Box(0)
            loop.add(
                LoopObserver(activities: .beforeTimers) { _, _ in
                    most.value = max(most.value, inTurn.value - before.value)
                    before.value = inTurn.value
                }
            )
            loop.run()
            for copy in copies { close(copy) }
            return (order.value, most.value)
        }
        #expect(mostInATurn == 1)
        #expect(Set(order.prefix(count)).count == count)
        #expect(Set(order.suffix(count)).count == count)
    }

    @Test("R25, R28: no signal of four threads is lost that signal and wake at the same time")
    func signalStorm() async {
        let each = 20_000
        let seen = await onLoopThread { loop in
            let made = Counter()
            let seen = Box(0)
            let source = EventSource { _ in
                seen.value = made.value
                if made.value == 4 * each { loop.stop() }
            }
            loop.add(source)
            let threads = (0..<4).map { _ in
                TestThread {
                    for _ in 0..<each {
                        made.increment()
                        source.signalAndWake()
                    }
                }
            }
            // Without a timeout: a lost signal exceeds the suite's time limit.
            loop.run()
            for thread in threads { thread.join() }
            return seen.value
        }
        #expect(seen == 4 * each)
    }
}
