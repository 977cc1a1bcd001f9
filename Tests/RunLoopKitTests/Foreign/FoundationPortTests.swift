import LoopTestSupport
import RunLoopKit
import RunLoopPorts
import Testing

/// The cases of swift-corelibs-foundation's TestSocketPort.
@Suite(.timeLimit(.minutes(10)))
struct FoundationPortTests {
    @Test(
        "R54: a port without an address is valid and receives messages",
        .stands(for: "TestSocketPort.testInitPicksATCPPort")
    )
    func noAddress() throws {
        let local = LocalPort { _ in }
        defer { local.invalidate() }
        #expect(local.name == nil)
        #expect(local.isValid)
        let remote = try RemotePort(to: local)
        #expect(remote.isValid)
    }

    @Test(
        "R54: a message sent before the loop runs arrives with its components, once",
        .stands(for: "TestSocketPort.testSendingOneMessageRemoteToLocal")
    )
    func oneMessage() async throws {
        let received = Box<[[[UInt8]]]>([])
        let local = LocalPort { message in
            received.value.append(message.components)
            EventRunLoop.current.stop()
        }
        let remote = try RemotePort(to: local)
        let components: [[UInt8]] = [Array("I cannot spin".utf8), [], [0, 255]]
        try remote.send(PortMessage(id: 1, components: components))
        let results = await onLoopThread { loop in
            try? loop.add(local)
            try? loop.add(remote)
            let first = loop.run(for: .seconds(30))
            return [first, loop.run(for: .milliseconds(2))]
        }
        local.invalidate()
        #expect(received.value == [components])
        #expect(results == [.stopped, .timedOut])
    }

    @Test(
        "R54: each of 128 pairs of ports on one loop delivers the message that was sent to it",
        .stands(for: "TestSocketPort.testSendingMultipleMessagesRemoteToLocal")
    )
    func manyPorts() async throws {
        let count = 128
        let received = Box<[Int32: [Int32]]>([:])
        let locals = (0..<count).map { index in
            LocalPort { message in
                received.value[Int32(index), default: []].append(message.id)
                if received.value.count == count { EventRunLoop.current.stop() }
            }
        }
        let remotes = try locals.map { try RemotePort(to: $0) }
        _ = await onLoopThread { loop in
            for local in locals { try? loop.add(local) }
            for (index, remote) in remotes.enumerated() { try? remote.send(PortMessage(id: Int32(index))) }
            return loop.run(for: .seconds(30))
        }
        for local in locals { local.invalidate() }
        #expect(received.value == Dictionary(uniqueKeysWithValues: (0..<Int32(count)).map { ($0, [$0]) }))
    }
}
