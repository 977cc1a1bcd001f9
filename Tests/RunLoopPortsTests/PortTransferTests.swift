import CRunLoopPorts
import CRunLoopShims
import Glibc
import LoopTestSupport
import RunLoopKit
import RunLoopPorts
import TestSupport
import Testing

@testable import RunLoopPorts

/// R57: messages arrive completely or not at all; descriptors; peers that violate the protocol.
@Suite(.timeLimit(.minutes(10)))
struct PortTransferTests {
    @Test("R57: messages of every size up to the maximum arrive complete, even if sizes change between them")
    func sizes() async throws {
        try await onLoop { loop in
            let received = Box<[[[UInt8]]]>([])
            let port = LocalPort { received.value.append($0.components) }
            try loop.add(port)
            let remote = try RemotePort(to: port)
            var generator = SplitMix64(seed: 57)
            let limit = PortMessage.maximumSize
            let sizes = [0, 1, 999, 1000, 4072, 4073, 4096, limit, limit - 1, 3, limit, 5000, 10]
            for size in sizes {
                let payload = (0..<size).map { _ in UInt8.random(in: 0...255, using: &generator) }
                let cut = Int.random(in: 0...size, using: &generator)
                let components = [Array(payload[..<cut]), [], Array(payload[cut...])]
                try remote.send(PortMessage(components: components))
                loop.run { received.value.count == 1 }
                #expect(received.value == [components])
                received.value = []
            }
            let most = (0..<64).map { [UInt8](repeating: UInt8($0), count: limit / 64) }
            try remote.send(PortMessage(components: most))
            loop.run { received.value.count == 1 }
            #expect(received.value == [most])
        }
    }

    @Test(
        "R57: a message that is too large, or has too many parts, is an error at the sender; the receiver sees nothing"
    )
    func tooLarge() async throws {
        try await onLoop { loop in
            let ids = Box<[Int32]>([])
            let port = LocalPort { ids.value.append($0.id) }
            try loop.add(port)
            let remote = try RemotePort(to: port)
            let byte: [UInt8] = [1]
            let large = [UInt8](repeating: 1, count: PortMessage.maximumSize)
            #expect(failure { try remote.send(PortMessage(components: [large, byte])) } == .messageTooLarge)
            #expect(failure { _ = try remote.request(PortMessage(components: [large, byte])) } == .messageTooLarge)
            let many = [[UInt8]](repeating: byte, count: 65)
            #expect(failure { try remote.send(PortMessage(components: many)) } == .messageTooLarge)
            let descriptors = [Int32](repeating: 0, count: 254)
            #expect(failure { try remote.send(PortMessage(descriptors: descriptors)) } == .tooManyDescriptors)
            let full = PortMessage(descriptors: descriptors.dropLast(), replyPort: port)
            #expect(failure { try remote.send(full) } == .tooManyDescriptors)
            try remote.send(PortMessage(id: 1, descriptors: descriptors.dropLast()))
            loop.run { !ids.value.isEmpty }
            #expect(ids.value == [1])
        }
    }

    @Test("R57: a kept message does not change while others arrive")
    func keptMessages() async throws {
        try await onLoop { loop in
            let kept = Box<[ReceivedMessage]>([])
            let port = LocalPort { kept.value.append($0) }
            try loop.add(port)
            let remote = try RemotePort(to: port)
            for id: Int32 in 0..<20 {
                let size = id.isMultiple(of: 3) ? 10_000 : 10
                try remote.send(PortMessage(id: id, components: [[UInt8](repeating: UInt8(id), count: size)]))
            }
            loop.run { kept.value.count == 20 }
            for (id, message) in kept.value.enumerated() {
                #expect(message.id == Int32(id))
                #expect(message.withBytes(of: 0) { $0.byteCount } == (id.isMultiple(of: 3) ? 10_000 : 10))
                #expect(message.component(0).allSatisfy { $0 == UInt8(id) })
            }
        }
    }

