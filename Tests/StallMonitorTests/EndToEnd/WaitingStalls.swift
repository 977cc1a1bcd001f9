import Foundation
import Glibc
import Synchronization
import TestSupport

// Ways to wait, each in a function whose name must be found.

/// Two connected TCP sockets on this machine.
final class TCPPair: Sendable {
    let port: Int
    private let (client, server): (Int32, Int32)

    init?() {
        let listener = tcpSocket()
        defer { close(listener) }
        var address = sockaddr_in.loopback(port: 0)
        guard unsafe address.with({ unsafe bind(listener, $0, $1) }) == 0, listen(listener, 1) == 0 else { return nil }
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        _ = unsafe address.with { address, _ in unsafe getsockname(listener, address, &length) }
        port = Int(UInt16(bigEndian: address.sin_port))
        let client = tcpSocket()
        self.client = client
        guard unsafe address.with({ unsafe Glibc.connect(client, $0, $1) }) == 0 else { return nil }
        server = accept(listener, nil, nil)
    }

    deinit { [client, server].forEach { close($0) } }

    @inline(never)
    func stallInReceive(_ milliseconds: Int) -> Int {
        limit(client, SO_RCVTIMEO, milliseconds)
        var byte: UInt8 = 0
        return unsafe recv(client, &byte, 1, 0) &+ milliseconds
    }
}

private func limit(_ socket: Int32, _ option: Int32, _ milliseconds: Int) {
    var time = timeval(tv_sec: milliseconds / 1000, tv_usec: milliseconds % 1000 * 1000)
    unsafe setsockopt(socket, SOL_SOCKET, option, &time, socklen_t(MemoryLayout<timeval>.size))
}

/// A listener that nobody accepts from and whose queue is full: further connections wait.
final class FullListener: Sendable {
    let port: UInt16
    private let descriptors: [Int32]

    init?() {
        let listener = tcpSocket()
        var address = sockaddr_in.loopback(port: 0)
        guard unsafe address.with({ unsafe bind(listener, $0, $1) }) == 0, listen(listener, 0) == 0 else { return nil }
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        _ = unsafe address.with { address, _ in unsafe getsockname(listener, address, &length) }
        port = UInt16(bigEndian: address.sin_port)
        let clients = (0..<4).map { _ in
            let client = tcpSocket()
            _ = fcntl(client, F_SETFL, O_NONBLOCK)
            return client
        }
        for client in clients { _ = unsafe address.with { unsafe Glibc.connect(client, $0, $1) } }
        descriptors = [listener] + clients
    }

    deinit { descriptors.forEach { close($0) } }
}

private func tcpSocket() -> Int32 {
    socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
}

@inline(never)
func stallInConnect(to listener: FullListener, milliseconds: Int) -> Int {
    let client = tcpSocket()
    defer { close(client) }
    limit(client, SO_SNDTIMEO, milliseconds)
    var address = sockaddr_in.loopback(port: listener.port)
    return Int(unsafe address.with { unsafe Glibc.connect(client, $0, $1) }) &+ milliseconds
}

@inline(never)
func stallInPoll(_ milliseconds: Int) -> Int {
    var ends: [Int32] = [0, 0]
    precondition(unsafe Glibc.pipe(&ends) == 0)
    defer { for end in ends { close(end) } }
    var polled = pollfd(fd: ends[0], events: Int16(POLLIN), revents: 0)
    return Int(unsafe Glibc.poll(&polled, 1, Int32(milliseconds))) &+ milliseconds
}

/// A child that sleeps until it is ended, for two minutes at most.
final class WaitedChild: Sendable {
    static let seconds = "120"
    private let state = Mutex((process: pid_t?.none, isToEnd: false))

    func begin(_ number: pid_t) {
        state.withLock { $0.process = number }
        if state.withLock({ $0.isToEnd }) { end() }
    }

    /// Also before it has begun. It is killed once: later its number may belong to another process.
    func end() {
        let number = state.withLock { state in
            state.isToEnd = true
            return state.process.take()
        }
        if let number { kill(number, SIGKILL) }
    }
}

@inline(never)
func stallInWait(for waited: WaitedChild) -> Int {
    var child: pid_t = 0
    let words: [String] = ["sleep", WaitedChild.seconds]
    var arguments: [UnsafeMutablePointer<CChar>?] = unsafe words.map { unsafe strdup($0) } + [nil]
    defer { for index in 0..<2 { unsafe free(arguments[index]) } }
    let error = unsafe posix_spawnp(&child, "sleep", nil, nil, &arguments, nil)
    precondition(error == 0)
    waited.begin(child)
    var status: Int32 = 0
    return Int(unsafe waitpid(child, &status, 0)) &+ Int(status)
}

@inline(never)
func stallInChild(_ waited: WaitedChild) -> Int {
    let process = Process()
    process.executableURL = URL(filePath: "/bin/sleep")
    process.arguments = [WaitedChild.seconds]
    guard (try? process.run()) != nil else { return 0 }
    waited.begin(process.processIdentifier)
    process.waitUntilExit()
    return Int(process.terminationStatus) &+ 1
}

