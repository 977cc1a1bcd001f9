import Glibc
import LoopTestSupport
import RunLoopKit
@testable import RunLoopPorts
import Testing

/// R55: names.
@Suite(.timeLimit(.minutes(10)))
struct PortNameTests {
    @Test("R55: a name has 1 to 64 bytes and cannot leave its directory")
    func validNames() throws {
        for text in ["", ".", "..", "/", "a/b", "../a", "a\0b", String(repeating: "x", count: 65)] {
            #expect(failure { _ = try PortName(text) } == .portNameInvalid)
        }
        for text in ["a", "...", ".hidden", "a b", "ü", "a.lock", String(repeating: "x", count: 64)] {
            #expect(try PortName(text).text == text)
        }
        // Equal as Unicode text, but with different bytes.
        #expect(try PortName("\u{FC}") != PortName("u\u{308}"))
        #expect(try Set([PortName("a"), PortName("a")]).count == 1)
    }

    @Test("R55: the longest name in a long directory works, and a port's lock file is not a port name")
    func longNames() async throws {
        let directory = TestDirectory()
        try await onLoop { loop in
            // Opening the port creates the outer directory.
            _ = try? LocalPort(PortName("x"), in: directory.ports) { _ in }
            let inner = PortDirectory(directory.ports.path + "/" + String(repeating: "d", count: 200))
            defer { unsafe rmdir(inner.path) }
            let count = Counter()
            let name = try PortName(String(repeating: "n", count: 64))
            let port = try LocalPort(name, in: inner) { _ in count.increment() }
            try loop.add(port)
            try RemotePort(name, in: inner).send(PortMessage())
            loop.run { count.value == 1 }
            let neighbour = try LocalPort(PortName("n.lock"), in: inner) { _ in }
            let plain = try LocalPort(PortName("n"), in: inner) { _ in }
            for port in [port, neighbour, plain] { port.invalidate() }
        }
    }

    @Test("R55: a name in use is refused, in the same and in another process; after its release it is free")
    func inUse() async throws {
        let directory = TestDirectory()
        try await onLoop { _ in
            let name = try PortName("port")
            let child = try PortProcess("hold", directory.ports)
            #expect(child.readLine() != nil)
            #expect(failure { _ = try LocalPort(name, in: directory.ports) { _ in } } == .portNameInUse)
            child.endInput()
            #expect(child.wait() == 0)
            for _ in 0..<3 {
                let port = try LocalPort(name, in: directory.ports) { _ in }
                #expect(failure { _ = try LocalPort(name, in: directory.ports) { _ in } } == .portNameInUse)
                port.invalidate()
            }
            #expect(failure { _ = try RemotePort(name, in: directory.ports) } == .noSuchPort)
        }
    }

    @Test("R55: a name left by a process killed with -9 is not found, and is reclaimed")
    func reclaim() async throws {
        let directory = TestDirectory()
        try await onLoop { loop in
            let name = try PortName("port")
            for _ in 0..<3 {
                let child = try PortProcess("hold", directory.ports)
                #expect(child.readLine() != nil)
                child.kill()
                #expect(unsafe access(directory.ports.path + "/port.port", F_OK) == 0)
                #expect(failure { _ = try RemotePort(name, in: directory.ports) } == .noSuchPort)
            }
            let count = Counter()
            let port = try LocalPort(name, in: directory.ports) { _ in count.increment() }
            try loop.add(port)
            try RemotePort(name, in: directory.ports).send(PortMessage())
            loop.run { count.value == 1 }
            port.invalidate()
            #expect(unsafe access(directory.ports.path + "/port.port", F_OK) != 0)
            #expect(unsafe access(directory.ports.path + "/port.lock", F_OK) != 0)
        }
    }

    @Test("R55: a process whose first thread has ended has named ports like any other")
    func endedFirstThread() throws {
        let directory = TestDirectory()
        let run = try Fixture.run("PortsFixture", "first-thread-ended '\(directory.ports.path)' port")
        #expect(run.lines == ["reached"])
    }