    @Test(
        "R54: a descriptor passed to another process works there; received ones close on exec and with the message"
    )
    func descriptors() async throws {
        let directory = TestDirectory()
        try await onLoop { loop in
            let child = try PortProcess("echo", directory.ports)
            #expect(child.readLine() != nil)
            var ends: [Int32] = [-1, -1]
            #expect(unsafe openPipe(&ends, O_CLOEXEC) == 0)
            defer { close(ends[0]) }
            let remote = try RemotePort(PortName("port"), in: directory.ports)
            try remote.send(PortMessage(id: 7, descriptors: [ends[1]]))
            close(ends[1])
            var bytes = [UInt8](repeating: 0, count: 16)
            #expect(unsafe read(ends[0], &bytes, 16) == 5)
            #expect(String(decoding: bytes[..<5], as: UTF8.self) == "hello")
            // The child has closed its copy, and ours is closed: read(2) returns the end of the pipe.
            #expect(unsafe read(ends[0], &bytes, 16) == 0)
        }
        try await onLoop { loop in
            var ends: [Int32] = [-1, -1]
            #expect(unsafe openPipe(&ends, O_CLOEXEC) == 0)
            defer { close(ends[0]) }
            let kept = Box<ReceivedMessage?>(nil)
            let port = LocalPort { kept.value = $0 }
            try loop.add(port)
            try RemotePort(to: port).send(PortMessage(descriptors: [ends[1], ends[1]]))
            close(ends[1])
            loop.run { kept.value != nil }
            let message = try #require(kept.value)
            #expect(message.descriptorCount == 2)
            let taken = try #require(message.takeDescriptor(at: 1))
            #expect(fcntl(taken, F_GETFD) & FD_CLOEXEC != 0)
            #expect(message.takeDescriptor(at: 1) == nil)
            #expect(message.takeDescriptor(at: 2) == nil)
            #expect(message.takeReplyPort() == nil)
            close(taken)
        }
    }

    @Test("R54: messages received, dropped, torn or refused leave no descriptor open")
    func nothingLeftOpen() throws {
        let directory = TestDirectory()
        let run = try Fixture.run("PortsFixture", "leaks '\(directory.ports.path)' port")
        #expect(run.lines == ["left behind: 0"])
        #expect(run.status == 0)
    }

    @Test("R54, R55: without descriptors each creation is a typed error that leaves nothing open, or succeeds")
    func noDescriptors() throws {
        let directory = TestDirectory()
        let run = try Fixture.run("PortsFixture", "no-descriptors '\(directory.ports.path)' port")
        #expect(run.lines.count == 9)
        for line in run.lines {
            let words = line.split(separator: " ").dropFirst()
            #expect(words.prefix(3).allSatisfy { $0.hasPrefix("outOfResources") || $0.hasPrefix("done") })
            #expect(line.hasSuffix("left behind: 0"))
        }
        #expect(run.lines.first?.hasPrefix("0: outOfResources outOfResources outOfResources") == true)
        #expect(run.lines.last?.hasPrefix("8: done done done") == true)
    }

    @Test(
        "R54, R57: a receiver without descriptors refuses connections, and messages that lost theirs, and continues"
    )
    func refusals() throws {
        let directory = TestDirectory()
        let run = try Fixture.run("PortsFixture", "refusals '\(directory.ports.path)' port")
        #expect(run.lines.prefix(3) == ["message", "dropped: outOfDescriptors", "dropped: descriptorsLost"])
        #expect(run.lines.dropFirst(3).prefix(2).allSatisfy { $0.contains("became invalid") })
        // The receiver closed its end of the first connection; our ends of both connections are still open.
        #expect(run.lines.last == "message")
        #expect(run.status == 0)
    }

    @Test("R54: a receiver that has lost its spare descriptor sleeps, accepts later, and can refuse again")
    func spareDescriptorLost() throws {
        let directory = TestDirectory()
        let run = try Fixture.run("PortsFixture", "shortage '\(directory.ports.path)' port")
        let lines = ["spins: false", "message", "dropped: outOfDescriptors"]
        #expect(Array(run.lines.prefix(3)) == lines)
        #expect(run.lines.last?.contains("became invalid") == true)
        #expect(run.status == 0)
    }

    @Test("R54: a port that a mode could not take as it became common can still be added to others")
    func failedCommonMode() async throws {
        try await onLoop { loop in
            let port = LocalPort { _ in }
            let (_, theirs) = try MessageSocket.pair()
            try port.receiver.adopt(theirs)
            // The mode refuses the port's connection: its descriptor is watched there already.
            try loop.add(DescriptorSource(descriptor: theirs.descriptor) { _, _ in }, to: "late")
            try loop.add(port, to: .common)
            loop.addCommonMode("late")
            #expect(failure { try loop.add(port, to: "other") } == nil)
            #expect(loop.contains(port, in: "other"))
            port.invalidate()
        }
    }

