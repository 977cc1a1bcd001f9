import LoopTestSupport
import RunLoopKit
import RunLoopPorts
import TestSupport
import Testing

/// The cases of macios' CFMessagePortTest.
@Suite(.timeLimit(.minutes(10)))
struct MaciosMessagePortTests {
    @Test(
        "R55: a port without a name is valid until it is invalidated, and reports that once",
        .stands(for: "macios CFMessagePortTest.CreateAndInvalidate")
    )
    func createAndInvalidate() {
        let told = Counter()
        var options = LocalPort.Options()
        options.onInvalidation = { told.increment() }
        let local = LocalPort(options: options) { _ in }
        #expect(local.name == nil)
        #expect(local.isValid)
        local.invalidate()
        local.invalidate()
        #expect(!local.isValid)
        #expect(told.value == 1)
    }

    @Test(
        "R55: a second port with a live name is refused, and the first continues to handle requests",
        .stands(for: "macios CFMessagePortTest.DuplicateLocalPortUsesOriginalCallback")
    )
    func duplicate() async throws {
        let directory = try PortDirectory.temporary()
        defer { directory.remove() }
        let name = try PortName("duplicate")
        let handled = Counter()
        let first = try LocalPort(name, in: directory) { message in
            handled.increment()
            try? message.reply(PortMessage())
        }
        #expect {
            _ = try LocalPort(name, in: directory) { _ in Issue.record("the second handler") }
        } throws: {
            ($0 as? RunLoopError)?.code == .portNameInUse
        }
        let remote = try RemotePort(name, in: directory)
        let answered = await onLoopThread { loop in
            try? loop.add(first)
            return (try? remote.request(PortMessage(id: 1), receiveTimeout: .seconds(30))) != nil
        }
        first.invalidate()
        #expect(answered)
        #expect(handled.value == 1)
    }

    @Test(
        "R56: another thread's loop answers a request; after the port's end a request is refused as invalid",
        .stands(for: "macios CFMessagePortTest.SendRequest")
    )
    func sendRequest() async throws {
        let received = Box<[(Int32, [[UInt8]], Bool)]>([])
        let server = Box<EventRunLoop?>(nil)
        let local = LocalPort { message in
            received.value.append((message.id, message.components, EventRunLoop.current === server.value))
            try? message.reply(PortMessage(components: [[4, 5, 6]]))
        }
        let thread = TestThread {
            let loop = EventRunLoop.current
            try? loop.add(local)
            occupy(loop)
            server.value = loop
            loop.run()
        }
        let told = Counter()
        let remote = try RemotePort(to: local) { _ in told.increment() }
        let reply = await onLoopThread { _ in
            let message = PortMessage(id: 42, components: [[1, 2, 3]])
            return (try? remote.request(message, receiveTimeout: .seconds(30)))?.components
        }
        #expect(reply == [[4, 5, 6]])
        #expect(received.value.count == 1)
        #expect(received.value.first.map { $0.0 == 42 && $0.1 == [[1, 2, 3]] && $0.2 } == true)
        remote.invalidate()
        #expect(told.value == 1)
        let refused = await onLoopThread { _ in Self.failure(of: remote) }
        #expect(refused == .portInvalid)
        #expect(received.value.count == 1)
        local.invalidate()
        waitUntil { server.value != nil }
        // By a block, so that it is not lost if the loop does not run yet. Removing the last source does not wake a sleeping
        // loop.
        server.value?.perform { EventRunLoop.current.stop() }
        thread.join()
    }

    private static func failure(of remote: RemotePort) -> RunLoopError.Code? {
        do throws(RunLoopError) {
            _ = try remote.request(PortMessage(id: 43), sendTimeout: .zero, receiveTimeout: .zero)
            return nil
        } catch {
            return error.code
        }
    }
}