    @Test("R55: of processes that race for a name, free or left behind, exactly one gets it")
    func race() async throws {
        let directory = TestDirectory()
        try await onLoop { _ in
            for _ in 0..<5 {
                let racers = try (0..<4).map { _ in try PortProcess("race", directory.ports) }
                for racer in racers { #expect(racer.readLine() != nil) }
                for racer in racers { racer.writeLine() }
                let results = racers.map { $0.readLine() ?? "nothing" }
                #expect(results.sorted() == ["lost", "lost", "lost", "won"])
                // The winner does not remove the name.
                for racer in racers { racer.kill() }
            }
        }
    }

    @Test("R55: threads that claim and release a name at the same time never share it")
    func raceOfThreads() async throws {
        let directory = TestDirectory()
        let holders = Counter()
        let released = Counter()
        let collisions = Counter()
        let wins = Counter()
        let threads = (0..<4).map { _ in
            TestThread {
                for _ in 0..<200 {
                    guard let name = try? PortName("port"),
                        let port = try? LocalPort(name, in: directory.ports, { _ in })
                    else { continue }
                    wins.increment()
                    if holders.increment() - released.value != 1 { collisions.increment() }
                    released.increment()
                    port.invalidate()
                }
            }
        }
        try await onLoop { _ in for thread in threads { thread.join() } }
        #expect(collisions.value == 0)
        #expect(wins.value > 0)
        #expect(try LocalPort(PortName("port"), in: directory.ports) { _ in }.isValid)
    }

    @Test("R55: a lock on a file that is no longer the name's file does not count")
    func replacedLock() throws {
        let directory = TestDirectory()
        let name = try PortName("port")
        let handle = try directory.ports.open()
        let path = directory.ports.path + "/" + name.lockFile
        let file = OwnedDescriptor(unsafe open(path, O_RDWR | O_CREAT, 0o600))
        var isCurrent = [NameClaim.isCurrent(file, name, handle)]
        #expect(unsafe rename(path, path + ".old") == 0)
        isCurrent.append(NameClaim.isCurrent(file, name, handle))
        let next = OwnedDescriptor(unsafe open(path, O_RDWR | O_CREAT, 0o600))
        isCurrent += [NameClaim.isCurrent(file, name, handle), NameClaim.isCurrent(next, name, handle)]
        #expect(isCurrent == [true, false, false, true])
    }

    @Test("R55: a directory open to others, or a link or file in its place, is refused")
    func unsafeDirectories() async throws {
        let directory = TestDirectory()
        let name = try PortName("port")
        let path = directory.ports.path
        _ = try LocalPort(name, in: directory.ports) { _ in }
        var status = stat()
        #expect(unsafe stat(path, &status) == 0 && status.st_mode & 0o777 == 0o700)
        _ = unsafe chmod(path, 0o755)
        #expect(failure { _ = try LocalPort(name, in: directory.ports) { _ in } } == .portDirectoryUnsafe)
        #expect(failure { _ = try RemotePort(name, in: directory.ports) } == .portDirectoryUnsafe)
        _ = unsafe chmod(path, 0o700)
        _ = unsafe symlink(path, path + "/link")
        for wrong in [path + "/link", "/nonexistent/directory", "/proc/self/exe"] {
            #expect(failure { _ = try LocalPort(name, in: PortDirectory(wrong)) { _ in } } == .portDirectoryUnsafe)
        }
        if geteuid() == 0 {
            _ = unsafe chown(path, 12345, 12345)
            #expect(failure { _ = try LocalPort(name, in: directory.ports) { _ in } } == .portDirectoryUnsafe)
        }
    }

    @Test("R55: the default directory is the user's own")
    func defaultDirectory() {
        let path = PortDirectory.default.path
        #expect(path.hasSuffix("/run-loop-ports") || path == "/tmp/run-loop-ports-\(geteuid())")
    }

    @Test("R55: invalidation notifies the holder of a local and of a remote port once")
    func toldOnce() async throws {
        let directory = TestDirectory()
        try await onLoop { loop in
            let local = Counter()
            let remote = Counter()
            var options = LocalPort.Options()
            options.onInvalidation = { local.increment() }
            let port = try LocalPort(PortName("port"), in: directory.ports, options: options) { _ in }
            try loop.add(port)
            let sender = try RemotePort(PortName("port"), in: directory.ports) { _ in remote.increment() }
            try loop.add(sender)
            loop.run { port.connectionCount == 1 }
            let threads = (0..<4).map { _ in TestThread { port.invalidate() } }
            for thread in threads { thread.join() }
            #expect(local.value == 1)
            #expect(!port.isValid && !loop.contains(port))
            #expect(failure { try loop.add(port) } == .portInvalid)
            #expect(failure { _ = try RemotePort(to: port) } == .portInvalid)
            loop.run { remote.value > 0 }
            sender.invalidate()
            #expect(failure { try sender.send(PortMessage()) } == .portInvalid)
            #expect(failure { try loop.add(sender) } == .portInvalid && !loop.contains(sender))
            #expect(remote.value == 1)
            #expect(!sender.isValid)
        }
    }

    @Test("R55: a remote port on a loop is notified once when the other process is killed with -9")
    func deadPeer() async throws {
        let directory = TestDirectory()
        try await onLoop { loop in
            let child = try PortProcess("hold", directory.ports)
            #expect(child.readLine() != nil)
            let told = Counter()
            let remote = try RemotePort(PortName("port"), in: directory.ports) { remote in
                #expect(!remote.isValid)
                told.increment()
            }
            try loop.add(remote)
            // The message is never read there, so the connection is reset instead of closed.
            try remote.send(PortMessage())
            loop.run(for: .milliseconds(1))
            #expect(told.value == 0 && remote.isValid)
            child.kill()
            loop.run { told.value > 0 }
            loop.run(for: .zero)
            #expect(told.value == 1)
            #expect(failure { try remote.send(PortMessage()) } == .portInvalid)
        }
    }

    @Test("R55: by default only the same user can connect; a refused client and the port are notified")
    func refusedPeers() async throws {
        let directory = TestDirectory()
        try await onLoop { loop in
            let drops = Box<[LocalPort.DropReason]>([])
            var options = LocalPort.Options()
            #expect(options.accepts(PortPeer(processID: 1, userID: geteuid(), groupID: 0)))
            #expect(!options.accepts(PortPeer(processID: 1, userID: geteuid() + 1, groupID: 0)))
            options.accepts = { $0.processID != getpid() }
            options.onDrop = { drops.value.append($1) }
            let port = try LocalPort(PortName("port"), in: directory.ports, options: options) { _ in
                Issue.record("a message came from who may not send any")
            }
            try loop.add(port)
            let told = Counter()
            let remote = try RemotePort(PortName("port"), in: directory.ports) { _ in told.increment() }
            try remote.send(PortMessage())
            try loop.add(remote)
            loop.run { told.value == 1 }
            #expect(drops.value == [.peerNotAllowed])
            #expect(port.connectionCount == 0)
        }
    }
}