    @Test("R54: the drop of a connection that a mode refuses after a nested run names the peer")
    func refusedAfterNestedRun() async throws {
        try await onLoop { loop in
            let peers = Box<[PortPeer]>([])
            var options = LocalPort.Options()
            options.onDrop = { peer, reason in
                #expect(reason == .outOfDescriptors)
                peers.value.append(peer)
            }
            let (ours, theirs) = try MessageSocket.pair()
            let port = LocalPort(options: options) { message in
                guard message.id == 1 else { return }
                try? ours.send(PortMessage(id: 2), kind: .message, timeout: .zero, to: nil)
                // It passes the other connection over, which leaves the mode until this call ends.
                loop.run(for: .zero)
                // The mode then refuses the connection: its descriptor is watched there already.
                try? loop.add(DescriptorSource(descriptor: theirs.descriptor) { _, _ in })
            }
            try port.receiver.adopt(theirs)
            try loop.add(port)
            let remote = try RemotePort(to: port)
            try remote.send(PortMessage(id: 1))
            loop.run { !peers.value.isEmpty }
            #expect(peers.value == [PortPeer(processID: getpid(), userID: geteuid(), groupID: getegid())])
            withExtendedLifetime(remote) {}
            port.invalidate()
        }
    }

    @Test("R54: a loop that was about to deliver when another thread has invalidated the port delivers nothing")
    func deliveryAfterClose() throws {
        let calls = Counter()
        let receiver = PortReceiver(options: LocalPort.Options()) { _ in calls.increment() }
        let (ours, theirs) = try MessageSocket.pair()
        let connection = PortReceiver.Connection(socket: theirs, peer: theirs.peer)
        try receiver.insert(connection)
        try ours.send(PortMessage(id: 1), kind: .message, timeout: .zero, to: nil)
        try ours.send(PortMessage(id: 2), kind: .message, timeout: .zero, to: nil)
        #expect(receiver.deliver(from: connection) == .perhapsMore)
        receiver.close()
        #expect(receiver.deliver(from: connection) == .nothing)
        #expect(calls.value == 1)
    }

    @Test("R57: a peer that sends an invalid message is dropped with the reason, and the others are served")
    func hostilePeers() async throws {
        let directory = TestDirectory()
        try await onLoop { loop in
            let drops = Box<[LocalPort.DropReason]>([])
            let ids = Box<[Int32]>([])
            var options = LocalPort.Options()
            options.onDrop = { peer, reason in
                #expect(peer.processID == getpid())
                drops.value.append(reason)
            }
            let name = try PortName("port")
            let port = try LocalPort(name, in: directory.ports, options: options) { ids.value.append($0.id) }
            try loop.add(port)
            let honest = try RemotePort(name, in: directory.ports)
            let cases: [([UInt8], [Int32], LocalPort.DropReason)] = [
                ([1], [], .notAMessage),
                ([UInt8](repeating: 0, count: 20), [], .notAMessage),
                (Self.message(magic: 1), [], .notAMessage),
                (Self.message(version: 2), [], .notAMessage),
                (Self.message(kind: 0), [], .notAMessage),
                (Self.message(kind: 3), [], .notAMessage),
                (Self.message(count: 65), [], .tooManyComponents),
                (Self.message(count: 0xFFFF), [], .tooManyComponents),
                (Self.message(count: 2), [], .wrongLengths),
                (Self.message(count: 1, lengths: [.max]), [], .wrongLengths),
                (Self.message(count: 1, lengths: [5], rest: 4), [], .wrongLengths),
                (Self.message(count: 1, lengths: [3], rest: 4), [], .wrongLengths),
                (Self.message(descriptors: 1), [], .wrongDescriptors),
                (Self.message(), [0, 1], .wrongDescriptors),
                (Self.message(hasReplyPort: 1), [], .wrongDescriptors),
                (Self.message() + [UInt8](repeating: 0, count: 150_000), [], .tooLarge),
                (Self.message() + [UInt8](repeating: 0, count: 134_000), [Int32](repeating: 0, count: 253), .tooLarge),
            ]
            for (_, _, reason) in cases {
                #expect(reason.rawValue.allSatisfy { $0.isLowercase || $0 == "_" }, "names in logs are in snake case")
            }
            for (index, (bytes, descriptors, reason)) in cases.enumerated() {
                let socket = try Self.connect(name, directory.ports)
                defer { close(socket) }
                #expect(Self.send(bytes, descriptors, to: socket) == 0)
                loop.run { drops.value.count == index + 1 }
                #expect(drops.value.last == reason)
                // The connection was closed.
                #expect(run_loop_poll(socket, UInt32(POLLIN)) & UInt32(POLLHUP) != 0)
            }
            // A well-formed message is not dropped.
            let socket = try Self.connect(name, directory.ports)
            defer { close(socket) }
            #expect(Self.send(Self.message(count: 1, lengths: [4], rest: 4), [], to: socket) == 0)
            try honest.send(PortMessage(id: 5))
            loop.run { ids.value.count == 2 }
            #expect(Set(ids.value) == [0, 5])
            #expect(drops.value.count == cases.count)
        }
    }

    @Test("A peer that the kernel does not tell is nobody, and not root")
    func unknownPeer() {
        var peer = run_loop_peer()
        let failure = unsafe run_loop_message_peer(-1, &peer)
        #expect(failure == -EBADF && peer.uid == .max && peer.gid == .max)
    }