/// libsqlite3, if the machine has it, linked as a server would.
enum SQLiteLibrary {
    private typealias Open = @convention(c) (UnsafePointer<CChar>, UnsafeMutablePointer<OpaquePointer?>) -> Int32
    private typealias Limit = @convention(c) (OpaquePointer?, Int32) -> Int32
    private typealias Execute =
        @convention(c) (
            OpaquePointer?, UnsafePointer<CChar>, OpaquePointer?, OpaquePointer?, OpaquePointer?
        ) -> Int32

    static var isThere: Bool { unsafe dlopen("libsqlite3.so.0", RTLD_NOW) != nil }

    private static func function<F>(_ name: String, as _: F.Type) -> F {
        let library = unsafe dlopen("libsqlite3.so.0", RTLD_NOW)
        return unsafe unsafeBitCast(dlsym(library, name), to: F.self)
    }

    /// Gives up after this time.
    @inline(never)
    static func stallInWriting(to path: String, milliseconds: Int32) -> Int {
        let open = unsafe function("sqlite3_open", as: Open.self)
        let limit = unsafe function("sqlite3_busy_timeout", as: Limit.self)
        let execute = unsafe function("sqlite3_exec", as: Execute.self)
        var database: OpaquePointer?
        guard unsafe open(path, &database) == 0, unsafe limit(database, milliseconds) == 0 else { return 0 }
        return Int(unsafe execute(database, "BEGIN IMMEDIATE", nil, nil, nil)) &+ Int(milliseconds)
    }
}

@inline(never)
func stallInFileLock(_ path: String) -> Int {
    let file = unsafe open(path, O_RDWR | O_CLOEXEC)
    defer { close(file) }
    return Int(flock(file, LOCK_EX)) &+ 1
}

/// A separate ext4 file system, in a file, that can be frozen (fsfreeze(8)).
final class FrozenDisk: Sendable {
    let file: String
    private let mountPoint: String
    private let isFrozen = Atomic(false)
    private let descriptor = Atomic<Int32>(-1)

    static var canBeMade: Bool {
        let directory = TemporaryDirectory()
        // The directory is removed with the value.
        return withExtendedLifetime(directory) { FrozenDisk(in: directory.path) != nil }
    }

    /// Nil if the machine has no loop devices or the tests may not mount.
    init?(in directory: String) {
        mountPoint = directory + "/disk"
        file = mountPoint + "/file"
        let image = directory + "/image"
        unsafe mkdir(mountPoint, 0o700)
        guard Self.run("/usr/bin/truncate", "-s", "8M", image), Self.run("/sbin/mkfs.ext4", "-q", image),
            Self.run("/usr/bin/mount", "-o", "loop", image, mountPoint)
        else {
            return nil
        }
    }

    deinit {
        thaw()
        close(descriptor.load(ordering: .sequentiallyConsistent))
        _ = Self.run("/usr/bin/umount", "-l", mountPoint)
    }

    /// Opens the file, and freezes the file system, for a minute at most.
    func freeze() -> Bool {
        descriptor.store(unsafe open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0o600), ordering: .sequentiallyConsistent)
        guard Self.run("/sbin/fsfreeze", "--freeze", mountPoint) else { return false }
        isFrozen.store(true, ordering: .sequentiallyConsistent)
        startThread { [weak self] in
            let end = ContinuousClock.now + .seconds(60)
            while self?.isStillFrozen == true, ContinuousClock.now < end { usleep(10_000) }
            self?.thaw()
        }
        return true
    }

    private var isStillFrozen: Bool { isFrozen.load(ordering: .sequentiallyConsistent) }

    /// Once: a file system that is not frozen cannot be thawed.
    func thaw() {
        guard isFrozen.exchange(false, ordering: .sequentiallyConsistent) else { return }
        _ = Self.run("/sbin/fsfreeze", "--unfreeze", mountPoint)
    }

    @inline(never)
    func stallInWrite() {
        var byte: UInt8 = 1
        _ = unsafe write(descriptor.load(ordering: .sequentiallyConsistent), &byte, 1)
        // So that the call is no tail call.
        withExtendedLifetime(self) {}
    }

    private static func run(_ command: String...) -> Bool {
        let process = Process()
        process.executableURL = URL(filePath: command[0])
        process.arguments = Array(command.dropFirst())
        process.standardError = FileHandle.nullDevice
        guard (try? process.run()) != nil else { return false }
        process.waitUntilExit()
        return process.terminationStatus == 0
    }
}

extension sockaddr_in {
    fileprivate static func loopback(port: UInt16) -> sockaddr_in {
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        return address
    }

    fileprivate mutating func with(_ body: (UnsafeMutablePointer<sockaddr>, socklen_t) -> Int32) -> Int32 {
        unsafe withUnsafeMutablePointer(to: &self) { address in
            unsafe address.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                unsafe body($0, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
    }
}