    @Test("R57: a server with an invalid reply makes the port invalid, with a transport error for the caller")
    func hostileServer() async throws {
        try await onLoop { loop in
            for bytes in [[0xA5], Self.message(kind: 1), Self.message(kind: 3, count: 9)] {
                var ends: [Int32] = [-1, -1]
                #expect(unsafe run_loop_message_pair(&ends) == 0)
                defer { close(ends[1]) }
                let told = Counter()
                let remote = RemotePort(MessageSocket(owning: ends[0])) { _ in told.increment() }
                #expect(Self.send(bytes, [0], to: ends[1]) == 0)
                #expect(failure { _ = try remote.request(PortMessage(), receiveTimeout: nil) } == .transportError)
                #expect(told.value == 1 && !remote.isValid)
            }
        }
    }

    @Test("R57: the decoder rejects any bytes, or describes only what is within them")
    func fuzzedDecoder() {
        var generator = SplitMix64.ofThisRun()
        var accepted = 0
        var wrong = 0
        for _ in 0..<20_000 {
            var bytes = Self.plausible(&generator)
            for _ in 0..<Int.random(in: 0...3, using: &generator) where !bytes.isEmpty {
                let index = Int.random(in: 0..<bytes.count, using: &generator)
                bytes[index] = UInt8.random(in: 0...255, using: &generator)
            }
            if Int.random(in: 0...9, using: &generator) == 0 {
                bytes.removeLast(Int.random(in: 0...bytes.count, using: &generator))
            }
            switch Self.isWithin(bytes, &generator) {
            case true?: accepted += 1
            case false?: wrong += 1
            case nil: break
            }
        }
        #expect(wrong == 0 && accepted > 1000)
    }

    /// Whether the parts described by the decoder exactly fill the bytes; nil if it rejects them.
    private static func isWithin(_ bytes: [UInt8], _ generator: inout SplitMix64) -> Bool? {
        let span = unsafe bytes.span.bytes
        guard let header = try? MessageHeader.read(span, descriptors: Int.random(in: 0...1, using: &generator)) else {
            return nil
        }
        let ranges = (0..<header.componentCount).map { header.range(of: $0, in: span) }
        let starts = [header.size] + ranges.map(\.upperBound)
        return zip(starts, ranges).allSatisfy { $0 == $1.lowerBound } && starts.last == bytes.count
    }

    private static func plausible(_ generator: inout SplitMix64) -> [UInt8] {
        let lengths = (0..<Int.random(in: 0...5, using: &generator)).map { _ in
            UInt32.random(in: 0...40, using: &generator)
        }
        return message(
            kind: UInt8.random(in: 1...3, using: &generator),
            hasReplyPort: UInt8.random(in: 0...1, using: &generator),
            count: UInt16(lengths.count),
            descriptors: UInt16.random(in: 0...1, using: &generator),
            lengths: lengths,
            rest: Int(lengths.reduce(0, +))
        )
    }
}

// MARK: - Bypassing the library

extension PortTransferTests {
    /// A message in its wire format.
    private static func message(
        magic: UInt32 = 0x524C_4B50,
        version: UInt8 = 1,
        kind: UInt8 = 1,
        hasReplyPort: UInt8 = 0,
        count: UInt16 = 0,
        descriptors: UInt16 = 0,
        lengths: [UInt32] = [],
        rest: Int = 0
    ) -> [UInt8] {
        func bytes<Number: FixedWidthInteger>(_ number: Number) -> [UInt8] {
            unsafe withUnsafeBytes(of: number) { unsafe Array($0) }
        }
        let fixed =
            bytes(magic) + [version, kind, hasReplyPort, 0] + bytes(UInt64(0)) + bytes(count) + bytes(descriptors)
        return fixed + lengths.flatMap { bytes($0) } + [UInt8](repeating: 7, count: rest)
    }

    private static func connect(_ name: PortName, _ directory: PortDirectory) throws -> Int32 {
        let socket = run_loop_message_socket()
        let failure = unsafe run_loop_message_connect(socket, "\(directory.path)/\(name).port", 1_000_000_000)
        guard failure == 0 else { throw Fixture.Failure(reason: "connect: \(failure)") }
        return socket
    }

    private static func send(_ bytes: [UInt8], _ descriptors: [Int32], to socket: Int32) -> Int32 {
        unsafe bytes.withUnsafeBytes { bytes in
            let base = unsafe UnsafeMutableRawPointer(mutating: bytes.baseAddress)
            var part = unsafe iovec(iov_base: base, iov_len: bytes.count)
            return unsafe run_loop_message_send(socket, &part, 1, descriptors, Int32(descriptors.count))
        }
    }
}
